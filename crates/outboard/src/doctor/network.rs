//! What networks are made of: `/dev/net/tun`, user namespaces, taps and their offloads.

use super::finding::{Finding, Verdict};
use super::machine::{self, Machine};
use super::probe::Probe;
use linux::namespace;
use linux::tap::{Tap, offload};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use testbed::privilege::Settings;

const DEVICE: &str = "/dev/net/tun";
/// Name of the taps that are tried, in a network where nothing else is.
const TAP: &str = "doctor0";
const PERMISSIONS: u32 = 0o7777;

/// `/dev/net/tun`.
#[derive(Clone, Debug)]
pub struct Device {
    /// Its mode; `None` if it does not exist.
    mode: Option<u32>,
    /// The kernel has the driver, whether or not there is a device file.
    driver: bool,
    /// Whether this user can open it.
    opened: Result<(), Errno>,
}

impl Device {
    /// That of this machine.
    pub fn observe() -> Self {
        let opened = fs::OpenOptions::new().read(true).write(true).open(DEVICE);
        Self {
            mode: fs::metadata(DEVICE)
                .ok()
                .map(|data| data.mode() & PERMISSIONS),
            driver: machine::has_driver("tun"),
            opened: opened.map(drop).map_err(|error| errno(&error)),
        }
    }
}

/// Whether taps can be opened.
pub fn device(device: &Device, machine: &Machine) -> Finding {
    let finding = |verdict, state, evidence: String| {
        Finding::new(DEVICE, verdict, state, evidence).good_for("guests with a network on taps")
    };
    let mode = device
        .mode
        .map_or("absent".to_owned(), |mode| format!("mode {mode:04o}"));
    match device.opened {
        Ok(()) if device.mode.is_some_and(|mode| mode & 0o006 != 0o006) => {
            let evidence = format!("{mode}, opened; not every user can");
            finding(Verdict::Ok, "usable", evidence)
        }
        Ok(()) => finding(Verdict::Ok, "usable", format!("{mode}, opened")),
        Err(Errno::ACCESS) => finding(
            Verdict::No,
            "forbidden",
            format!("{mode}: permission denied"),
        )
        .mend(format!("sudo chmod 0666 {DEVICE}")),
        Err(Errno::PERM) => {
            let evidence = format!("{mode}; a container needs --device={DEVICE}");
            finding(Verdict::No, "forbidden", evidence)
        }
        Err(Errno::NOENT) if device.driver => {
            let evidence =
                "a driver without a device file; a container needs --device=/dev/net/tun";
            finding(Verdict::No, "absent", evidence.into()).mend(format!(
                "sudo mkdir -p /dev/net && sudo mknod -m 0666 {DEVICE} c 10 200"
            ))
        }
        Err(error) if machine.modules => {
            finding(Verdict::No, "absent", format!("{mode}: {error}")).mend(machine.load("tun"))
        }
        Err(error) => {
            let evidence =
                format!("{mode}: {error}; this kernel needs CONFIG_TUN, and loads no modules");
            finding(Verdict::No, "absent", evidence)
        }
    }
}

/// The steps towards a tap in a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// A user namespace.
    User,
    /// To be root in it.
    Map,
    /// A network in it.
    Network,
    /// A tap in that.
    Tap,
}

/// A step that the kernel refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    step: Step,
    /// `errno`, or 0.
    code: i32,
    message: String,
}

impl From<namespace::Error> for Refusal {
    fn from(error: namespace::Error) -> Self {
        use namespace::Error::{Enter, Map, Open, UnshareNetwork, UnshareUser};
        let (step, source) = match &error {
            UnshareUser(source) => (Step::User, source),
            Map { source, .. } => (Step::Map, source),
            UnshareNetwork(source) | Open(source) | Enter(source) => (Step::Network, source),
        };
        Self {
            step,
            code: source.raw_os_error().unwrap_or_default(),
            message: error.to_string(),
        }
    }
}

/// Makes a tap with virtio-net headers in this thread's network.
fn make_tap() -> Result<Tap, Refusal> {
    Tap::create(TAP, true).map_err(|error| Refusal {
        step: Step::Tap,
        code: error.raw_os_error().unwrap_or_default(),
        message: format!("cannot make a tap: {error}"),
    })
}

/// Makes a tap as an ordinary user would, in a process for just that.
pub fn try_namespaces() -> Result<(), Refusal> {
    namespace::enter_user()?;
    namespace::unshare_network()?;
    make_tap().map(drop)
}

