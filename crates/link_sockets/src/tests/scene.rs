//! An application, a link, a stack, and a peer that talks to the stack without a link.

use crate::{Allowed, Net, Orphans, Server, Table};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::net::{Ipv4Addr, SocketAddr};
use core::time::Duration;
use device::memory::{MemoryPort, Port, Wire};
use device::{Batch, Frame, HEADROOM, Netif, Offloads, Pool, WaitHandle};
use net::address::Prefix;
use net::arp::Detect;
use net::ethernet::Ethernet;
use net::ip::Ip;
use net::ipv4::{Ipv4, PACKET_MAX};
use net::ipv6::Ipv6;
use net::socket;
use net::stack::Stack;
use net::task::{Clock, Executor};
use net::tcp::Config;
use net::tcp::host::Tcp;
use net::tcp::identity::Secret;
use net::tcp::vault::{Shape, Vault};
use net::version::Addresses;
use ports::Instant;
use std::fs::File;
use std::os::unix::fs::FileExt;
use zerocopy::IntoBytes;

/// Turns of a test; more would be a storm.
const TURNS_MAX: usize = 50_000;
/// Memory for what has arrived.
pub const MEMORY: usize = 8 << 20;
/// How long a stack waits for applications of the one before.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a vault.
const VAULT: usize = 2 << 20;
/// Where the application is reached.
pub const PORT: u16 = 7;

/// A cable that can be pulled, and be left unread.
pub struct Plug {
    pub changes: Cell<u64>,
    pub is_full: Cell<bool>,
}

impl Plug {
    pub fn new() -> Rc<Self> {
        Rc::new(Self {
            changes: Cell::new(1),
            is_full: Cell::new(false),
        })
    }
}

/// A port with such a cable.
struct Cable {
    port: Port,
    plug: Rc<Plug>,
}

impl Netif for Cable {
    fn name(&self) -> &str {
        self.port.name()
    }

    fn mac(&self) -> [u8; 6] {
        self.port.mac()
    }

    fn mtu(&self) -> usize {
        self.port.mtu()
    }

    fn offloads(&self) -> Offloads {
        self.port.offloads()
    }

    fn alloc(&mut self, len: usize) -> Option<Frame> {
        (!self.plug.is_full.get()).then(|| self.port.alloc(len))?
    }

    fn receive(&mut self, batch: &mut Batch) {
        self.port.receive(batch);
    }

    fn transmit(&mut self, batch: &mut Batch) {
        self.port.transmit(batch);
    }

    fn wait_handle(&self) -> WaitHandle {
        self.port.wait_handle()
    }

    fn link_changes(&self) -> u64 {
        self.plug.changes.get()
    }
}

/// An end of a link, and what a test sees of it.
pub fn cable(mtu: usize, plug: &Rc<Plug>) -> (Box<dyn Netif>, Wire) {
    let (port, wire) = MemoryPort::new("link").with_mtu(mtu).split();
    let plug = plug.clone();
    (Box::new(Cable { port, plug }), wire)
}

/// An address of the stack's.
pub fn at(port: u16) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::new(10, 0, 0, 1).into(), port)
}

type Host = Rc<RefCell<Stack<Ipv4, Ipv6>>>;

fn tcp(random: u8) -> Tcp {
    Tcp::new(
        Config::default(),
        Secret::new([random; 16]),
        [2; 16],
        64 << 20,
    )
}

/// A host with the address 10.0.0.`n`.
fn host(n: u8, tcp: Tcp, now: Instant) -> (Host, Wire) {
    let buffer = PACKET_MAX + HEADROOM;
    let large = Pool::new(vec![0; 8 * buffer].leak(), buffer);
    let mut ipv4 = Ipv4::new(large, 1);
    let own = Prefix::new(Ipv4Addr::new(10, 0, 0, n), 24).unwrap();
    ipv4.add_address(own, Detect::Later, now);
    let (port, wire) = MemoryPort::new("net").with_index(n).split();
    let ip = Ip::new(Ethernet::new(Box::new(port)), ipv4, Ipv6::new(large, 1));
    (Rc::new(RefCell::new(Stack::new(ip, tcp, now))), wire)
}

