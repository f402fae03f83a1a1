//! The table of options: help, man page, completions and suggestions come from it.

use crate::suggest;

/// An option, as help, man page and completions show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// As it is typed, with names in capitals for what the user puts there.
    pub form: &'static str,
    /// What it does, in one sentence without a full stop.
    pub help: &'static str,
}

/// All options of the tender but `--help` and `--version`.
pub const CHOICES: &[Choice] = &[
    choice("--mem=MIB", "guest memory in MiB (default 512)"),
    choice("--net:NAME=IFACE", "attach the tap IFACE as network NAME"),
    choice(
        "--net:NAME=@FD",
        "attach the tap behind the open descriptor FD as network NAME",
    ),
    choice(
        "--net:NAME=macvtap:PARENT",
        "attach a macvtap made over the interface PARENT as network NAME",
    ),
    choice(
        "--net-mac:NAME=MAC",
        "MAC address of network NAME (default: random)",
    ),
    choice(
        "--net-mtu:NAME=BYTES",
        "MTU of link NAME (default 1500; 65535 if it carries sockets)",
    ),
    choice(
        "--net-offload:NAME=off",
        "no checksum or TCP segmentation offload on network NAME",
    ),
    choice(
        "--block:NAME=PATH",
        "attach the file or block device PATH as disk NAME",
    ),
    choice(
        "--block-sector-size:NAME=N",
        "bytes in a sector of disk NAME (default 512)",
    ),
    choice(
        "--block-read-only:NAME=on",
        "disk NAME is read and not written, by several guests at once if need be",
    ),
    choice(
        "--block-direct:NAME=on",
        "disk NAME passes the host's cache by (O_DIRECT)",
    ),
    choice(
        "--sockets:NAME=host",
        "process: attach the sockets of this network namespace as NAME",
    ),
    choice(
        "--pci:NAME=ADDRESS",
        "attach the PCI device ADDRESS, such as 0000:01:00.0, as NAME, by VFIO",
    ),
    choice(
        "--pci:NAME=vfio-user:SOCKET",
        "attach the software device behind SOCKET, or behind the open connection @FD, as NAME",
    ),
    choice(
        "--link:NAME=OWN,PEER,BELL,PEERBELL",
        "attach an end of a link as port NAME: open descriptors of its memory, of the other end's, \
         and of the events that wake them up",
    ),
    choice(
        "--state:NAME=@FD",
        "attach the memory behind the open descriptor FD as NAME",
    ),
    choice(
        "--poll=busy|interrupt",
        "how the guest waits for PCI devices: without ever sleeping, or asleep until one \
         interrupts (default: interrupt)",
    ),
    choice(
        "--create-taps",
        "make taps that do not exist; they vanish with the guest",
    ),
    choice(
        "--host=spt|hvt|process",
        "in a jail, in a virtual machine, or as a plain process for gdb and perf (default: spt or \
         hvt, as the image says)",
    ),
    choice(
        "--hugepages",
        "hvt: guest memory in reserved pages of 2 MiB",
    ),
    choice(
        "--dumpcore=DIR",
        "leave memory and registers of a guest that fails in DIR/core.outboard.PID, for gdb; \
         empty if it does not fail",
    ),
    choice(
        "--share=@FD|PATH",
        "file for what the guest is told and what it leaves behind",
    ),
    choice(
        "--event=@FD|PATH",
        "FIFO by which the guest is told that the file has changed",
    ),
    choice(
        "--standby=@FD|PATH",
        "load the image, and attach and begin once a byte comes out of this FIFO",
    ),
    choice(
        "--rules=FILE",
        "rules in nft's language, in place of those that the image has",
    ),
    choice(
        "--die-with-parent=PID",
        "end as soon as the parent, process PID, ends",
    ),
    choice(
        "--announce",
        "say on standard error what is attached, once the guest begins",
    ),
    choice(
        "--verbose",
        "say on standard error what PCI devices and DMA memory became",
    ),
];

const fn choice(form: &'static str, help: &'static str) -> Choice {
    Choice { form, help }
}

/// Columns of a help text.
const COLUMNS: usize = 100;
/// Where what an option does begins in its line.
const INDENT: usize = 32;

impl Choice {
    /// The option without name and value: `--net` of `--net:NAME=IFACE`.
    pub fn key(&self) -> &'static str {
        let end = self.form.find([':', '=']);
        end.map_or(self.form, |end| &self.form[..end])
    }

    /// Whether the name of a device or port is part of it.
    pub fn has_name(&self) -> bool {
        self.form[self.key().len()..].starts_with(':')
    }

    /// What is put behind the equals sign; `None` for an option without a value.
    pub fn value(&self) -> Option<&'static str> {
        self.form.split_once('=').map(|(_, value)| value)
    }
}