/// User namespaces of this machine.
#[derive(Clone, Debug)]
pub struct Namespaces {
    /// How far a process came; the other error is that of asking.
    tried: Result<Result<(), Refusal>, String>,
    settings: Settings,
}

impl Namespaces {
    /// Makes one.
    pub fn observe() -> Self {
        Self {
            tried: Probe::Namespaces.facts(),
            settings: Settings::read(),
        }
    }
}

/// Whether ordinary users can have networks.
pub fn namespaces(facts: &Namespaces) -> Finding {
    let finding = |verdict, state, evidence: String| {
        Finding::new("user namespaces", verdict, state, evidence)
            .good_for("networks without root: the demonstration, the tests, outboard send")
    };
    let refusal = match &facts.tried {
        Ok(Ok(())) => {
            let evidence = "a network and a tap were made in one".into();
            return finding(Verdict::Ok, "usable", evidence);
        }
        Ok(Err(refusal)) => refusal,
        Err(why) => return finding(Verdict::Warn, "unknown", why.clone()),
    };
    let Refusal {
        step,
        code,
        message,
    } = refusal;
    match (step, Errno::from_raw_os_error(*code)) {
        (Step::Tap, Errno::ACCESS | Errno::NOENT | Errno::NXIO | Errno::NODEV) => {
            let evidence = format!("a network was made in one, but {message}: see {DEVICE}");
            finding(Verdict::Warn, "no-tap", evidence)
        }
        (Step::User, Errno::INVAL | Errno::NOSYS) => {
            let evidence = format!("{message}: this kernel needs CONFIG_USER_NS");
            finding(Verdict::No, "absent", evidence)
        }
        (Step::User, _) => {
            let remedy = facts.settings.remedy();
            let container = match remedy {
                Some(_) => "",
                None => "; containers forbid it unless told otherwise",
            };
            finding(Verdict::No, "refused", format!("{message}{container}"))
                .mend(remedy.map(str::to_owned))
        }
        _ => finding(
            Verdict::No,
            "denied",
            format!("one was made, but {message}"),
        )
        .mend(facts.settings.remedy().map(str::to_owned)),
    }
}

/// Offloads of a tap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offloads {
    /// Checksums and segmentation of TCP.
    tcp: bool,
    /// Segmentation of UDP.
    udp: bool,
}

/// Sets them, in a process for just that.
pub fn try_offloads() -> Result<Offloads, Refusal> {
    if namespace::unshare_network().is_err() {
        namespace::enter_user()?;
        namespace::unshare_network()?;
    }
    let tap = make_tap()?;
    Ok(Offloads {
        tcp: tap.set_offloads(offload::ALL).is_ok(),
        udp: tap.set_offloads(offload::ALL | offload::USO).is_ok(),
    })
}

impl Offloads {
    /// Those of this machine; the other error is that of asking.
    pub fn observe() -> Result<Result<Self, Refusal>, String> {
        Probe::Offloads.facts()
    }
}

/// Whether taps carry large frames.
pub fn offloads(tried: &Result<Result<Offloads, Refusal>, String>) -> Finding {
    let finding = |verdict, state, evidence: String| {
        Finding::new("tap offloads", verdict, state, evidence)
            .good_for("TCP in frames of up to 64 KiB, at several times the speed")
    };
    match tried {
        Ok(Ok(Offloads { tcp: true, udp })) => {
            let udp = if *udp { " and of UDP" } else { "" };
            let evidence = format!("virtio-net headers, checksums, segmentation of TCP{udp}");
            finding(Verdict::Ok, "usable", evidence)
        }
        Ok(Ok(Offloads { tcp: false, .. })) => {
            let evidence = "virtio-net headers, but no segmentation of TCP".into();
            finding(Verdict::No, "absent", evidence)
        }
        Ok(Err(refusal))
            if (refusal.step, refusal.code) == (Step::Tap, Errno::INVAL.raw_os_error()) =>
        {
            finding(
                Verdict::No,
                "absent",
                "taps have no virtio-net headers".into(),
            )
        }
        Ok(Err(refusal)) => {
            let evidence = format!("not known: {}", refusal.message);
            finding(Verdict::Warn, "unknown", evidence)
        }
        Err(why) => finding(Verdict::Warn, "unknown", format!("not known: {why}")),
    }
}

