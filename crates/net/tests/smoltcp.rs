//! Our stack and smoltcp's, with a bad network between them, all from one seed. Whatever the
//! network does, each byte that is read was written there, and both ends learn of the end.
//!
//! `OUTBOARD_SEEDS=a..b` runs other seeds.

use core::cell::{Cell, RefCell};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use core::time::Duration;
use device::memory::{MemoryPort, Wire};
use device::{FRAME_BYTES_MAX, HEADROOM, Pool};
use fastrand::Rng;
use net::address::Prefix;
use net::arp::Detect;
use net::ethernet::Ethernet;
use net::ip::Ip;
use net::ipv4::Ipv4;
use net::ipv6::Ipv6;
use net::layers::faults::{Faults, MILLION, Settings};
use net::socket::{Listener, Net, Sockets, Stream};
use net::stack::Stack;
use net::task::Executor;
use net::tcp::Config;
use net::tcp::host::Tcp;
use net::tcp::identity::Secret;
use net::version::Addresses;
use ports::Instant;
use smoltcp::iface::{Config as Settled, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Checksum, ChecksumCapabilities, Device, DeviceCapabilities, Medium};
use smoltcp::socket::tcp;
use smoltcp::time::Instant as Time;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr};
use std::collections::VecDeque;
use std::rc::Rc;

/// Runs in a plain `cargo test`.
const RUNS: u64 = 400;
const PORT: u16 = 7000;
/// A transfer that takes longer has stopped: smoltcp waits for up to a minute before it repeats.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Turns of one run; more would be a storm.
const TURNS_MAX: u32 = 2_000_000;
const LARGE: usize = 4;

thread_local! {
    /// Memory of pools is never given back, so that all runs share it.
    static SMALL: Pool = pool(512, 2048);
    static HUGE: Pool = pool(128, HEADROOM + FRAME_BYTES_MAX);
    static PACKETS: Pool = pool(LARGE, HEADROOM + 40 + 65_535);
}

fn pool(count: usize, size: usize) -> Pool {
    Pool::new(vec![0; count * size].leak(), size)
}

/// What a byte is at this place of a stream.
fn byte(key: u8, place: usize) -> u8 {
    ((place as u32).wrapping_mul(0x9e37_79b1) >> 24) as u8 ^ key
}

const FROM_OURS: u8 = 0x55;
const FROM_THEIRS: u8 = 0xaa;

/// What a seed chooses.
struct Plan {
    settings: Settings,
    tso: bool,
    ipv6: bool,
    /// Whether smoltcp connects to us, and not we to it.
    we_listen: bool,
    /// Bytes that we send, and smoltcp.
    sizes: [usize; 2],
    /// smoltcp's buffers.
    buffers: [usize; 2],
    our_window: u32,
}

impl Plan {
    fn of(rng: &mut Rng) -> Self {
        let share = |rng: &mut Rng, most: u32| if rng.bool() { rng.u32(..most) } else { 0 };
        let settings = Settings {
            drop: share(rng, MILLION / 20),
            duplicate: share(rng, MILLION / 20),
            corrupt: share(rng, MILLION / 50),
            reorder: share(rng, MILLION / 20),
            delay: Duration::from_millis(rng.u64(..40)),
            jitter: Duration::from_millis(share(rng, 10).into()),
            late: Duration::from_millis(rng.u64(1..30)),
        };
        let size = |rng: &mut Rng| *rng.choice(&[0, 1, 1460, 5000, 60_000, 200_000]).unwrap();
        let buffer = |rng: &mut Rng| *rng.choice(&[600, 4096, 20_000, 65_535, 200_000]).unwrap();
        Self {
            settings,
            tso: rng.bool(),
            ipv6: rng.bool(),
            we_listen: rng.bool(),
            sizes: [size(rng), size(rng)],
            buffers: [buffer(rng), buffer(rng)],
            our_window: *rng.choice(&[2000, 20_000, 65_535, 300_000]).unwrap(),
        }
    }

    fn address(&self, host: u8) -> IpAddr {
        match self.ipv6 {
            true => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host.into()).into(),
            false => Ipv4Addr::new(10, 0, 0, host).into(),
        }
    }
}

/// Our side: a stack, and the task that uses it.
struct Ours {
    stack: Rc<RefCell<Stack<Ipv4, Ipv6>>>,
    executor: Executor,
    wire: Wire,
    clock: Rc<Cell<Instant>>,
    late: net::layers::faults::Alarm,
    done: Rc<Cell<bool>>,
}

