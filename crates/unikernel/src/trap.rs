//! Exceptions on `hvt`, where no kernel is below the guest: each ends it, and says what happened in
//! an [`abi::hvt::Trap`] (Intel SDM volume 3, chapters 6 and 8).
//!
//! Every handler has a stack of its own, so that an overflow of the guest's is reported like any
//! fault.

use crate::hvt;
use abi::exit::SIGNAL_BASE;
use abi::hvt::{COOKIE_BYTES, TRAP_MAGIC, Trap};
use core::arch::{asm, naked_asm};
use core::cell::UnsafeCell;

/// Vectors that the processor itself uses.
const VECTORS: usize = 32;
/// Bytes of code for each of them in [`entries`].
const ENTRY_BYTES: usize = 16;
const DOUBLE_FAULT: usize = 8;

const CODE: u16 = 8;
const DATA: u16 = 16;
const TASK: u16 = 24;
/// 64-bit code and data: flat, ring 0, accessed (3.4.5).
const CODE_DESCRIPTOR: u64 = 0x00af_9b00_0000_ffff;
const DATA_DESCRIPTOR: u64 = 0x00cf_9300_0000_ffff;
/// Types, with the bit for present: an available task (8.2.3), an interrupt gate (6.14.1).
const TASK_TYPE: u64 = 0x89;
const GATE_TYPE: u64 = 0x8e;

/// Bytes of a handler's stack.
const STACK_BYTES: usize = 8192;

/// The task segment (8.7): only the stacks of its interrupt stack table are used.
#[repr(C, packed(4))]
struct Task {
    reserved: u32,
    stacks: [u64; 3],
    reserved_too: u64,
    /// Number 1 is the first.
    interrupt_stacks: [u64; 7],
    reserved_last: u64,
    reserved_short: u16,
    /// Where its permissions for ports begin: behind its end, so there are none.
    ports: u16,
}

const _: () = assert!(size_of::<Task>() == 104);

#[repr(C, align(16))]
struct Stack([u8; STACK_BYTES]);

/// All that the processor is told of and that handlers use.
#[repr(C, align(16))]
struct Tables {
    descriptors: [u64; 5],
    gates: [[u64; 2]; VECTORS],
    task: Task,
    /// For exceptions, and for one within their handler.
    stacks: [Stack; 2],
    trap: Trap,
    rest: [u8; COOKIE_BYTES as usize - size_of::<Trap>()],
}

struct Shared(UnsafeCell<Tables>);
// SAFETY: there is one processor; `install` writes before it is told of the tables, a handler
// after everything else has stopped for ever.
unsafe impl Sync for Shared {}
/// All zero until `install`, so that it takes no room in the image.
static TABLES: Shared = Shared(UnsafeCell::new(Tables {
    descriptors: [0; 5],
    gates: [[0; 2]; VECTORS],
    task: Task {
        reserved: 0,
        stacks: [0; 3],
        reserved_too: 0,
        interrupt_stacks: [0; 7],
        reserved_last: 0,
        reserved_short: 0,
        ports: 0,
    },
    stacks: [const { Stack([0; STACK_BYTES]) }; 2],
    trap: Trap::ZERO,
    rest: [0; COOKIE_BYTES as usize - size_of::<Trap>()],
}));

/// What `lgdt` and `lidt` take (3.5.1).
#[repr(C, packed)]
struct Register {
    limit: u16,
    base: u64,
}

/// Has exceptions reported from now on.
///
/// # Safety
/// To be called once, in ring 0, with interrupts off, on a machine that nobody else uses.
pub(crate) unsafe fn install() {
    // SAFETY: the caller says that this is the first and only use; no handler runs yet.
    let tables = unsafe { &mut *TABLES.0.get() };
    let tops = tables.stacks.each_ref().map(top);
    tables.task.interrupt_stacks = [tops[0], tops[1], 0, 0, 0, 0, 0];
    tables.task.ports = size_of::<Task>() as u16;
    let task = (&raw const tables.task).expose_provenance() as u64;
    let [low, high] = task_descriptor(task);
    tables.descriptors = [0, CODE_DESCRIPTOR, DATA_DESCRIPTOR, low, high];
    let first = (entries as *const ()).expose_provenance() as u64;
    for (vector, gate) in tables.gates.iter_mut().enumerate() {
        let stack = if vector == DOUBLE_FAULT { 2 } else { 1 };
        *gate = interrupt_gate(first + (vector * ENTRY_BYTES) as u64, stack);
    }
    let descriptors = register(&tables.descriptors);
    let gates = register(&tables.gates);
    // SAFETY: (1) both tables are complete, and statics; (2) their code and data segments are the
    // ones in use, so that reloading them changes nothing; (3) what is pushed is popped.
    unsafe {
        asm!(
            "lgdt [{descriptors}]",
            "push {code}",
            "lea {scratch}, [rip + 2f]",
            "push {scratch}",
            "retfq",
            "2:",
            "mov ds, {data:e}",
            "mov es, {data:e}",
            "mov ss, {data:e}",
            "ltr {task:x}",
            "lidt [{gates}]",
            descriptors = in(reg) &raw const descriptors,
            gates = in(reg) &raw const gates,
            code = const CODE,
            data = in(reg) u32::from(DATA),
            task = in(reg) TASK,
            scratch = out(reg) _,
        );
    }
}