/// The kernel's number of an error; that of "other" stands for none.
fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::{cloud, server};
    use super::*;

    fn tun(mode: Option<u32>, driver: bool, opened: Result<(), Errno>) -> Device {
        Device {
            mode,
            driver,
            opened,
        }
    }

    #[test]
    fn each_reason_for_no_tap_has_its_command() {
        let judge = |facts: &Device| device(facts, &server());
        assert_eq!(
            judge(&tun(Some(0o666), true, Ok(()))).evidence,
            "mode 0666, opened"
        );
        let root = judge(&tun(Some(0o600), true, Ok(())));
        assert_eq!(root.verdict, Verdict::Ok);
        assert!(root.evidence.contains("not every user"));
        let cases = [
            (
                tun(Some(0o600), true, Err(Errno::ACCESS)),
                "sudo chmod 0666 /dev/net/tun",
            ),
            (tun(None, false, Err(Errno::NOENT)), "sudo modprobe tun"),
            (
                tun(Some(0o666), false, Err(Errno::NODEV)),
                "sudo modprobe tun",
            ),
            (
                tun(None, true, Err(Errno::NOENT)),
                "sudo mkdir -p /dev/net && sudo mknod -m 0666 /dev/net/tun c 10 200",
            ),
        ];
        for (facts, remedy) in cases {
            let finding = judge(&facts);
            assert_eq!(finding.verdict, Verdict::No);
            assert_eq!(finding.remedy.unwrap(), remedy);
        }
        let container = judge(&tun(Some(0o666), true, Err(Errno::PERM)));
        assert!(container.evidence.contains("--device=/dev/net/tun"));
        let none = device(&tun(None, false, Err(Errno::NOENT)), &cloud());
        assert_eq!(none.remedy, None);
        assert!(none.evidence.contains("CONFIG_TUN"));
    }

    fn refused(step: Step, error: Errno) -> Refusal {
        Refusal {
            step,
            code: error.raw_os_error(),
            message: format!("cannot: {error}"),
        }
    }

    fn judge(tried: Result<(), Refusal>, settings: Settings) -> Finding {
        let facts = Namespaces {
            tried: Ok(tried),
            settings,
        };
        namespaces(&facts)
    }

    #[test]
    fn a_namespace_that_is_good_for_nothing_is_not_good() {
        let ubuntu = Settings {
            apparmor: Some(1),
            ..Settings::default()
        };
        for step in [Step::Map, Step::Network, Step::Tap] {
            let finding = judge(Err(refused(step, Errno::PERM)), ubuntu);
            assert_eq!((finding.verdict, finding.state), (Verdict::No, "denied"));
            let remedy = "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0";
            assert_eq!(finding.remedy.unwrap(), remedy);
        }
        assert_eq!(judge(Ok(()), ubuntu).verdict, Verdict::Ok);
    }

    #[test]
    fn the_setting_that_forbids_is_mended() {
        let debian = Settings {
            clone: Some(0),
            ..Settings::default()
        };
        let finding = judge(Err(refused(Step::User, Errno::PERM)), debian);
        let remedy = "sudo sysctl kernel.unprivileged_userns_clone=1";
        assert_eq!(finding.remedy.unwrap(), remedy);
        let container = judge(Err(refused(Step::User, Errno::PERM)), Settings::default());
        assert_eq!(container.remedy, None);
        assert!(container.evidence.contains("containers"));
        let kernel = judge(Err(refused(Step::User, Errno::INVAL)), Settings::default());
        assert_eq!(kernel.state, "absent");
    }

    #[test]
    fn a_device_file_is_not_the_namespaces_fault() {
        let finding = judge(Err(refused(Step::Tap, Errno::ACCESS)), Settings::default());
        assert_eq!((finding.verdict, finding.state), (Verdict::Warn, "no-tap"));
        assert!(finding.evidence.contains("see /dev/net/tun"));
    }

    #[test]
    fn offloads_that_could_not_be_tried_are_not_denied() {
        let tried = |tcp, udp| Ok(Ok(Offloads { tcp, udp }));
        assert!(offloads(&tried(true, true)).evidence.contains("UDP"));
        assert_eq!(offloads(&tried(true, false)).verdict, Verdict::Ok);
        assert_eq!(offloads(&tried(false, false)).verdict, Verdict::No);
        let old = offloads(&Ok(Err(refused(Step::Tap, Errno::INVAL))));
        assert_eq!(old.state, "absent");
        for unknown in [
            Ok(Err(refused(Step::Tap, Errno::ACCESS))),
            Err("late".into()),
        ] {
            assert_eq!(offloads(&unknown).state, "unknown");
        }
    }
}
