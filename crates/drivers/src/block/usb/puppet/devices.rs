//! What is behind the ports: hubs, disks, and what is neither.

use super::disk::Disk;
use alloc::vec;
use alloc::vec::Vec;

/// What is at a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// Nothing.
    Empty,
    /// The disk, as fast as this number says (xHCI 1.2, 7.2.2.1.1).
    Disk(u8),
    /// Something that is of no use.
    Keyboard,
    /// A hub as fast as this, and what is behind it.
    Hub(u8, Vec<Node>),
}

/// A device.
#[derive(Clone, Debug)]
pub struct Device {
    pub speed: u8,
    root: u8,
    route: u32,
    depth: u32,
    pub is_enabled: bool,
    class: u8,
    /// Which of its ports have something, and how fast that is.
    ports: Vec<Option<u8>>,
    /// Changes of its ports.
    changes: Vec<u16>,
    /// Ports that were reset.
    enabled: Vec<bool>,
    /// The port that it was told to reset: where that is.
    pub resets_port: Option<(u8, u32)>,
}

/// All devices of these ports.
pub fn tree(ports: &[Node]) -> Vec<Device> {
    let mut found = Vec::new();
    for (index, node) in ports.iter().enumerate() {
        add(&mut found, node, index as u8 + 1, 0, 0);
    }
    found
}

fn add(found: &mut Vec<Device>, node: &Node, root: u8, route: u32, depth: u32) {
    let (speed, class, behind) = match node {
        Node::Empty => return,
        Node::Disk(speed) => (*speed, 0, &[][..]),
        Node::Keyboard => (1, 3, &[][..]),
        Node::Hub(speed, behind) => (*speed, 9, &behind[..]),
    };
    let ports: Vec<_> = behind
        .iter()
        .map(|node| match node {
            Node::Empty => None,
            Node::Disk(speed) | Node::Hub(speed, _) => Some(*speed),
            Node::Keyboard => Some(1),
        })
        .collect();
    let count = ports.len();
    found.push(Device {
        speed,
        root,
        route,
        depth,
        is_enabled: false,
        class,
        ports,
        changes: vec![1; count],
        enabled: vec![false; count],
        resets_port: None,
    });
    for (index, node) in behind.iter().enumerate() {
        let route = route | (index as u32 + 1) << (4 * depth);
        add(found, node, root, route, depth + 1);
    }
}

impl Device {
    /// Whether it is there.
    pub fn is_at(&self, root: u8, route: u32) -> bool {
        (self.root, self.route) == (root, route)
    }

    pub fn reset(&mut self) {
        self.is_enabled = self.depth == 0 && self.speed >= 4;
        self.enabled.fill(false);
    }

    /// What it answers to a request; `None` is a stall.
    pub fn ask(&mut self, request: [u8; 8], disk: &Disk) -> Option<Vec<u8>> {
        let [kind, number, value, high, index, _, length, more] = request;
        let answer = match (kind, number) {
            (0x80, 6) => self.descriptor(high, value, disk)?,
            (0x00, 9) | (0x02, 1) => Vec::new(),
            (0x20, 12) if self.class == 9 => Vec::new(),
            (0xa0, 6) if self.class == 9 => {
                let kind = if self.speed >= 4 { 0x2a } else { 0x29 };
                vec![9, kind, self.ports.len() as u8, 0x60, 0, 1, 0, 0, 0xff]
            }
            (0xa3, 0) => self.status(index)?,
            (0x23, _) => self.feature(number, value, index)?,
            (0xa1, 0xfe) => vec![0],
            _ => return None,
        };
        let most = usize::from(length) | usize::from(more) << 8;
        Some(answer[..answer.len().min(most)].to_vec())
    }

    fn descriptor(&self, kind: u8, index: u8, disk: &Disk) -> Option<Vec<u8>> {
        let packet = match self.speed {
            1 => 64,
            3 => 64,
            _ => 9,
        };
        match kind {
            1 => {
                let mut bytes = vec![18, 1, 0, 2, self.class, 0, 0, packet];
                bytes.extend([0x34, 0x12, 0x78, 0x56, 0, 1, 1, 2, 3, 1]);
                Some(bytes)
            }
            2 => Some(self.configuration()),
            3 if index == 3 => Some(disk.serial.clone()),
            _ => None,
        }
    }

    fn configuration(&self) -> Vec<u8> {
        let mut bytes = vec![9, 2, 0, 0, 1, 1, 0, 0x80, 50];
        if self.class == 0 {
            let packet: u16 = match self.speed {
                1 => 64,
                3 => 512,
                _ => 1024,
            };
            let [low, high] = packet.to_le_bytes();
            bytes.extend([9, 4, 0, 0, 2, 8, 6, 0x50, 0]);
            for address in [0x81, 0x02] {
                bytes.extend([7, 5, address, 2, low, high, 0]);
                if self.speed >= 4 {
                    bytes.extend([6, 0x30, 15, 0, 0, 0]);
                }
            }
        } else {
            bytes.extend([9, 4, 0, 0, 1, self.class, 1, 0, 0, 7, 5, 0x81, 3, 8, 0, 10]);
        }
        bytes[2] = bytes.len() as u8;
        bytes
    }

    fn status(&self, port: u8) -> Option<Vec<u8>> {
        let port = usize::from(port).checked_sub(1)?;
        let mut status: u16 = 1 << 8;
        if let Some(speed) = self.ports.get(port)? {
            status |= 1;
            status |= u16::from(self.enabled[port]) << 1;
            status |= u16::from(*speed == 3) << 10;
        }
        let ([a, b], [c, d]) = (status.to_le_bytes(), self.changes[port].to_le_bytes());
        Some(vec![a, b, c, d])
    }

    fn feature(&mut self, number: u8, feature: u8, port: u8) -> Option<Vec<u8>> {
        let index = usize::from(port).checked_sub(1)?;
        let changes = self.changes.get_mut(index)?;
        match (number, feature) {
            (1, 16..=20) => *changes &= !(1 << (feature - 16)),
            (3, 4) => {
                *changes |= 1 << 4;
                self.enabled[index] = true;
                let route = self.route | u32::from(port) << (4 * self.depth);
                self.resets_port = Some((self.root, route));
            }
            _ => {}
        }
        Some(Vec::new())
    }

    /// What was at one of its ports is taken out, or was for a moment.
    pub fn disturb(&mut self, port: usize, stays: bool) {
        self.changes[port] |= 1;
        if !stays {
            self.ports[port] = None;
        }
    }
}
