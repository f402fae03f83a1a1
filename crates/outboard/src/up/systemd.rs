//! `outboard up --systemd`: a unit for a system, in the shape of `packaging/outboard@.service`.

use std::path::Path;

/// How often systemd wants to hear of a supervisor, in seconds.
const WATCHDOG_SECONDS: u32 = 10;

/// The unit. The supervisor's own end ends no component: systemd starts it again, and it takes them
/// over.
pub fn unit(file: &Path) -> String {
    let program = std::env::current_exe().unwrap_or_else(|_| "/usr/bin/outboard".into());
    format!(
        "# Written by: outboard up --systemd {file}\n\
         [Unit]\n\
         Description=Outboard components of {file}\n\
         After=network.target\n\
         \n\
         [Service]\n\
         Type=notify\n\
         NotifyAccess=main\n\
         WatchdogSec={WATCHDOG_SECONDS}\n\
         ExecStart={program} up {file}\n\
         # Other commands find the components here: sudo outboard ps.\n\
         RuntimeDirectory=outboard\n\
         RuntimeDirectoryPreserve=yes\n\
         # It ends its components itself; they outlive its own failure.\n\
         KillMode=process\n\
         Restart=on-failure\n\
         RestartSec=0\n\
         # limits.cpu and limits.memory are those of groups beside its own (systemd 254).\n\
         Delegate=cpu memory\n\
         DelegateSubgroup=supervisor\n\
         NoNewPrivileges=yes\n\
         ProtectSystem=strict\n\
         ProtectHome=read-only\n\
         ProtectKernelModules=yes\n\
         ProtectKernelTunables=yes\n\
         LockPersonality=yes\n\
         RestrictNamespaces=yes\n\
         RestrictRealtime=yes\n\
         RestrictSUIDSGID=yes\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n",
        file = specifier(file),
        program = specifier(&program),
    )
}

/// A path as a unit has it (systemd.unit(5), "Specifiers"; systemd.service(5), "Command lines").
fn specifier(path: &Path) -> String {
    let path = path.display().to_string();
    let escaped = path
        .replace('\\', "\\\\")
        .replace('%', "%%")
        .replace('$', "$$");
    let escaped = escaped.replace('"', "\\\"");
    match escaped.contains(char::is_whitespace) {
        true => format!("\"{escaped}\""),
        false => escaped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_one_word() {
        assert_eq!(specifier(Path::new("/etc/a.toml")), "/etc/a.toml");
        assert_eq!(specifier(Path::new("/a b/50%$x")), "\"/a b/50%%$$x\"");
        let unit = unit(Path::new("/etc/outboard/site.toml"));
        assert!(unit.contains(" up /etc/outboard/site.toml\n"), "{unit}");
        assert!(unit.contains("Type=notify\n"), "{unit}");
    }
}