fn stack() -> Host {
    host(1, tcp(1), Instant(0)).0
}

/// What outlives the stack: memory that holds its connections, and a host that they lead to.
struct Outliving {
    vault: (usize, usize),
    far: Host,
    wires: [Wire; 2],
}

/// TCP with a vault in which these bytes lie, and where that is.
fn kept(bytes: &[u8], random: u8, now: Instant) -> (Tcp, (usize, usize)) {
    let memory = vec![0_u32; VAULT / 4].leak().as_mut_bytes();
    memory[..bytes.len()].copy_from_slice(bytes);
    let place = (memory.as_ptr().addr(), memory.len());
    let shape = Shape {
        connections: 64,
        buffer_size: 2048,
    };
    let opened = Vault::open(memory, shape).unwrap();
    (tcp(random).with_vault(opened, now), place)
}

pub struct Scene {
    outliving: Option<Outliving>,
    pub table: Rc<RefCell<Table>>,
    pub server: Option<Server<socket::Net>>,
    stack: Host,
    pub executor: Executor,
    clock: Clock,
    now: Instant,
    wires: [Wire; 2],
    pub plug: Rc<Plug>,
    /// Whether there is an application.
    is_joined: bool,
    mtu: usize,
    sessions: u64,
}

impl Scene {
    pub fn new(mtu: usize) -> Self {
        Self::with(mtu, Allowed::all())
    }

    pub fn with(mtu: usize, allowed: Allowed) -> Self {
        let plug = Plug::new();
        let (here, wire_here) = cable(mtu, &plug);
        let (there, wire_there) = cable(mtu, &plug);
        let (stack, executor) = (stack(), Executor::new());
        let sockets = socket::Net::new(stack.clone());
        let orphans = Orphans::new(&sockets, 1, PATIENCE);
        let sockets = (sockets, executor.spawner(), orphans);
        let table = Table::new(here, MEMORY, 100, Instant(0));
        Self {
            outliving: None,
            table: Rc::new(RefCell::new(table)),
            server: Some(Server::new(there, sockets, allowed, MEMORY, 200)),
            stack,
            executor,
            clock: Clock::default(),
            now: Instant(1_000_000_000),
            wires: [wire_here, wire_there],
            plug,
            is_joined: true,
            mtu,
            sessions: 1000,
        }
    }

    /// Without an application.
    pub fn alone() -> Self {
        Self {
            is_joined: false,
            ..Self::new(65_535)
        }
    }

    /// With a stack whose connections outlive it, and a host at the other end of its port.
    pub fn kept(mtu: usize) -> Self {
        let mut scene = Self::new(mtu);
        let (far, far_wire) = host(2, tcp(9), Instant(0));
        let (tcp, vault) = kept(&[], 1, Instant(0));
        let (stack, wire) = host(1, tcp, Instant(0));
        scene.outliving = Some(Outliving {
            vault,
            far,
            wires: [wire, far_wire],
        });
        scene.begin_stack(stack);
        scene
    }

    /// The stack's image is killed, and another one begins with what it had.
    pub fn kill(&mut self) {
        self.pull();
        let outliving = self.outliving.as_mut().unwrap();
        let mut bytes = vec![0; outliving.vault.1];
        let memory = File::open("/proc/self/mem").unwrap();
        let at = outliving.vault.0 as u64;
        memory.read_exact_at(&mut bytes, at).unwrap();
        self.sessions += 1;
        // Secrets are new.
        let (tcp, vault) = kept(&bytes, self.sessions as u8, self.now);
        let (stack, wire) = host(1, tcp, self.now);
        outliving.vault = vault;
        outliving.wires[0] = wire;
        self.server = None;
        self.turns(3);
        self.begin_stack(stack);
        self.pull();
    }

