//! What processes that were killed leave behind.

use rustix::io::Errno;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::{fs, io};

/// Makes room for a socket at `path`, where nobody listens: removes that of a process that has
/// ended, if it is there.
///
/// # Errors
/// `EADDRINUSE` if another kind of file is there, which is somebody's; what the kernel says.
pub fn remove_socket(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path),
        Ok(_) => Err(Errno::ADDRINUSE.into()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use crate::vfio_user::Server;
    use crate::wire::SocketWire;
    use std::os::unix::net::UnixListener;
    use std::{fs, io};

    #[test]
    fn only_sockets_make_room() {
        let name = format!("outboard-stale-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, "somebody's").unwrap();
        let server = Server::bind(&path).unwrap_err();
        let wire = SocketWire::open(&path).unwrap_err();
        for error in [server, wire] {
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{error}");
        }
        assert_eq!(fs::read(&path).unwrap(), b"somebody's");
        fs::remove_file(&path).unwrap();
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(Server::bind(&path).unwrap());
        drop(UnixListener::bind(&path).unwrap());
        drop(SocketWire::open(&path).unwrap());
        assert!(!path.exists());
    }
}
