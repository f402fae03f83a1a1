//! How a guest ended, and what to say about it: the decision, without any effect.
//!
//! A guest's exit status is its tender's. A signal ends both; a fault that the tender caught ends
//! it with the status `128 + signal` and a report ([`abi::share::Report`]). Caught or not, the
//! report was written in a process that the guest shared: it is believed only where it agrees with
//! what the kernel says of the end, and nothing but its numbers is shown. Who forges one tells lies
//! about himself.

use crate::symbols::Place;
use abi::backtrace::{REGISTERS, call_of};
use abi::exit;
use abi::pci;
use abi::share::{CODE_EXPLAINED, REPORT_MAGIC, Report};
use signal_hook::consts::signal::{
    SIGBUS, SIGFPE, SIGILL, SIGINT, SIGKILL, SIGQUIT, SIGSEGV, SIGSYS, SIGTERM, SIGTRAP,
};
use signal_hook::low_level::signal_name;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;

/// Who may be to blame where the host has no page for what a guest touches.
const TAKEN: &str = "the host has no page for; a process that is a device of its can take pages \
                     away, so look at that first";
/// Registers in a line.
const REGISTERS_A_LINE: usize = 4;

/// How a tender, and with it its guest, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By an exit status of the guest's own choice, or [`exit::FAILURE`] of the tender before it.
    Exited(i32),
    /// By a signal of which no more is known.
    Killed(i32),
    /// By a signal that the tender has reported.
    Reported(i32, Report),
    /// By a panic, with who called.
    Panicked(Report),
}

impl Ending {
    /// What `status` says, with `report` if it is one and about the same signal.
    pub fn new(status: ExitStatus, report: Option<Report>) -> Self {
        let code = status.code();
        let signal = status
            .signal()
            .or(code.map(|code| code - exit::SIGNAL_BASE));
        let reported = report.filter(|report| {
            let number = i32::try_from(report.signal).ok();
            report.magic == REPORT_MAGIC && number.is_some_and(|n| n > 0 && Some(n) == signal)
        });
        let panicked = report.filter(|report| report.magic == REPORT_MAGIC && report.signal == 0);
        if let (Some(exit::ABORT), Some(report)) = (code, panicked) {
            return Self::Panicked(report);
        }
        match (signal, reported, code) {
            (Some(signal), Some(report), _) => Self::Reported(signal, report),
            (_, _, Some(code)) => Self::Exited(code),
            (Some(signal), None, None) => Self::Killed(signal),
            (None, _, None) => Self::Exited(exit::FAILURE),
        }
    }

    /// The exit status to pass on: the guest's own, or 128 plus the number of the signal.
    pub fn exit_status(&self) -> u8 {
        let status = match self {
            Self::Exited(status) => *status,
            Self::Panicked(_) => exit::ABORT,
            Self::Killed(signal) | Self::Reported(signal, _) => exit::SIGNAL_BASE + signal,
        };
        u8::try_from(status).unwrap_or(u8::MAX)
    }

    /// Whether somebody asked for it: a person, a service manager, a shutdown.
    pub fn was_asked_for(&self) -> bool {
        match self {
            Self::Exited(_) | Self::Panicked(_) => false,
            Self::Killed(signal) | Self::Reported(signal, _) => [SIGINT, SIGTERM].contains(signal),
        }
    }

    /// Where it was and who called, if it says.
    pub fn report(&self) -> Option<&Report> {
        match self {
            Self::Reported(signal, report) if has_place(*signal, report) => Some(report),
            Self::Panicked(report) => Some(report),
            _ => None,
        }
    }

    /// What the user should know, a line each: how it ended, where, and what to look at next.
    /// `places` are those of [`Self::report`] in `image`.
    ///
    /// Silent for success, and for status 1: whoever failed so, tender or guest, has said why.
    pub fn lines(&self, image: &Path, places: &[Place]) -> Vec<String> {
        let mut lines = self.what();
        if let Some(report) = self.report() {
            lines.extend(where_it_was(report, image, places));
        }
        lines
    }