    /// The stack's end of the link.
    pub fn wire(&self) -> &Wire {
        &self.wires[1]
    }

    /// The application's sockets.
    pub fn app(&self) -> Net {
        Net::new(self.table.clone())
    }

    /// Sockets of whoever talks to the application: the stack's own.
    pub fn far(&self) -> socket::Net {
        let far = self.outliving.as_ref().map(|outliving| &outliving.far);
        socket::Net::new(far.unwrap_or(&self.stack).clone())
    }

    pub fn server(&self) -> &Server<socket::Net> {
        self.server.as_ref().unwrap()
    }

    /// The image at one end ends: the other one sees the cable pulled.
    pub fn pull(&mut self) {
        self.plug.changes.set(self.plug.changes.get() + 1);
        for wire in &self.wires {
            wire.sent();
        }
    }

    /// Another application's image begins. What the former one has is never looked at again.
    pub fn other_app(&mut self) {
        let (port, wire) = cable(self.mtu, &self.plug);
        self.sessions += 1;
        let table = Table::new(port, MEMORY, self.sessions, self.now);
        self.table = Rc::new(RefCell::new(table));
        self.wires[0] = wire;
    }

    /// Another stack's image begins.
    pub fn other_stack(&mut self) {
        self.sessions += 1;
        self.begin_stack(stack());
    }

    fn begin_stack(&mut self, stack: Host) {
        let (port, wire) = cable(self.mtu, &self.plug);
        let sockets = socket::Net::new(stack.clone());
        self.stack = stack;
        let orphans = Orphans::new(&sockets, 1, PATIENCE);
        let sockets = (sockets, self.executor.spawner(), orphans);
        let server = Server::new(port, sockets, Allowed::all(), MEMORY, self.sessions);
        self.server = Some(server);
        self.wires[1] = wire;
    }

    pub fn turn(&mut self) {
        self.now = self.now + Duration::from_millis(1);
        self.clock.set(self.now);
        self.table.borrow_mut().receive(self.now);
        self.stack.borrow_mut().receive(self.now);
        if let Some(server) = &mut self.server {
            server.receive();
        }
        self.executor.run(64);
        self.table.borrow_mut().flush();
        self.stack.borrow_mut().send();
        if let Some(server) = &mut self.server {
            server.flush();
        }
        if let Some(Outliving { far, wires, .. }) = &self.outliving {
            far.borrow_mut().receive(self.now);
            far.borrow_mut().send();
            let (from_stack, from_far) = (wires[0].sent(), wires[1].sent());
            from_stack.iter().for_each(|frame| wires[1].arrives(frame));
            from_far.iter().for_each(|frame| wires[0].arrives(frame));
        }
        if !self.is_joined {
            return;
        }
        let [here, there] = &self.wires;
        let (from_here, from_there) = (here.sent(), there.sent());
        if self.plug.changes.get() % 2 == 1 {
            from_here.iter().for_each(|frame| there.arrives(frame));
            from_there.iter().for_each(|frame| here.arrives(frame));
        }
    }

    pub fn turns(&mut self, count: usize) {
        (0..count).for_each(|_| self.turn());
    }

    /// Until the task has ended; what it gives.
    pub fn run<T: 'static>(&mut self, task: impl Future<Output = T> + 'static) -> T {
        let ended = Rc::new(Cell::new(None));
        let end = ended.clone();
        self.executor
            .spawner()
            .spawn(async move { end.set(Some(task.await)) });
        for _ in 0..TURNS_MAX {
            if let Some(result) = ended.take() {
                return result;
            }
            self.turn();
        }
        panic!("it does not end");
    }
}

/// Bytes that tell their place.
pub fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|place| ((place * 31) >> 3) as u8).collect()
}
