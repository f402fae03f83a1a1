//! What several checks want to know of the machine.

use std::fs;
use std::path::Path;
use tender::hvt::device::can_virtualise;

/// Who made the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    /// Intel.
    Intel,
    /// AMD, or Hygon.
    Amd,
    /// Somebody else.
    Other,
}

/// A machine, as far as advice depends on it.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Who made the processor.
    pub vendor: Vendor,
    /// It is a virtual one.
    pub virtual_machine: bool,
    /// Its processor can run virtual machines.
    pub virtualisation: bool,
    /// The kernel can load modules.
    pub modules: bool,
    /// The command line of the kernel.
    pub command_line: String,
    /// It is configured by Debian's `update-grub`.
    pub grub: bool,
}

/// Whether the kernel has the driver `name` of a device of its own, with or without device file.
pub fn has_driver(name: &str) -> bool {
    let drivers = fs::read_to_string("/proc/misc").unwrap_or_default();
    let mut names = drivers
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1));
    names.any(|other| other == name)
}

impl Machine {
    /// This one.
    pub fn observe() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let kernel = rustix::system::uname();
        let folder = Path::new("/lib/modules").join(&*kernel.release().to_string_lossy());
        Self::parse(
            &read("/proc/cpuinfo"),
            &read("/proc/cmdline"),
            folder.exists() && Path::new("/proc/modules").exists(),
            Path::new("/etc/default/grub").exists(),
        )
    }

    fn parse(cpuinfo: &str, command_line: &str, modules: bool, grub: bool) -> Self {
        let field = |name| {
            let mut lines = cpuinfo.lines();
            let line = lines.find_map(|line| line.strip_prefix(name)?.split_once(':'));
            line.map_or("", |(_, value)| value.trim())
        };
        let has = |flag| field("flags").split(' ').any(|other| other == flag);
        Self {
            vendor: match field("vendor_id") {
                "GenuineIntel" => Vendor::Intel,
                "AuthenticAMD" | "HygonGenuine" => Vendor::Amd,
                _ => Vendor::Other,
            },
            virtual_machine: has("hypervisor"),
            virtualisation: can_virtualise(cpuinfo),
            modules,
            command_line: command_line.trim().to_owned(),
            grub,
        }
    }

    /// The command that loads a module, if the kernel loads any.
    pub fn load(&self, module: &str) -> Option<String> {
        self.modules.then(|| format!("sudo modprobe {module}"))
    }

    /// Whether the kernel was started with this word on its command line.
    pub fn booted_with(&self, word: &str) -> bool {
        let mut words = self.command_line.split_ascii_whitespace();
        words.any(|other| other == word)
    }

    /// The command that puts `words` on the kernel's command line.
    pub fn boot_with(&self, words: &str) -> Option<String> {
        self.grub.then(|| {
            format!(
                "sudo sed -i 's|^GRUB_CMDLINE_LINUX=\"|&{words} |' /etc/default/grub && \
                 sudo update-grub   # then restart"
            )
        })
    }

    /// The command that takes `word` off it.
    pub fn boot_without(&self, word: &str) -> Option<String> {
        self.grub.then(|| {
            format!(
                "sudo sed -i 's| *{word}||' /etc/default/grub && sudo update-grub   # then restart"
            )
        })
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A server with an Intel processor, modules and Debian.
    pub fn server() -> Machine {
        let cpuinfo = "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu vmx sse2\n";
        Machine::parse(
            cpuinfo,
            "BOOT_IMAGE=/vmlinuz root=/dev/sda1 quiet\n",
            true,
            true,
        )
    }

    /// A virtual machine of a cloud: no modules, no boot loader, no virtualisation.
    pub fn cloud() -> Machine {
        let cpuinfo = "vendor_id\t: AuthenticAMD\nflags\t\t: fpu sse2 hypervisor\n";
        Machine::parse(cpuinfo, "console=ttyS0 nomodule", false, false)
    }

    #[test]
    fn a_machine_is_read_off_its_files() {
        let server = server();
        assert_eq!(server.vendor, Vendor::Intel);
        assert!(server.virtualisation && !server.virtual_machine);
        assert!(server.booted_with("quiet") && !server.booted_with("qui"));
        let cloud = cloud();
        assert_eq!(cloud.vendor, Vendor::Amd);
        assert!(!cloud.virtualisation && cloud.virtual_machine);
        let nothing = Machine::parse("", "", false, false);
        assert_eq!(nothing.vendor, Vendor::Other);
    }

    #[test]
    fn commands_fit_the_machine() {
        assert_eq!(server().load("tun").unwrap(), "sudo modprobe tun");
        assert_eq!(cloud().load("tun"), None);
        assert!(
            server()
                .boot_with("iommu=pt")
                .unwrap()
                .contains("|&iommu=pt |")
        );
        assert_eq!(cloud().boot_with("iommu=pt"), None);
    }
}