fn top(stack: &Stack) -> u64 {
    stack.0.as_ptr_range().end.expose_provenance() as u64
}

fn register<T>(table: &T) -> Register {
    Register {
        limit: (size_of::<T>() - 1) as u16,
        base: (&raw const *table).expose_provenance() as u64,
    }
}

/// A descriptor of the task segment at this address (8.2.3).
fn task_descriptor(base: u64) -> [u64; 2] {
    let limit = size_of::<Task>() as u64 - 1;
    let low = limit | (base & 0xff_ffff) << 16 | TASK_TYPE << 40 | (base >> 24 & 0xff) << 56;
    [low, base >> 32]
}

/// A gate to the code at this address, on a stack of the interrupt stack table (6.14.1).
fn interrupt_gate(code: u64, stack: u64) -> [u64; 2] {
    let segment = u64::from(CODE) << 16;
    let low = code & 0xffff | segment | stack << 32 | GATE_TYPE << 40 | (code >> 16 & 0xffff) << 48;
    [low, code >> 32]
}

/// Where the processor goes: for each vector, [`ENTRY_BYTES`] that push an error code where the
/// processor does not (6.13: it does for those whose bits are set), and the vector.
#[unsafe(naked)]
extern "C" fn entries() {
    naked_asm!(
        ".balign 16",
        ".irp vector, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, \
            21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31",
        ".balign 16",
        ".if ((0x60227d00 >> \\vector) & 1) == 0",
        "push 0",
        ".endif",
        "push \\vector",
        "jmp {common}",
        ".endr",
        common = sym common,
    )
}

/// What lies on a handler's stack: what [`common`] pushed, what [`entries`] did, and what the
/// processor did (6.14.2).
#[repr(C)]
struct Frame {
    /// rax, rbx, rcx, rdx, rsi, rdi, rbp.
    first: [u64; 7],
    /// r8 to r15.
    second: [u64; 8],
    vector: u64,
    error: u64,
    rip: u64,
    cs: u64,
    rflags: u64,
    rsp: u64,
    ss: u64,
}

#[unsafe(naked)]
extern "C" fn common() {
    // The processor aligned the stack to 16 bytes, and 22 words lie on it at the call.
    naked_asm!(
        "push r15",
        "push r14",
        "push r13",
        "push r12",
        "push r11",
        "push r10",
        "push r9",
        "push r8",
        "push rbp",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push rbx",
        "push rax",
        "cld",
        "mov rdi, rsp",
        "call {end}",
        "ud2",
        end = sym end,
    )
}

/// Ends the guest.
extern "C" fn end(frame: &Frame) -> ! {
    let address: u64;
    // SAFETY: ring 0 may read CR2.
    unsafe { asm!("mov {}, cr2", out(reg) address, options(nomem, nostack, preserves_flags)) };
    let mut registers = [0; 16];
    registers[..7].copy_from_slice(&frame.first);
    registers[7] = frame.rsp;
    registers[8..].copy_from_slice(&frame.second);
    let trap = Trap {
        magic: TRAP_MAGIC,
        vector: frame.vector,
        error: frame.error,
        address,
        rip: frame.rip,
        rflags: frame.rflags,
        registers,
    };
    let status = SIGNAL_BASE + trap.signal();
    // SAFETY: the tables are a static; no reference to them is left.
    let place = unsafe { &raw mut (*TABLES.0.get()).trap };
    // SAFETY: as above, and nothing else writes there.
    unsafe { place.write(trap) };
    hvt::halt(status, place.expose_provenance() as u64)
}