impl Ours {
    fn new(seed: u64, plan: &Plan, now: Instant) -> Self {
        let port = MemoryPort::over("net", SMALL.with(|pool| *pool)).with_index(1);
        let port = match plan.tso {
            true => port.with_tso_over(HUGE.with(|pool| *pool)),
            false => port,
        };
        let (port, wire) = port.split();
        let clock = Rc::new(Cell::new(now));
        let time = clock.clone();
        let faults = Faults::new(Box::new(port), seed, move || time.get())
            .sending(plan.settings)
            .receiving(plan.settings);
        let late = faults.alarm();
        let large = PACKETS.with(|pool| *pool);
        let (mut v4, mut v6) = (Ipv4::new(large, seed), Ipv6::new(large, seed));
        match plan.address(1) {
            IpAddr::V4(own) => {
                v4.add_address(Prefix::new(own, 24).unwrap(), Detect::Later, now);
            }
            IpAddr::V6(own) => {
                v6.add_address(Prefix::new(own, 64).unwrap(), Detect::Later, now);
            }
        }
        let ip = Ip::new(Ethernet::new(Box::new(faults)), v4, v6);
        let config = Config {
            receive: plan.our_window,
            receive_max: plan.our_window,
            // smoltcp needs its time.
            patience: PATIENCE,
            ..Config::default()
        };
        let tcp = Tcp::new(config, Secret::new([seed as u8; 16]), [9; 16], 1 << 24);
        let ours = Self {
            stack: Rc::new(RefCell::new(Stack::new(ip, tcp, now))),
            executor: Executor::new(),
            wire,
            clock,
            late,
            done: Rc::default(),
        };
        ours.start(plan);
        ours
    }

    /// Starts the task that opens, writes, reads and ends.
    fn start(&self, plan: &Plan) {
        let net = Net::new(self.stack.clone());
        let [send, receive] = plan.sizes;
        let remote = SocketAddr::new(plan.address(2), PORT);
        let listener = plan.we_listen.then(|| {
            let local = SocketAddr::new(plan.address(1), PORT);
            net.listen(local, 4).unwrap()
        });
        let (done, spawner) = (self.done.clone(), self.executor.spawner());
        let writes = spawner.clone();
        spawner.spawn(async move {
            let stream = match listener {
                Some(mut listener) => listener.accept().await.unwrap(),
                None => net.connect(remote).await.unwrap(),
            };
            let (mut reader, mut writer) = stream.split();
            writes.spawn(async move {
                let bytes: Vec<u8> = (0..send).map(|at| byte(FROM_OURS, at)).collect();
                for piece in bytes.chunks(10_000) {
                    writer.write(piece).await.unwrap();
                }
                writer.shutdown();
            });
            let (mut at, mut place) = (0, [0; 3000]);
            loop {
                let count = reader.read(&mut place).await.unwrap();
                if count == 0 {
                    break;
                }
                for byte_read in &place[..count] {
                    assert_eq!(*byte_read, byte(FROM_THEIRS, at), "at {at}");
                    at += 1;
                }
            }
            assert_eq!(at, receive, "it ended too early");
            done.set(true);
        });
    }

    /// Does all there is to do; whether there was something.
    fn turn(&mut self, now: Instant) -> bool {
        self.clock.set(now);
        let any = self.stack.borrow_mut().receive(now);
        self.executor.run(100);
        self.stack.borrow_mut().send();
        any
    }

    fn deadline(&self) -> Instant {
        let stack = self.stack.borrow().deadline();
        self.late.due().map_or(stack, |due| due.min(stack))
    }

    fn is_done(&self) -> bool {
        let stack = self.stack.borrow();
        self.done.get() && self.executor.is_empty() && stack.tcp.sockets().next().is_none()
    }
}

/// smoltcp's side.
struct Theirs {
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    device: Queues,
    sent: usize,
    read: usize,
    sizes: [usize; 2],
}

#[derive(Default)]
struct Queues {
    arrived: VecDeque<Vec<u8>>,
    sent: VecDeque<Vec<u8>>,
}

impl Theirs {
    fn new(plan: &Plan, rng: &mut Rng, now: Instant) -> Self {
        let mut device = Queues::default();
        let mac = HardwareAddress::Ethernet(EthernetAddress([2, 0, 0, 0, 0, 2]));
        let mut settled = Settled::new(mac);
        settled.random_seed = rng.u64(..);
        let mut interface = Interface::new(settled, &mut device, time(now));
        let bits = if plan.ipv6 { 64 } else { 24 };
        interface.update_ip_addrs(|addresses| {
            let own = IpCidr::new(plan.address(2).into(), bits);
            addresses.push(own).unwrap();
        });
        let [receive, send] = plan
            .buffers
            .map(|size| tcp::SocketBuffer::new(vec![0; size]));
        let mut socket = tcp::Socket::new(receive, send);
        let ours = SocketAddr::new(plan.address(1), PORT);
        match plan.we_listen {
            true => socket.connect(interface.context(), ours, 49152).unwrap(),
            false => socket.listen(PORT).unwrap(),
        }
        let mut sockets = SocketSet::new(Vec::new());
        let handle = sockets.add(socket);
        let [read, send] = plan.sizes;
        Self {
            interface,
            sockets,
            handle,
            device,
            sent: 0,
            read: 0,
            sizes: [send, read],
        }
    }

