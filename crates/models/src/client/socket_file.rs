//! Files of sockets that were left by processes which were killed.

use rustix::io::Errno;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::{fs, io};

/// Removes the file of a socket at `path`, where nobody listens any more, so that another one can
/// be bound there; does nothing if there is no file.
///
/// # Errors
/// `EADDRINUSE` if another kind of file is there, which is somebody's; what the kernel says.
pub fn remove_abandoned(path: &Path) -> io::Result<()> {
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
    fn only_sockets_are_removed() {
        let name = format!("outboard-socket-file-{}", std::process::id());
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