    fn what(&self) -> Vec<String> {
        match self {
            Self::Exited(exit::SUCCESS | exit::FAILURE) => Vec::new(),
            Self::Exited(exit::DEVICE_GONE) => vec![format!(
                "a device of the guest went away while in use (status {}); the guest's last line \
                 names it",
                exit::DEVICE_GONE
            )],
            Self::Exited(exit::HOST_FAILED) => vec![format!(
                "the host failed while it served the guest (status {}); the tender's last line \
                 names the step",
                exit::HOST_FAILED
            )],
            Self::Exited(exit::ABORT) | Self::Panicked(_) => vec![format!(
                "the guest gave up (status {}: a panic, or out of memory); its last lines say why",
                exit::ABORT
            )],
            Self::Exited(status) => vec![format!("the guest ended with status {status}")],
            Self::Killed(signal) => vec![killed(*signal)],
            Self::Reported(signal, report) => vec![reported(*signal, report)],
        }
    }
}

fn ended_by(signal: i32) -> String {
    let name = signal_name(signal).map_or_else(|| format!("signal {signal}"), str::to_owned);
    format!("the guest was ended by {name}")
}

fn killed(signal: i32) -> String {
    let ended = ended_by(signal);
    match signal {
        SIGKILL => {
            format!("{ended}: by another process, or by the kernel for want of memory (see dmesg)")
        }
        SIGSYS => format!("{ended}: it made a forbidden system call"),
        SIGBUS => format!("{ended}: it touched memory that {TAKEN}"),
        _ => ended,
    }
}

/// Whether where the guest was says something of the end. `si_code` is positive only for what the
/// kernel found at an instruction (sigaction(2)); and who sends SIGQUIT wants to know.
fn has_place(signal: i32, report: &Report) -> bool {
    report.code > 0 || signal == SIGQUIT
}

fn reported(signal: i32, report: &Report) -> String {
    let ended = ended_by(signal);
    if !has_place(signal, report) {
        return format!("{ended}: sent by another process");
    }
    let (instruction, cause) = (report.instruction, cause(signal, report));
    format!("{ended} at instruction {instruction:#x}: {cause}")
}

/// Registers, callers, and the command that finds their lines.
fn where_it_was(report: &Report, image: &Path, places: &[Place]) -> Vec<String> {
    // The place of a panic is its caller: there is no instruction, and no register of interest.
    let panicked = report.signal == 0;
    let mut lines = Vec::new();
    if !panicked {
        let named: Vec<_> = REGISTERS.iter().zip(&report.registers).collect();
        let registers = named.chunks(REGISTERS_A_LINE).map(|some| {
            let shown = some
                .iter()
                .map(|(name, value)| format!("{name:<3} {value:#018x}"));
            shown.collect::<Vec<_>>().join("  ")
        });
        lines.extend(registers);
        lines.push(format!("flags {:#x}", report.flags));
    }
    let mut command = format!("to see the lines: addr2line -fipCe {}", image.display());
    for (depth, place) in places.iter().enumerate().skip(usize::from(panicked)) {
        let Place { address, function } = place;
        lines.push(match function {
            Some((name, offset)) => format!("  {address:#x} in {name} + {offset:#x}"),
            None => format!("  {address:#x}"),
        });
        let inside = if depth == 0 {
            *address
        } else {
            call_of(*address)
        };
        command.push_str(&format!(" {inside:#x}"));
    }
    lines.push(command);
    lines
}

/// What the guest did to deserve `signal`.
fn cause(signal: i32, fault: &Report) -> String {
    /// `SEGV_MAPERR`, `SEGV_ACCERR` and `SI_KERNEL` of Linux's `asm-generic/siginfo.h`.
    const SEGV_MAPERR: i32 = 1;
    const SEGV_ACCERR: i32 = 2;
    const SI_KERNEL: i32 = 0x80;

    let address = fault.address;
    match (signal, fault.code) {
        (_, CODE_EXPLAINED) => "as the tender says".to_owned(),
        (SIGSYS, _) => format!("it made {}", system_call(fault.syscall)),
        (SIGSEGV, SEGV_MAPERR) if address < abi::GUEST_BASE => {
            format!("it followed a null pointer to address {address:#x}")
        }
        (SIGSEGV, SEGV_MAPERR) => format!("it touched address {address:#x}, where nothing is"),
        (SIGSEGV, SEGV_ACCERR) => {
            format!("it touched address {address:#x} in a way that is not allowed there")
        }
        (SIGSEGV, SI_KERNEL) => {
            "a privileged instruction, or an address that cannot exist".to_owned()
        }
        (SIGBUS, code) => match pci::place(address) {
            Some(pci::Place::Dma) => {
                format!("it touched address {address:#x}, DMA memory that {TAKEN}")
            }
            Some(pci::Place::Registers(device)) => format!(
                "it touched address {address:#x}, registers of its PCI device {device}, which are \
                 not there any more: the device was unplugged, or is a process that took them away"
            ),
            None => format!("it touched address {address:#x} (code {code})"),
        },
        (SIGSEGV, code) => format!("it touched address {address:#x} (code {code})"),
        (SIGILL, _) => "an instruction that this CPU does not have".to_owned(),
        (SIGFPE, _) => "an arithmetic error, such as a division by zero".to_owned(),
        (SIGTRAP, _) => "a breakpoint".to_owned(),
        (SIGQUIT, _) => "somebody asked where it was".to_owned(),
        (_, code) => format!("code {code}"),
    }
}