    fn turn(&mut self, now: Instant) {
        let Self {
            interface,
            device,
            sockets,
            ..
        } = self;
        interface.poll(time(now), device, sockets);
        self.work();
        let Self {
            interface,
            device,
            sockets,
            ..
        } = self;
        interface.poll(time(now), device, sockets);
    }

    /// Writes, reads and ends.
    fn work(&mut self) {
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(self.handle);
        let [send, _] = self.sizes;
        while socket.can_send() && self.sent < send {
            let end = send.min(self.sent + 5000);
            let bytes: Vec<u8> = (self.sent..end).map(|at| byte(FROM_THEIRS, at)).collect();
            self.sent += socket.send_slice(&bytes).unwrap();
        }
        while socket.can_recv() {
            let mut at = self.read;
            socket
                .recv(|bytes| {
                    for byte_read in &*bytes {
                        assert_eq!(*byte_read, byte(FROM_OURS, at), "at {at}");
                        at += 1;
                    }
                    (bytes.len(), ())
                })
                .unwrap();
            self.read = at;
        }
        if self.sent == send && socket.may_send() && socket.state() != tcp::State::SynReceived {
            socket.close();
        }
    }

    fn deadline(&mut self, now: Instant) -> Option<Instant> {
        let wait = self.interface.poll_delay(time(now), &self.sockets)?;
        Some(now + wait.into())
    }

    fn is_done(&mut self) -> bool {
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(self.handle);
        let ended = matches!(socket.state(), tcp::State::Closed | tcp::State::TimeWait);
        ended && [self.sent, self.read] == self.sizes
    }
}

fn time(now: Instant) -> Time {
    Time::from_micros((now.0 / 1000) as i64)
}

/// One frame that has arrived.
struct Arrived(Vec<u8>);

/// Room for a frame to be sent.
struct Room<'a>(&'a mut VecDeque<Vec<u8>>);

impl smoltcp::phy::RxToken for Arrived {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(&self.0)
    }
}

impl smoltcp::phy::TxToken for Room<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, fill: F) -> R {
        let mut frame = vec![0; len];
        let result = fill(&mut frame);
        self.0.push_back(frame);
        result
    }
}

impl Device for Queues {
    type RxToken<'a> = Arrived;
    type TxToken<'a> = Room<'a>;

    fn receive(&mut self, _: Time) -> Option<(Arrived, Room<'_>)> {
        let frame = self.arrived.pop_front()?;
        Some((Arrived(frame), Room(&mut self.sent)))
    }

    fn transmit(&mut self, _: Time) -> Option<Room<'_>> {
        Some(Room(&mut self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = 1514;
        let mut checksum = ChecksumCapabilities::default();
        checksum.tcp = Checksum::Both;
        capabilities.checksum = checksum;
        capabilities
    }
}

fn run(seed: u64) {
    let mut rng = Rng::with_seed(seed);
    let plan = Plan::of(&mut rng);
    let begun = Instant::PAST + Duration::from_secs(1000);
    let mut now = begun;
    let mut ours = Ours::new(seed, &plan, now);
    let mut theirs = Theirs::new(&plan, &mut rng, now);
    for _ in 0..TURNS_MAX {
        let mut any = ours.turn(now);
        for frame in ours.wire.sent() {
            any = true;
            theirs.device.arrived.push_back(frame);
        }
        theirs.turn(now);
        for frame in theirs.device.sent.drain(..) {
            any = true;
            ours.wire.arrives(&frame);
        }
        if ours.is_done() && theirs.is_done() {
            return;
        }
        if !any {
            let next = theirs.deadline(now).unwrap_or(Instant(u64::MAX));
            now = next
                .min(ours.deadline())
                .max(now + Duration::from_micros(10));
            assert!(
                now < begun + PATIENCE,
                "seed {seed}: nothing happens any more"
            );
        }
    }
    panic!("seed {seed}: they never stop");
}

fn seeds() -> core::ops::Range<u64> {
    let Ok(asked) = std::env::var("OUTBOARD_SEEDS") else {
        return 0..RUNS;
    };
    let (first, last) = asked.split_once("..").expect("OUTBOARD_SEEDS=FIRST..LAST");
    first.parse().unwrap()..last.parse().unwrap()
}

#[test]
fn bytes_arrive_as_they_were_sent() {
    for seed in seeds() {
        let result = std::panic::catch_unwind(|| run(seed));
        assert!(
            result.is_ok(),
            "seed {seed} fails: OUTBOARD_SEEDS={seed}..{}",
            seed + 1
        );
    }
}
