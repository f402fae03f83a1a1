//! The machine put together, and run until it ends.

use crate::cpu;
use crate::jail;
use crate::layout::{SERIAL_IRQ, TSS};
use crate::load::{self, Memory};
use crate::options::Options;
use crate::ports::{Console, Interrupt, Wish};
use crate::sys;
use kvm_bindings::{KVM_PIT_SPEAKER_DUMMY, kvm_pit_config};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};
use linux::process;
use rustix::io::Errno;
use rustix::stdio;
use std::fmt;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;
use vm_memory::GuestAddress;
use vmm_sys_util::eventfd::EventFd;

/// Bytes of standard input that are read at once.
const INPUT_BYTES: usize = 64;
/// How long a key waits until the guest has read those before it.
const INPUT_POLL: Duration = Duration::from_millis(10);

/// Why a machine cannot be started.
#[derive(Debug)]
pub enum Error {
    /// A step that the kernel refused.
    Step(&'static str, io::Error),
    /// The guest cannot be loaded.
    Load(load::Error),
    /// Its processor cannot be set up.
    Cpu(cpu::Error),
    /// The jail cannot be closed.
    Jail(tender::jail::Error),
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step("/dev/kvm", error) => {
                write!(f, "/dev/kvm: {error}; type: outboard doctor")
            }
            Self::Step(step, error) => write!(f, "{step}: {error}"),
            Self::Load(error) => error.fmt(f),
            Self::Cpu(error) => error.fmt(f),
            Self::Jail(error) => error.fmt(f),
        }
    }
}

/// Why the guest does not run any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It has reset itself.
    Reset,
    /// An exception while it handled another one, twice.
    TripleFault,
    /// What this monitor does not know, or cannot do.
    Failed(&'static str),
    /// KVM refuses to run it.
    Refused(i32),
}

/// Starts a guest and runs it until it ends; the exit status.
///
/// # Errors
/// Why it could not be started.
pub fn run(options: &Options) -> Result<i32, Error> {
    let step = |name| move |error: kvm_ioctls::Error| Error::Step(name, error.into());
    let kvm = Kvm::new().map_err(step("/dev/kvm"))?;
    let memory = memory(options.memory_bytes)?;
    let vm = kvm.create_vm().map_err(step("a virtual machine"))?;
    controllers(&vm)?;
    sys::lend(&vm, memory).map_err(|error| Error::Step("guest memory", error))?;
    let mut vcpu = vm.create_vcpu(0).map_err(step("a processor"))?;
    let entry = load::load(memory, options).map_err(Error::Load)?;
    cpu::prepare(&kvm, &vcpu, memory, entry).map_err(Error::Cpu)?;
    let console = console(&vm)?;
    drop(kvm);
    let held = jail::Held {
        vm: vm.as_raw_fd(),
        vcpu: vcpu.as_raw_fd(),
        serial: console.1,
    };
    let console: &'static Console = Box::leak(Box::new(console.0));
    jail::close(&held, || start_input(console)).map_err(Error::Jail)?;
    let end = serve(&mut vcpu, console);
    process::end(conclude(end))
}

/// Memory from address 0 on.
fn memory(bytes: u64) -> Result<&'static Memory, Error> {
    let failed = |error| Error::Step("guest memory", io::Error::other(error));
    let memory = Memory::from_ranges(&[(GuestAddress(0), bytes as usize)]).map_err(failed)?;
    Ok(Box::leak(Box::new(memory)))
}

/// The interrupt controllers and the timer of a PC, in the kernel.
fn controllers(vm: &VmFd) -> Result<(), Error> {
    let step = |name| move |error: kvm_ioctls::Error| Error::Step(name, error.into());
    vm.set_tss_address(TSS).map_err(step("KVM_SET_TSS_ADDR"))?;
    vm.create_irq_chip()
        .map_err(step("interrupt controllers"))?;
    let pit = kvm_pit_config {
        flags: KVM_PIT_SPEAKER_DUMMY,
        ..Default::default()
    };
    vm.create_pit2(pit).map_err(step("a timer"))
}

/// The serial line, and the descriptor by which it interrupts.
fn console(vm: &VmFd) -> Result<(Console, i32), Error> {
    let event = event()?;
    vm.register_irqfd(&event, SERIAL_IRQ)
        .map_err(|error| Error::Step("the serial line's interrupt", error.into()))?;
    let number = event.as_raw_fd();
    Ok((Console::new(Interrupt::new(event)), number))
}

fn event() -> Result<EventFd, Error> {
    EventFd::new(libc::EFD_NONBLOCK | libc::EFD_CLOEXEC)
        .map_err(|error| Error::Step("an event", error))
}

/// Starts the thread that types what comes from standard input. It never ends, for that would take
/// system calls that nothing else needs; for the same reason, this waits until it has begun.
fn start_input(console: &'static Console) -> io::Result<()> {
    static BEGUN: Barrier = Barrier::new(2);
    thread::Builder::new().name("input".into()).spawn(|| {
        BEGUN.wait();
        let mut bytes = [0; INPUT_BYTES];
        loop {
            match rustix::io::read(stdio::stdin(), &mut bytes) {
                Ok(0) => break,
                Ok(count) => type_in(console, &bytes[..count]),
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        loop {
            thread::park();
        }
    })?;
    BEGUN.wait();
    Ok(())
}

fn type_in(console: &Console, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let typed = console.type_in(bytes);
        bytes = &bytes[typed..];
        if typed == 0 {
            thread::sleep(INPUT_POLL);
        }
    }
}

/// Runs the guest until it ends.
fn serve(vcpu: &mut VcpuFd, console: &Console) -> End {
    loop {
        match vcpu.run() {
            Ok(VcpuExit::IoIn(port, data)) => console.read(port, data),
            Ok(VcpuExit::IoOut(port, data)) => match console.write(port, data) {
                Wish::Nothing => {}
                Wish::Reset => return End::Reset,
            },
            // Nothing is there: the bus reads as ones.
            Ok(VcpuExit::MmioRead(_, data)) => data.fill(0xff),
            Ok(VcpuExit::MmioWrite(..)) => {}
            Ok(VcpuExit::Shutdown) => return End::TripleFault,
            Ok(VcpuExit::InternalError) => {
                return End::Failed("KVM cannot go on, as where it interprets instructions");
            }
            Ok(VcpuExit::FailEntry(..)) => return End::Failed("the processor refuses its state"),
            Ok(_) => return End::Failed("it left KVM for a reason that this program cannot serve"),
            Err(error) if [libc::EINTR, libc::EAGAIN].contains(&error.errno()) => {}
            Err(error) => return End::Refused(error.errno()),
        }
    }
}

/// Says how the guest ended; the exit status.
fn conclude(end: End) -> i32 {
    let mut errors = io::stderr();
    // Who closed standard error does not want to know.
    let _ = match end {
        End::Reset => return 0,
        End::TripleFault => writeln!(errors, "outboard-vmm: the guest ended with a triple fault"),
        End::Failed(why) => writeln!(errors, "outboard-vmm: the guest ended: {why}"),
        End::Refused(number) => {
            let error = io::Error::from_raw_os_error(number);
            writeln!(errors, "outboard-vmm: KVM does not run the guest: {error}")
        }
    };
    crate::FAILURE
}