/// A help text's list of options.
pub fn list(choices: &[Choice]) -> String {
    let mut text = String::new();
    for choice in choices {
        let mut line = format!("  {:<width$}", choice.form, width = INDENT - 2);
        if line.len() > INDENT {
            text += &line;
            text.push('\n');
            line = " ".repeat(INDENT);
        }
        for word in choice.help.split(' ') {
            if line.len() + 1 + word.len() > COLUMNS {
                text += &line;
                text.push('\n');
                line = " ".repeat(INDENT);
            }
            if line.len() > INDENT {
                line.push(' ');
            }
            line += word;
        }
        text += &line;
        text.push('\n');
    }
    text
}

/// What is wrong with an option that is none of `choices`, and what to write instead. `next` is the
/// argument behind it.
pub fn correction<'a>(
    typed: &str,
    next: Option<&str>,
    choices: impl Iterator<Item = &'a Choice> + Clone,
) -> String {
    let key = &typed[..typed.find([':', '=']).unwrap_or(typed.len())];
    let rest = &typed[key.len()..];
    if let Some(choice) = choices.clone().find(|choice| choice.key() == key) {
        return correct_form(choice, key, rest, next);
    }
    // All are alike in the hyphens that they begin with.
    let bare = |key: &'a str| key.trim_start_matches('-');
    let keys = choices.clone().map(|choice| bare(choice.key()));
    let near = suggest::nearest(key.trim_start_matches('-'), keys);
    let meant = near.and_then(|near| choices.clone().find(|choice| bare(choice.key()) == near));
    match meant {
        Some(choice) => format!("did you mean {}?", choice.form),
        None => "type --help for a list".to_owned(),
    }
}

/// How to write an option that there is, and that lacks its name or its value, or has one too many.
fn correct_form(choice: &Choice, key: &str, rest: &str, next: Option<&str>) -> String {
    let value = match (choice.value(), rest.split_once('=')) {
        (None, _) => return format!("write {}", choice.form),
        (Some(_), Some((_, typed))) if !typed.is_empty() => typed,
        // The shell cut it off; what looks like another option is none.
        (Some(placeholder), _) => next
            .filter(|next| !next.starts_with('-'))
            .unwrap_or(placeholder),
    };
    let name = rest.split('=').next().unwrap_or_default();
    let name = match (choice.has_name(), name.len() > 1) {
        (true, true) => name,
        (true, false) => ":NAME",
        (false, _) => "",
    };
    format!("write {key}{name}={value}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_option_of_the_table_is_one() {
        for choice in CHOICES {
            let numbers = "OWN,PEER,BELL,PEERBELL";
            let typed = choice.form.replace(numbers, "5,6,7,8").replace("NAME", "a");
            let parsed = super::super::parse([typed.clone().into(), "a.spt".into()]);
            let unknown = matches!(parsed, Err(super::super::Error::Unknown { .. }));
            assert!(!unknown, "{typed}");
        }
    }

    #[test]
    fn forms_have_their_parts() {
        let parts = |form| {
            let choice = choice(form, "");
            (choice.key(), choice.has_name(), choice.value())
        };
        assert_eq!(parts("--net:NAME=IFACE"), ("--net", true, Some("IFACE")));
        assert_eq!(
            parts("--share=@FD|PATH"),
            ("--share", false, Some("@FD|PATH"))
        );
        let metrics = parts("--metrics=ADDRESS:PORT");
        assert_eq!(metrics, ("--metrics", false, Some("ADDRESS:PORT")));
        assert_eq!(parts("--verbose"), ("--verbose", false, None));
    }

    #[test]
    fn lists_are_wrapped() {
        let text = list(CHOICES);
        assert!(text.lines().all(|line| line.len() <= COLUMNS), "{text}");
        let first = "  --mem=MIB                     guest memory in MiB (default 512)\n";
        assert!(text.starts_with(first), "{text}");
        let wide = list(&[choice("--metrics=ADDRESS:PORT|unix:PATH", "serve it")]);
        let lines: Vec<_> = wide.lines().collect();
        assert_eq!(
            lines,
            [
                "  --metrics=ADDRESS:PORT|unix:PATH",
                &format!("{:32}serve it", "")
            ]
        );
    }

    #[test]
    fn what_is_no_option_is_corrected() {
        for (typed, next, correct) in [
            ("--memory=16", None, "did you mean --mem=MIB?"),
            ("--mem", Some("16"), "write --mem=16"),
            ("--mem", Some("--host=spt"), "write --mem=MIB"),
            ("--mem", None, "write --mem=MIB"),
            ("--mem:a=5", None, "write --mem=5"),
            ("--net=tap0", None, "write --net:NAME=tap0"),
            ("--net", Some("tap0"), "write --net:NAME=tap0"),
            ("--net:lan", Some("tap0"), "write --net:lan=tap0"),
            ("--verbose=yes", None, "write --verbose"),
            ("--hugepage", None, "did you mean --hugepages?"),
            ("--create-tap", None, "did you mean --create-taps?"),
            ("--nett:lan=tap0", None, "did you mean --net:NAME=IFACE?"),
            ("--qqq", None, "type --help for a list"),
            ("-", None, "type --help for a list"),
        ] {
            assert_eq!(correction(typed, next, CHOICES.iter()), correct, "{typed}");
        }
    }
}
