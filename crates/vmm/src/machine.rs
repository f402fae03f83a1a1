//! The machine put together, and run until it ends.

use crate::attach::{self, Attached, Here, Interrupts, Place};
use crate::bus::{Bus, Front, Home, Reached, Silent, Space};
use crate::complain;
use crate::counters::{Counter, ratio};
use crate::cpu;
use crate::ioregionfd::wire::Direction;
use crate::ioregionfd::{LOOKS_MAX, NoAnswer};
use crate::jail::{self, DevicesHeld};
use crate::layout::{SERIAL_IRQ, TSS};
use crate::load::{self, Memory};
use crate::mapping;
use crate::options::Options;
use crate::ports::{Console, Interrupt, Wish};
use crate::sys;
use kvm_bindings::{KVM_EXIT_INTR, KVM_EXIT_UNKNOWN, KVM_PIT_SPEAKER_DUMMY, kvm_pit_config};
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd, VmFd};
use linux::{descriptor, memory, process};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::stdio;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;
use vm_memory::{FileOffset, GuestAddress};

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
    /// A device cannot be attached.
    Attach(attach::Error),
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
            Self::Attach(error) => error.fmt(f),
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
    /// A device does not answer, or does not move, which was said.
    Device,
}

/// How often the processor left the guest, by the reason. Other threads may read it meanwhile.
#[derive(Debug, Default)]
pub struct Exits {
    /// Ports of the machine, such as those of the serial line, and configuration space; or calls of
    /// an image.
    pub ports: AtomicU64,
    /// Reads of registers of devices: of memory that is none, and of their ports.
    pub reads: AtomicU64,
    /// Writes of them.
    pub writes: AtomicU64,
    /// All else, such as signals.
    pub others: AtomicU64,
}

/// Counts one.
pub fn count(exits: &AtomicU64) {
    exits.fetch_add(1, Ordering::Relaxed);
}

/// Starts a guest and runs it until it ends; the exit status. This process has one thread.
///
/// # Errors
/// Why it could not be started.
pub fn run(options: &Options) -> Result<i32, Error> {
    let step = |name| move |error: kvm_ioctls::Error| Error::Step(name, error.into());
    descriptor::open_standard().map_err(|error| Error::Step("/dev/null", error))?;
    let kvm = Kvm::new().map_err(step("/dev/kvm"))?;
    let (file, memory) = memory(options.memory_bytes)?;
    let vm = kvm.create_vm().map_err(step("a virtual machine"))?;
    controllers(&vm)?;
    sys::lend(&vm, memory).map_err(|error| Error::Step("guest memory", error))?;
    let machine = attach::Machine {
        vm: &vm,
        memory: file.as_fd(),
        memory_bytes: options.memory_bytes,
        memory_address: 0,
        interrupts: Interrupts::Lines,
    };
    let attached = attach::attach(machine, &options.devices).map_err(Error::Attach)?;
    let mut vcpu = vm.create_vcpu(0).map_err(step("a processor"))?;
    let entry = load::load(memory, options).map_err(Error::Load)?;
    cpu::prepare(&kvm, &vcpu, memory, entry).map_err(Error::Cpu)?;
    let (console, serial) = console(&vm)?;
    let console: &'static Console = Box::leak(Box::new(console));
    drop(kvm);
    let (mut bus, here, children) = sort(attached)?;
    mapping::follow(&vm, &mut bus).map_err(Error::Attach)?;
    let held = held(&vm, &vcpu, serial, &bus, &here, &children);
    let input: Work = ("input", Box::new(|| type_all(console)));
    let start = || start_threads([input], here, children);
    jail::close(&held, start).map_err(Error::Jail)?;
    let exits = Exits::default();
    let end = serve(&vm, &mut vcpu, console, &mut bus, &exits);
    if options.statistics {
        report(&bus, &exits);
    }
    process::end(conclude(end))
}

/// Processes of devices by their names, each with what tells of its end.
pub type Children = Vec<(String, OwnedFd)>;

