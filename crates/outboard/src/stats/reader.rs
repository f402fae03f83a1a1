//! Takes snapshots of one instance.

use super::Error;
use super::raw::Raw;
use super::snapshot::{Names, PortName, Snapshot};
use abi::manifest::{Entry, kind};
use std::os::fd::OwnedFd;
use tender::options::{Net, NetSource};

/// Takes snapshots of one instance.
#[derive(Debug)]
pub struct Reader {
    share: OwnedFd,
    ports: Vec<PortName>,
}

impl Reader {
    /// Of the instance with this shared file and these ports.
    pub fn new(share: OwnedFd, ports: Vec<PortName>) -> Self {
        Self { share, ports }
    }

    /// What it has counted so far.
    ///
    /// # Errors
    /// The shared file cannot be read.
    pub fn snapshot(&mut self) -> Result<Snapshot, Error> {
        let raw = Raw::read(&self.share)?;
        Ok(Snapshot::new(&raw, &self.ports, &Names::BuiltIn))
    }
}

/// The network ports of an image with this manifest, attached to `nets`.
pub fn ports(manifest: &[Entry], nets: &[Net]) -> Vec<PortName> {
    let port = |(index, entry): (usize, &Entry)| {
        let name = entry.name().filter(|_| entry.kind == kind::NET_BASIC)?;
        let net = nets.iter().find(|net| net.name == name);
        let interface = net.and_then(|net| match &net.source {
            NetSource::Tap(interface) => Some(interface.clone()),
            NetSource::Macvtap(parent) => Some(format!("macvtap:{parent}")),
            NetSource::Descriptor(_) => None,
        });
        Some(PortName {
            name: name.to_owned(),
            index,
            interface,
        })
    };
    manifest.iter().enumerate().filter_map(port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tender::options::{Request, parse};

    #[test]
    fn ports_are_the_manifests_in_its_order() {
        let line = "--net:lan=tap3 --net:wan=@7 --net:up=macvtap:eth0 --block:d=f x";
        let Ok(Request::Start(options)) = parse(line.split(' ').map(Into::into)) else {
            panic!("{line}");
        };
        let manifest = [
            Entry::RESERVED,
            Entry::new("wan", kind::NET_BASIC).unwrap(),
            Entry::new("d", kind::BLOCK_BASIC).unwrap(),
            Entry::new("lan", kind::NET_BASIC).unwrap(),
            Entry::new("up", kind::NET_BASIC).unwrap(),
        ];
        let found: Vec<_> = ports(&manifest, &options.nets)
            .into_iter()
            .map(|port| (port.name, port.index, port.interface))
            .collect();
        let port = |name: &str, index, interface: Option<&str>| {
            (name.to_owned(), index, interface.map(str::to_owned))
        };
        let expected = [
            port("wan", 1, None),
            port("lan", 3, Some("tap3")),
            port("up", 4, Some("macvtap:eth0")),
        ];
        assert_eq!(found, expected);
    }
}