fn system_call(number: u32) -> String {
    match syscalls::x86_64::Sysno::new(number as usize) {
        Some(call) => format!(
            "the forbidden system call {} (number {number})",
            call.name()
        ),
        None => format!("the forbidden system call number {number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use signal_hook::consts::signal::SIGTERM;

    fn exited(status: i32) -> Ending {
        Ending::new(ExitStatus::from_raw(status << 8), None)
    }

    fn killed(signal: i32, report: Option<Report>) -> Ending {
        Ending::new(ExitStatus::from_raw(signal), report)
    }

    /// As the tender ends after a fault that it caught.
    fn faulted(report: Report) -> Ending {
        let status = exit::SIGNAL_BASE + report.signal.cast_signed();
        Ending::new(ExitStatus::from_raw(status << 8), Some(report))
    }

    fn report(signal: i32, code: i32) -> Report {
        Report {
            magic: REPORT_MAGIC,
            signal: signal.cast_unsigned(),
            code,
            syscall: 0,
            address: 0,
            instruction: 0x10_0abc,
            ..Report::default()
        }
    }

    fn first_line(ending: Ending) -> String {
        let lines = ending.lines(Path::new("a.spt"), &[]);
        assert!(lines.iter().all(|line| !line.contains('\n')));
        lines.into_iter().next().unwrap_or_default()
    }

    #[test]
    fn who_is_asked_where_it_was_says_so() {
        let asked = faulted(report(SIGQUIT, 0));
        assert!(asked.report().is_some());
        assert_eq!(
            first_line(asked),
            "the guest was ended by SIGQUIT at instruction 0x100abc: somebody asked where it was"
        );
    }

    #[test]
    fn a_status_is_passed_on() {
        for status in 0..=255 {
            assert_eq!(i32::from(exited(status).exit_status()), status);
        }
    }

    #[test]
    fn a_signal_becomes_128_and_its_number() {
        for signal in 1..=64 {
            assert_eq!(i32::from(killed(signal, None).exit_status()), 128 + signal);
        }
    }

    #[test]
    fn who_has_spoken_already_is_not_repeated() {
        assert_eq!(first_line(exited(exit::SUCCESS)), "");
        assert_eq!(first_line(exited(exit::FAILURE)), "");
        assert!(first_line(exited(exit::DEVICE_GONE)).contains("went away"));
        assert!(first_line(exited(exit::HOST_FAILED)).contains("the host failed"));
        assert!(first_line(exited(exit::ABORT)).contains("panic"));
        assert_eq!(first_line(exited(7)), "the guest ended with status 7");
    }

    #[test]
    fn a_forbidden_system_call_is_named() {
        let getpid = Report {
            syscall: 39,
            ..report(SIGSYS, 1)
        };
        assert_eq!(
            first_line(faulted(getpid)),
            "the guest was ended by SIGSYS at instruction 0x100abc: it made the forbidden system \
             call getpid (number 39)"
        );
        let unknown = Report {
            syscall: u32::MAX,
            ..report(SIGSYS, 1)
        };
        assert!(first_line(faulted(unknown)).ends_with("call number 4294967295"));
        assert!(first_line(killed(SIGSYS, None)).ends_with("it made a forbidden system call"));
    }

    #[test]
    fn a_fault_names_its_address() {
        let at = |address, code| Report {
            address,
            ..report(SIGSEGV, code)
        };
        assert!(first_line(faulted(at(8, 1))).ends_with("a null pointer to address 0x8"));
        assert!(first_line(faulted(at(1 << 40, 1))).contains("0x10000000000, where nothing is"));
        assert!(first_line(faulted(at(0x10_0000, 2))).contains("not allowed there"));
        assert!(first_line(faulted(at(0, 0x80))).contains("privileged instruction"));
        assert!(first_line(faulted(at(5, 99))).ends_with("address 0x5 (code 99)"));
    }

    /// A device that is a process is given the memory, and can take pages out of it.
    #[test]
    fn memory_that_was_taken_away_is_not_the_guests_fault() {
        let at = |address| Report {
            address,
            ..report(SIGBUS, 2)
        };
        let dma = first_line(faulted(at(abi::pci::DMA_BASE + 0x1000)));
        assert!(dma.contains("0x10000001000, DMA memory"), "{dma}");
        assert!(dma.contains("a process that is a device of its"), "{dma}");
        let registers = first_line(faulted(at(abi::pci::bar_address(3, 1))));
        assert!(registers.contains("of its PCI device 3"), "{registers}");
        assert!(first_line(faulted(at(0x10_0000))).ends_with("0x100000 (code 2)"));
        assert!(first_line(killed(SIGBUS, None)).contains("a device of its"));
    }

    #[test]
    fn a_caught_fault_and_a_deadly_one_read_alike() {
        let fault = report(SIGSEGV, 1);
        assert_eq!(killed(SIGSEGV, Some(fault)), faulted(fault));
        assert_eq!(faulted(fault).exit_status(), 139);
    }

    #[test]
    fn a_report_that_contradicts_the_kernel_is_not_believed() {
        let lie = Some(report(SIGSEGV, 1));
        assert_eq!(killed(SIGTERM, lie), Ending::Killed(SIGTERM));
        assert_eq!(
            Ending::new(ExitStatus::from_raw(7 << 8), lie),
            Ending::Exited(7)
        );
        let no_magic = Report {
            magic: 1,
            ..report(SIGSEGV, 1)
        };
        assert_eq!(killed(SIGSEGV, Some(no_magic)), Ending::Killed(SIGSEGV));
        assert_eq!(faulted(no_magic), Ending::Exited(139));
        for signal in [0, u32::MAX] {
            let other = Some(Report {
                signal,
                ..report(SIGSEGV, 1)
            });
            assert_eq!(killed(SIGSEGV, other), Ending::Killed(SIGSEGV));
            assert_eq!(
                Ending::new(ExitStatus::from_raw(128 << 8), other),
                Ending::Exited(128)
            );
        }
    }

    fn place(address: u64, function: Option<&str>) -> Place {
        Place {
            address,
            function: function.map(|name| (name.to_owned(), 4)),
        }
    }

    #[test]
    fn a_fault_shows_registers_and_callers() {
        let mut fault = report(SIGSEGV, 1);
        fault.registers[0] = 0xa;
        fault.registers[15] = 0xf;
        fault.flags = 0x246;
        let places = [place(0x10_0abc, Some("f")), place(0x10_0def, None)];
        let lines = faulted(fault).lines(Path::new("a.spt"), &places);
        assert_eq!(
            lines[1],
            "rax 0x000000000000000a  rbx 0x0000000000000000  rcx 0x0000000000000000  \
             rdx 0x0000000000000000"
        );
        assert!(lines[4].ends_with("r15 0x000000000000000f"), "{}", lines[4]);
        assert_eq!(
            lines[5..],
            [
                "flags 0x246",
                "  0x100abc in f + 0x4",
                "  0x100def",
                "to see the lines: addr2line -fipCe a.spt 0x100abc 0x100dee",
            ]
        );
    }

    #[test]
    fn a_panic_shows_its_callers() {
        let panic = Report {
            signal: 0,
            ..report(0, 0)
        };
        let ending = Ending::new(ExitStatus::from_raw(255 << 8), Some(panic));
        assert_eq!(ending.exit_status(), 255);
        let places = [place(0, None), place(0x10_0def, Some("main"))];
        assert_eq!(
            ending.lines(Path::new("a.spt"), &places)[1..],
            [
                "  0x100def in main + 0x4",
                "to see the lines: addr2line -fipCe a.spt 0x100dee",
            ]
        );
        let other = Ending::new(ExitStatus::from_raw(0), Some(panic));
        assert_eq!(other, Ending::Exited(0));
    }

    #[test]
    fn a_signal_from_outside_is_no_fault() {
        assert!(first_line(faulted(report(SIGSEGV, 0))).ends_with("sent by another process"));
        assert!(first_line(faulted(report(SIGTERM, -6))).ends_with("sent by another process"));
    }
}