/// What the processor finds, devices of this process, and processes of others.
///
/// # Errors
/// What the kernel says of a process.
pub fn sort(attached: Vec<Attached>) -> Result<(Bus, Vec<Here>, Children), Error> {
    let (mut slots, mut heres, mut children) = (Vec::new(), Vec::new(), Vec::new());
    for Attached { slot, place } in attached {
        match place {
            Place::Here(here) => heres.push(*here),
            Place::Process(child) => {
                let pidfd = child.pidfd();
                let pidfd = pidfd.map_err(|error| Error::Step("a process", error))?;
                children.push((slot.device.name.clone(), pidfd));
            }
        }
        slots.push(slot);
    }
    Ok((Bus::new(slots), heres, children))
}

/// What a jail has to know of devices.
pub fn devices_held(bus: &Bus, here: &[Here], children: &Children) -> DevicesHeld {
    let asked = bus.slots.iter().filter_map(|slot| match &slot.front {
        Front::Here(..) => None,
        Front::Socket(commands) => Some(commands.as_raw_fd()),
    });
    let children = children.iter().map(|(_, pidfd)| pidfd.as_raw_fd());
    DevicesHeld {
        here: here.iter().map(|here| here.held.clone()).collect(),
        asked: asked.collect(),
        children: children.collect(),
    }
}

/// What a jail has to know.
fn held(
    vm: &VmFd,
    vcpu: &VcpuFd,
    serial: i32,
    bus: &Bus,
    here: &[Here],
    children: &Children,
) -> jail::Held {
    let kicks = bus.slots.iter().filter_map(|slot| match &slot.front {
        Front::Here(_, kick) => kick.as_ref().map(AsRawFd::as_raw_fd),
        Front::Socket(_) => None,
    });
    let mut slots = bus.slots.iter();
    let events = bus.slots.iter().flat_map(|slot| &slot.events);
    jail::Held {
        vm: vm.as_raw_fd(),
        moves: slots.any(|slot| matches!(slot.home, Home::Function(_))),
        vcpu: vcpu.as_raw_fd(),
        serial,
        devices: devices_held(bus, here, children),
        kicks: kicks.collect(),
        events: events.map(AsRawFd::as_raw_fd).collect(),
    }
}

/// Memory from address 0 on, and its file.
fn memory(bytes: u64) -> Result<(Arc<File>, &'static Memory), Error> {
    let failed = |error| Error::Step("guest memory", error);
    let file: File = memory::sealed("guest", bytes).map_err(failed)?.into();
    let file = Arc::new(file);
    let offset = FileOffset::from_arc(Arc::clone(&file), 0);
    let ranges = [(GuestAddress(0), bytes as usize, Some(offset))];
    let memory = Memory::from_ranges_with_files(ranges);
    let memory = memory.map_err(|error| failed(io::Error::other(error)))?;
    Ok((file, Box::leak(Box::new(memory))))
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
    let event = attach::event().map_err(|error| Error::Step("an event", error))?;
    vm.register_irqfd(&event, SERIAL_IRQ)
        .map_err(|error| Error::Step("the serial line's interrupt", error.into()))?;
    let number = event.as_raw_fd();
    Ok((Console::new(Interrupt::new(event)), number))
}

/// What a thread of this process does, by its name.
pub type Work = (&'static str, Box<dyn FnOnce() + Send>);

/// Starts the threads of this process: these, and those of devices and for processes. None ever
/// ends, for that would take system calls that nothing else needs; for the same reason, this waits
/// until all have begun.
///
/// # Errors
/// What the kernel says.
pub fn start_threads(
    works: impl IntoIterator<Item = Work>,
    here: Vec<Here>,
    children: Children,
) -> io::Result<()> {
    let mut works: Vec<Work> = works.into_iter().collect();
    if !children.is_empty() {
        works.push(("processes", Box::new(move || watch_over(&children))));
    }
    let begun = Arc::new(Barrier::new(1 + here.len() + works.len()));
    let start = |name: &str, work: Box<dyn FnOnce() + Send>| {
        let begun = Arc::clone(&begun);
        let begin = move || {
            begun.wait();
            work();
            loop {
                thread::park();
            }
        };
        thread::Builder::new().name(name.into()).spawn(begin)
    };
    for (name, work) in works {
        start(name, work)?;
    }
    for Here {
        name,
        device,
        lines,
        ..
    } in here
    {
        let serve = move || {
            let end = lines.serve(&name, device);
            complain(&name, &end.to_string());
            process::end(crate::FAILURE)
        };
        start("device", Box::new(serve))?;
    }
    begun.wait();
    Ok(())
}

/// Ends all with the first process of a device that ends.
fn watch_over(children: &[(String, OwnedFd)]) {
    let pidfds = children.iter();
    let mut watched: Vec<PollFd<'_>> = pidfds
        .map(|(_, pidfd)| PollFd::new(pidfd, PollFlags::IN))
        .collect();
    while let Ok(0) | Err(Errno::INTR) = poll(&mut watched, None) {}
    for ((name, _), ended) in children.iter().zip(&watched) {
        if !ended.revents().is_empty() {
            complain(name, "its process has ended");
        }
    }
    process::end(crate::FAILURE)
}

/// Types what comes from standard input, until nothing will come any more.
fn type_all(console: &Console) {
    let mut bytes = [0; INPUT_BYTES];
    loop {
        match rustix::io::read(stdio::stdin(), &mut bytes) {
            Ok(0) => break,
            Ok(count) => type_in(console, &bytes[..count]),
            Err(Errno::INTR) => {}
            Err(_) => break,
        }
    }
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

/// Whether KVM waits for a device that does not answer, as far as is known.
///
/// The sockets of devices have a limit of time, after which KVM leaves the guest as for a signal.
/// Entered once more with the wish to leave at once, it says by the reason of that exit whether an
/// access still waits: it enters no guest then, and goes on with what is under way.
#[derive(Debug, Default)]
pub struct Patience {
    /// How often in a row it left, and an access waited.
    looks: u32,
    /// Whether it was entered to be asked that.
    asks: bool,
    /// How often each device had worked when that began.
    turns: Vec<u64>,
}

impl Patience {
    /// The processor has left KVM as for a signal. Whether it has waited for a device for too long,
    /// which is said.
    pub fn interrupted(&mut self, vcpu: &mut VcpuFd, bus: &Bus) -> bool {
        self.asks = !self.asks;
        if self.asks {
            vcpu.get_kvm_run().exit_reason = KVM_EXIT_UNKNOWN;
            vcpu.set_kvm_immediate_exit(1);
            return false;
        }
        vcpu.set_kvm_immediate_exit(0);
        let turns = || {
            let slots = bus.slots.iter();
            slots.map(|slot| slot.counters.get(Counter::Turns))
        };
        if vcpu.get_kvm_run().exit_reason != KVM_EXIT_INTR {
            self.looks = 0;
            return false;
        }
        if self.looks == 0 {
            self.turns = turns().collect();
        }
        self.looks += 1;
        if self.looks < LOOKS_MAX {
            return false;
        }
        let mut both = bus.slots.iter().zip(turns().zip(&self.turns));
        let idle = both.find(|(_, (now, before))| now == *before);
        let name = idle.map_or("a device", |(slot, _)| slot.device.name.as_str());
        complain(name, &NoAnswer::Late.to_string());
        true
    }

    /// The processor has left KVM for another reason.
    pub fn left(&mut self, vcpu: &mut VcpuFd) {
        if std::mem::take(&mut self.asks) {
            vcpu.set_kvm_immediate_exit(0);
        }
        self.looks = 0;
    }
}

/// Runs the guest until it ends.
fn serve(vm: &VmFd, vcpu: &mut VcpuFd, console: &Console, bus: &mut Bus, exits: &Exits) -> End {
    let mut patience = Patience::default();
    loop {
        let served = match vcpu.run() {
            Ok(VcpuExit::IoIn(port, data)) => port_read(vm, console, bus, exits, port, data),
            Ok(VcpuExit::IoOut(port, data)) => port_written(vm, console, bus, exits, port, data),
            Ok(VcpuExit::MmioRead(address, data)) => {
                count(&exits.reads);
                let done = bus.access(Space::Memory, Direction::Read, address, data);
                done.map(drop).map_err(silent)
            }
            Ok(VcpuExit::MmioWrite(address, data)) => {
                count(&exits.writes);
                let (mut data, bytes) = copied(data);
                let data = &mut data[..bytes];
                let done = bus.access(Space::Memory, Direction::Write, address, data);
                done.map(drop).map_err(silent)
            }
            Ok(VcpuExit::Shutdown) => return End::TripleFault,
            Ok(VcpuExit::InternalError) => {
                return End::Failed("KVM cannot go on, as where it interprets instructions");
            }
            Ok(VcpuExit::FailEntry(..)) => return End::Failed("the processor refuses its state"),
            Ok(_) => return End::Failed("it left KVM for a reason that this program cannot serve"),
            Err(error) if [libc::EINTR, libc::EAGAIN].contains(&error.errno()) => {
                count(&exits.others);
                if patience.interrupted(vcpu, bus) {
                    return End::Device;
                }
                continue;
            }
            Err(error) => return End::Refused(error.errno()),
        };
        if let Err(end) = served {
            return end;
        }
        patience.left(vcpu);
    }
}

/// Bytes that are written, and how many of them there are.
pub fn copied(data: &[u8]) -> ([u8; 8], usize) {
    let mut written = [0; 8];
    let bytes = data.len().min(written.len());
    written[..bytes].copy_from_slice(&data[..bytes]);
    (written, bytes)
}

fn silent(silent: Silent) -> End {
    complain(&silent.name, &silent.why.to_string());
    End::Device
}

/// What an access of a port reached; BARs that it moved are where they should be then.
fn port(
    vm: &VmFd,
    bus: &mut Bus,
    (direction, port): (Direction, u16),
    data: &mut [u8],
    exits: &Exits,
) -> Result<Reached, End> {
    let reached = bus.port(direction, port, data).map_err(silent)?;
    match (reached, direction) {
        (Reached::Register, Direction::Read) => count(&exits.reads),
        (Reached::Register, Direction::Write) => count(&exits.writes),
        _ => count(&exits.ports),
    }
    if reached == Reached::Configuration && direction == Direction::Write {
        mapping::follow(vm, bus).map_err(|error| {
            // It begins with the name of the device.
            let _ = writeln!(io::stderr(), "outboard-vmm: {error}");
            End::Device
        })?;
    }
    Ok(reached)
}

fn port_read(
    vm: &VmFd,
    console: &Console,
    bus: &mut Bus,
    exits: &Exits,
    number: u16,
    data: &mut [u8],
) -> Result<(), End> {
    if port(vm, bus, (Direction::Read, number), data, exits)? == Reached::Nobody {
        console.read(number, data);
    }
    Ok(())
}

fn port_written(
    vm: &VmFd,
    console: &Console,
    bus: &mut Bus,
    exits: &Exits,
    number: u16,
    data: &[u8],
) -> Result<(), End> {
    let (mut written, bytes) = copied(data);
    let reached = port(
        vm,
        bus,
        (Direction::Write, number),
        &mut written[..bytes],
        exits,
    )?;
    match reached {
        Reached::Nobody => match console.write(number, data) {
            Wish::Nothing => Ok(()),
            Wish::Reset => Err(End::Reset),
        },
        _ => Ok(()),
    }
}

/// Prints what was counted.
pub fn report(bus: &Bus, exits: &Exits) {
    let mut text = String::new();
    for slot in &bus.slots {
        let name = format!("{} (ioregionfd={})", slot.device.name, slot.device.access);
        let lines = slot.counters.report(&name);
        text.extend(lines.lines().map(|line| format!("outboard-vmm: {line}\n")));
    }
    let done: u64 = bus
        .slots
        .iter()
        .map(|slot| slot.counters.get(Counter::Received) + slot.counters.get(Counter::Transmitted))
        .sum();
    let all = [&exits.ports, &exits.reads, &exits.writes, &exits.others];
    let [ports, reads, writes, others] = all.map(|count| count.load(Ordering::Relaxed));
    let of_registers = ratio(reads + writes, done);
    let of_all = ratio(ports + reads + writes + others, done);
    text.push_str(&format!(
        "outboard-vmm: exits: {ports} for ports, {reads} to read registers, {writes} to write \
         them, {others} others; {of_registers} for registers a frame or request, {of_all} in all\n"
    ));
    // Who closed standard error does not want to know.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Says how the guest ended; the exit status.
fn conclude(end: End) -> i32 {
    let mut errors = io::stderr();
    // Who closed standard error does not want to know.
    let _ = match end {
        End::Reset => return 0,
        End::Device => Ok(()),
        End::TripleFault => writeln!(errors, "outboard-vmm: the guest ended with a triple fault"),
        End::Failed(why) => writeln!(errors, "outboard-vmm: the guest ended: {why}"),
        End::Refused(number) => {
            let error = io::Error::from_raw_os_error(number);
            writeln!(errors, "outboard-vmm: KVM does not run the guest: {error}")
        }
    };
    crate::FAILURE
}
