//! Two hosts with sockets, and frames between them.

use crate::counts::Reason;
use crate::layer::{Filled, Unsent};
use crate::slices::Slices;
use crate::tcp::below::Below;
use crate::tcp::connection::{Config, Failure, Limits, State};
use crate::tcp::counted::{Openings, Segments};
use crate::tcp::host::{ANSWERS_MAX, ListenerId, SocketId, Tcp, Unusable};
use crate::tcp::identity::Secret;
use crate::tcp::input::Dropped;
use crate::tcp::segment::Segment;
use crate::tcp::seq::Seq;
use crate::tcp::socket::Error;
use core::net::{IpAddr, SocketAddr};
use core::sync::atomic::{AtomicUsize, Ordering};
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use device::{Frame, Offload, Pool};
use ports::Instant;
use std::sync::Arc;
use std::task::Wake;
use std::vec;
use std::vec::Vec;

/// What lies below both hosts: frames in a list, and a pool of buffers.
pub struct Wire {
    pub ours: IpAddr,
    pub pool: Pool,
    /// Bytes of a segment that may leave in one go, to be cut.
    pub largest: u32,
    pub sent: Vec<(IpAddr, IpAddr, Frame)>,
    /// Frames that may still be sent.
    pub buffers: usize,
}

impl Below for Wire {
    fn source(&self, remote: IpAddr) -> Option<IpAddr> {
        (remote.is_ipv4() == self.ours.is_ipv4()).then_some(self.ours)
    }

    fn limits(&self, _: IpAddr, _: IpAddr) -> Limits {
        Limits {
            segment: 1480,
            largest: self.largest,
        }
    }

    fn send(
        &mut self,
        from: IpAddr,
        to: IpAddr,
        size: usize,
        fill: impl FnOnce(&mut [u8]) -> Filled,
    ) -> Result<(), Unsent> {
        if self.buffers == 0 {
            return Err(Unsent::NoBuffer);
        }
        let mut frame = self.pool.alloc(size).ok_or(Unsent::NoBuffer)?;
        let filled = fill(frame.bytes_mut());
        assert_eq!(filled.len, size);
        super::vault::leaves(frame.bytes());
        // As a port does that has no offloads.
        filled.offload.complete_checksum(frame.bytes_mut());
        frame.set_offload(Offload::NONE);
        self.buffers -= 1;
        self.sent.push((from, to, frame));
        Ok(())
    }
}

struct Host {
    tcp: Tcp,
    wire: Wire,
}

struct Hosts {
    hosts: [Host; 2],
    now: Instant,
}

const MEMORY: usize = 1 << 20;

fn context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

impl Hosts {
    fn new() -> Self {
        let host = |last: u8| Host {
            tcp: Tcp::new(Config::default(), Secret::new([last; 16]), [9; 16], MEMORY),
            wire: Wire {
                ours: IpAddr::from([10, 0, 0, last]),
                pool: Pool::new(vec![0; 64 * 66_000].leak(), 66_000),
                largest: 65_000,
                sent: Vec::new(),
                buffers: usize::MAX,
            },
        };
        Self {
            hosts: [host(1), host(2)],
            now: Instant(1_000_000_000),
        }
    }

    fn address(&self, host: usize, port: u16) -> SocketAddr {
        SocketAddr::new(self.hosts[host].wire.ours, port)
    }

    fn listen(&mut self, port: u16, backlog: usize) -> ListenerId {
        let local = self.address(1, port);
        self.hosts[1].tcp.listen(local, backlog).unwrap()
    }

    fn connect(&mut self, port: u16) -> SocketId {
        let remote = self.address(1, port);
        let Host { tcp, wire } = &mut self.hosts[0];
        tcp.connect(wire, remote, self.now).unwrap()
    }

    /// Frames go to and fro until there are none.
    fn exchange(&mut self) {
        for _ in 0..10_000 {
            let mut any = false;
            for from in 0..2 {
                let Host { tcp, wire } = &mut self.hosts[from];
                tcp.expire(wire, self.now);
                tcp.send(wire, self.now);
                let sent = core::mem::take(&mut wire.sent);
                any |= !sent.is_empty();
                let Host { tcp, wire } = &mut self.hosts[1 - from];
                for (source, destination, frame) in sent {
                    tcp.receive(wire, source, destination, frame, self.now);
                }
            }
            if !any {
                return;
            }
        }
        panic!("they never stop");
    }

    fn pass(&mut self, duration: Duration) {
        self.now = self.now + duration;
        self.exchange();
    }

    /// The second host gets a segment of a third one; the answers.
    fn forge(&mut self, segment: &Segment) -> Vec<Segment> {
        let Host { tcp, wire } = &mut self.hosts[1];
        let mut frame = wire.pool.alloc(20).unwrap();
        segment.emit(frame.bytes_mut());
        frame.set_offload(Offload {
            checksum: Some(device::Checksum {
                start: 0,
                offset: 16,
            }),
            gso: None,
        });
        let ends = [[10, 0, 0, 9], [10, 0, 0, 2]].map(IpAddr::from);
        tcp.receive(wire, ends[0], ends[1], frame, self.now);
        let answers = wire.sent.drain(..);
        let parse = |(_, _, frame): (_, _, Frame)| Segment::parse(frame.bytes()).unwrap().0;
        answers.map(parse).collect()
    }

    fn accept(&mut self, listener: ListenerId) -> Option<SocketId> {
        match self.hosts[1].tcp.poll_accept(listener, &mut context()) {
            Poll::Ready(socket) => Some(socket),
            Poll::Pending => None,
        }
    }

    fn write(&mut self, host: usize, socket: SocketId, bytes: &[u8]) -> Poll<Result<usize, Error>> {
        self.hosts[host]
            .tcp
            .poll_write(socket, bytes, &mut context())
    }

    fn read(&mut self, host: usize, socket: SocketId) -> Poll<Result<Vec<u8>, Error>> {
        let mut place = vec![0; 100_000];
        let read = self.hosts[host]
            .tcp
            .poll_read(socket, &mut place, &mut context());
        read.map_ok(|count| place[..count].to_vec())
    }

    /// A connection on both sides.
    fn pair(&mut self) -> (SocketId, SocketId) {
        let listener = self.listen(80, 8);
        let client = self.connect(80);
        self.exchange();
        (client, self.accept(listener).unwrap())
    }
}

#[test]
fn bytes_go_both_ways_and_both_ends_close() {
    let mut hosts = Hosts::new();
    let (client, server) = hosts.pair();
    assert!(hosts.read(1, server).is_pending());
    assert_eq!(hosts.write(0, client, b"question"), Poll::Ready(Ok(8)));
    hosts.exchange();
    assert_eq!(hosts.read(1, server), Poll::Ready(Ok(b"question".to_vec())));
    assert_eq!(hosts.write(1, server, b"answer"), Poll::Ready(Ok(6)));
    hosts.hosts[1].tcp.shutdown(server);
    hosts.exchange();
    assert_eq!(hosts.read(0, client), Poll::Ready(Ok(b"answer".to_vec())));
    assert_eq!(hosts.read(0, client), Poll::Ready(Ok(vec![])));
    let now = hosts.now;
    hosts.hosts[0].tcp.leave(client, now);
    hosts.hosts[1].tcp.leave(server, now);
    hosts.exchange();
    assert_eq!(hosts.hosts[0].tcp.sockets().count(), 0);
    assert_eq!(
        hosts.hosts[1].tcp.sockets().count(),
        0,
        "it is in TIME-WAIT"
    );
    hosts.pass(Duration::from_secs(61));
    assert_eq!(
        hosts.hosts[1].tcp.deadline(hosts.now),
        crate::tcp::connection::NEVER
    );
}

#[test]
fn nobody_listens() {
    let mut hosts = Hosts::new();
    let client = hosts.connect(81);
    hosts.exchange();
    let refused = Poll::Ready(Err(Error::Failed(Failure::Refused)));
    assert_eq!(
        hosts.hosts[0].tcp.poll_open(client, &mut context()),
        refused
    );
    let dropped = hosts.hosts[1].tcp.dropped();
    assert_eq!(dropped.get(Dropped::NoConnection), 1);
    let unreachable =
        hosts.hosts[0]
            .tcp
            .connect(&hosts.hosts[0].wire, "[::1]:80".parse().unwrap(), hosts.now);
    assert_eq!(unreachable, Err(Unusable::NoRoute));
    hosts.listen(80, 1);
    let again = hosts.address(1, 80);
    assert_eq!(hosts.hosts[1].tcp.listen(again, 1), Err(Unusable::InUse));
}

#[test]
fn a_reset_reaches_the_reader() {
    let mut hosts = Hosts::new();
    let (client, server) = hosts.pair();
    assert_eq!(hosts.write(1, server, b"never read"), Poll::Ready(Ok(10)));
    hosts.exchange();
    let now = hosts.now;
    hosts.hosts[0].tcp.leave(client, now);
    hosts.exchange();
    assert_eq!(
        hosts.read(1, server),
        Poll::Ready(Err(Error::Failed(Failure::Reset)))
    );
    assert_eq!(hosts.hosts[0].tcp.sockets().count(), 0);
}

/// A full backlog makes no connection fail: cookies take its place.
#[test]
fn a_flood_of_syns_leaves_room_for_those_who_answer() {
    let mut hosts = Hosts::new();
    let listener = hosts.listen(80, 4);
    for port in 0..1000 {
        let syn = Segment {
            source: port,
            destination: 80,
            flags: crate::tcp::segment::Flags {
                syn: true,
                ..Default::default()
            },
            ..Segment::default()
        };
        hosts.forge(&syn);
    }
    let tcp = &hosts.hosts[1].tcp;
    assert_eq!(tcp.segments().get(Segments::Cookies), 996);
    assert_eq!(tcp.openings().get(Openings::Passive), 0);
    let clients: Vec<_> = (0..3).map(|_| hosts.connect(80)).collect();
    hosts.exchange();
    for client in clients {
        let open = hosts.hosts[0].tcp.poll_open(client, &mut context());
        assert_eq!(open, Poll::Ready(Ok(())));
        let server = hosts.accept(listener).unwrap();
        assert_eq!(hosts.write(0, client, b"hello"), Poll::Ready(Ok(5)));
        hosts.exchange();
        assert_eq!(hosts.read(1, server), Poll::Ready(Ok(b"hello".to_vec())));
    }
    hosts.pass(Duration::from_secs(30));
    hosts.pass(Duration::from_secs(40));
    hosts.connect(80);
    let cookies = |hosts: &Hosts| hosts.hosts[1].tcp.segments().get(Segments::Cookies);
    let before = cookies(&hosts);
    hosts.exchange();
    assert_eq!(cookies(&hosts), before, "the flood is forgotten");
}

#[test]
fn a_full_accept_queue_slows_peers() {
    let mut hosts = Hosts::new();
    let listener = hosts.listen(80, 2);
    let clients: Vec<_> = (0..4).map(|_| hosts.connect(80)).collect();
    hosts.exchange();
    let first = hosts.accept(listener).unwrap();
    assert!(hosts.accept(listener).is_some() && hosts.accept(listener).is_none());
    // The others come when there is room: with their next segment.
    for client in &clients {
        assert_eq!(hosts.write(0, *client, b"x"), Poll::Ready(Ok(1)));
    }
    hosts.pass(Duration::from_secs(3));
    assert!(hosts.accept(listener).is_some() && hosts.accept(listener).is_some());
    assert_eq!(hosts.read(1, first), Poll::Ready(Ok(b"x".to_vec())));
    let all = clients
        .iter()
        .all(|client| hosts.hosts[0].tcp.socket(*client).is_some());
    assert!(all);
}

/// One that has carried bytes both ways, and holds none, takes at most 1 KiB.
#[test]
fn an_idle_connection_takes_little() {
    let mut hosts = Hosts::new();
    let (client, server) = hosts.pair();
    for _ in 0..3 {
        for (host, from, to) in [(0, client, server), (1, server, client)] {
            assert!(hosts.write(host, from, &[7; 3000]).is_ready());
            hosts.exchange();
            while hosts.read(1 - host, to).is_ready() {}
        }
    }
    hosts.pass(Duration::from_secs(1));
    for (host, socket) in [(0, client), (1, server)] {
        let bytes = hosts.hosts[host].tcp.allocated(socket);
        assert!((700..=1024).contains(&bytes), "{bytes} bytes");
    }
}

/// A reader that does not read stops its peer, and not the image: the budget holds.
#[test]
fn memory_is_bounded_and_comes_back() {
    let mut hosts = Hosts::new();
    let (client, server) = hosts.pair();
    let bytes: Vec<u8> = (0..100_000).map(|n| n as u8).collect();
    let mut sent = 0;
    for _ in 0..2000 {
        if let Poll::Ready(count) = hosts.write(0, client, &bytes[sent % 256..]) {
            sent += count.unwrap();
        }
        hosts.pass(Duration::from_millis(10));
    }
    let memory: usize = hosts.hosts[1]
        .tcp
        .sockets()
        .map(|socket| socket.memory())
        .sum();
    assert!((100_000..=MEMORY).contains(&memory), "{memory}");
    let mut read = 0;
    for _ in 0..20_000 {
        match hosts.read(1, server) {
            Poll::Ready(got) => {
                for byte in got.unwrap() {
                    assert_eq!(byte, (read % 256) as u8, "at {read}");
                    read += 1;
                }
            }
            Poll::Pending if read == sent => break,
            Poll::Pending => {}
        }
        hosts.pass(Duration::from_millis(10));
    }
    assert_eq!(read, sent);
    let pool = hosts.hosts[0].wire.pool;
    assert_eq!(pool.free(), pool.count());
}

#[test]
fn no_buffer_is_no_loss() {
    let mut hosts = Hosts::new();
    let (client, server) = hosts.pair();
    assert_eq!(
        hosts.write(0, client, &[7; 60_000]),
        Poll::Ready(Ok(60_000))
    );
    hosts.hosts[0].wire.buffers = 0;
    let Host { tcp, wire } = &mut hosts.hosts[0];
    assert!(!tcp.send(wire, hosts.now));
    hosts.hosts[0].wire.buffers = usize::MAX;
    hosts.exchange();
    assert_eq!(hosts.read(1, server), Poll::Ready(Ok(vec![7; 60_000])));
    let segments = hosts.hosts[0].tcp.segments();
    assert_eq!(segments.get(Segments::SentAgain), 0);
}

#[test]
fn connections_are_counted_by_state() {
    let mut hosts = Hosts::new();
    let in_state = |hosts: &Hosts, state: State| {
        let mut all = 0;
        hosts.hosts[0].tcp.counts(&mut |name, count| {
            if name == state.name() {
                all += count;
            }
        });
        all
    };
    let (client, server) = hosts.pair();
    assert_eq!(in_state(&hosts, State::Established), 1);
    let now = hosts.now;
    hosts.hosts[0].tcp.leave(client, now);
    hosts.exchange();
    assert_eq!(in_state(&hosts, State::FinWait2), 1);
    hosts.hosts[1].tcp.leave(server, now);
    hosts.exchange();
    assert_eq!(in_state(&hosts, State::FinWait2), 0);
    assert_eq!(in_state(&hosts, State::TimeWait), 1);
}

#[test]
fn a_wrong_checksum_is_counted() {
    let mut hosts = Hosts::new();
    let Host { tcp, wire } = &mut hosts.hosts[1];
    for (len, expected) in [(20, [0, 1]), (19, [1, 1])] {
        let mut frame = wire.pool.alloc(len).unwrap();
        frame.bytes_mut().fill(0);
        frame.bytes_mut()[12] = 0x50;
        tcp.receive(
            wire,
            [10, 0, 0, 9].into(),
            [10, 0, 0, 2].into(),
            frame,
            hosts.now,
        );
        let dropped = [Dropped::Malformed, Dropped::Checksum].map(|why| tcp.dropped().get(why));
        assert_eq!(dropped, expected);
    }
}

/// A segment that finds no memory still acknowledges, and what it frees is free.
#[test]
fn an_acknowledgement_without_memory_frees_memory() {
    let mut hosts = Hosts::new();
    let secret = Secret::new([1; 16]);
    hosts.hosts[0].tcp = Tcp::new(Config::default(), secret, [9; 16], 1333);
    let (client, server) = hosts.pair();
    // The server's data has the acknowledgement.
    assert!(matches!(
        hosts.write(0, client, &[7; 1000]),
        Poll::Ready(Ok(1000))
    ));
    assert!(matches!(
        hosts.write(1, server, &[8; 400]),
        Poll::Ready(Ok(400))
    ));
    hosts.exchange();
    assert!(matches!(
        hosts.write(0, client, &[7; 900]),
        Poll::Ready(Ok(900))
    ));
    hosts.pass(Duration::from_secs(2));
    assert!(matches!(hosts.read(0, client), Poll::Ready(Ok(bytes)) if bytes == [8; 400]));
    assert_eq!(hosts.hosts[0].tcp.dropped().get(Dropped::Memory), 1);
}

/// Writers that hold all they may leave room for what arrives.
#[test]
fn what_arrives_has_room_beside_writers() {
    let mut hosts = Hosts::new();
    hosts.hosts[0].tcp = Tcp::new(Config::default(), Secret::new([1; 16]), [9; 16], 1333);
    let (client, server) = hosts.pair();
    assert_eq!(hosts.write(0, client, &[7; 2000]), Poll::Ready(Ok(1000)));
    assert_eq!(hosts.write(1, server, b"enough"), Poll::Ready(Ok(6)));
    hosts.exchange();
    assert_eq!(hosts.hosts[0].tcp.dropped().get(Dropped::Memory), 0);
}

/// A peer that has lost its connection half open opens another one between the same ends: the
/// answer to the old SYN makes it reset that (RFC 9293, 3.5.1, figure 9).
#[test]
fn a_peer_that_begins_anew_is_heard() {
    let mut hosts = Hosts::new();
    hosts.listen(80, 4);
    let mut segment = Segment {
        source: 5,
        destination: 80,
        seq: Seq(100),
        ..Segment::default()
    };
    segment.flags.syn = true;
    assert_eq!(hosts.forge(&segment)[0].ack, Seq(101));
    segment.seq = Seq(7_000_000);
    assert_eq!(hosts.forge(&segment)[0].ack, Seq(101));
    let mut reset = segment.clone();
    (reset.flags.syn, reset.flags.rst, reset.seq) = (false, true, Seq(101));
    assert_eq!(hosts.forge(&reset), []);
    assert_eq!(hosts.forge(&segment)[0].ack, Seq(7_000_001));
}

/// A task that is woken, and counts how often.
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whoever waits for memory is woken when another socket has given some back.
#[test]
fn memory_of_one_socket_wakes_another() {
    let mut hosts = Hosts::new();
    hosts.hosts[0].tcp = Tcp::new(Config::default(), Secret::new([1; 16]), [9; 16], 1333);
    hosts.listen(80, 4);
    let [first, second] = [hosts.connect(80), hosts.connect(80)];
    hosts.exchange();
    assert_eq!(hosts.write(0, first, &[7; 1000]), Poll::Ready(Ok(1000)));
    let woken = Arc::new(Woken(AtomicUsize::new(0)));
    let waker = Waker::from(woken.clone());
    let mut context = Context::from_waker(&waker);
    for _ in 0..2 {
        let written = hosts.hosts[0].tcp.poll_write(second, b"x", &mut context);
        assert_eq!(written, Poll::Pending);
    }
    hosts.exchange();
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert_eq!(hosts.write(0, second, b"x"), Poll::Ready(Ok(1)));
}

#[test]
fn who_listens_on_one_address_goes_before_who_listens_on_all() {
    let mut hosts = Hosts::new();
    let any = SocketAddr::new([0; 4].into(), 80);
    let all = hosts.hosts[1].tcp.listen(any, 8).unwrap();
    let one = hosts.listen(80, 8);
    hosts.connect(80);
    hosts.exchange();
    assert!(hosts.accept(all).is_none() && hosts.accept(one).is_some());
    hosts.hosts[1].tcp.unlisten(one);
    hosts.connect(80);
    hosts.exchange();
    assert!(hosts.accept(all).is_some());
}

/// RFC 9293, 3.10.7.4: an acknowledgement from outside of the window opens nothing, and is told
/// where we are.
#[test]
fn only_a_segment_in_the_window_opens() {
    let mut hosts = Hosts::new();
    let listener = hosts.listen(80, 4);
    let mut segment = Segment {
        source: 5,
        destination: 80,
        seq: Seq(100),
        ..Segment::default()
    };
    segment.flags.syn = true;
    let iss = hosts.forge(&segment)[0].seq;
    (segment.flags.syn, segment.flags.ack) = (false, true);
    (segment.seq, segment.ack) = (Seq(1_000_000), iss + 1);
    let told = hosts.forge(&segment);
    assert_eq!((told[0].seq, told[0].ack), (iss + 1, Seq(101)));
    assert!(!told[0].flags.syn && hosts.accept(listener).is_none());
    segment.seq = Seq(101);
    assert_eq!(hosts.forge(&segment), []);
    assert!(hosts.accept(listener).is_some());
}

/// RFC 9293, 3.10.7.2, fourth: without SYN, ACK and RST nobody can mean a listener.
#[test]
fn a_listener_ignores_what_has_no_ack() {
    let mut hosts = Hosts::new();
    hosts.listen(80, 4);
    let mut segment = Segment {
        source: 5,
        destination: 80,
        seq: Seq(100),
        ..Segment::default()
    };
    assert_eq!(hosts.forge(&segment), []);
    segment.flags.fin = true;
    assert_eq!(hosts.forge(&segment), []);
    segment.flags.ack = true;
    assert_eq!(hosts.forge(&segment).len(), 1, "a RST");
    (segment.flags.ack, segment.destination) = (false, 81);
    assert_eq!(hosts.forge(&segment).len(), 1, "nobody listens there");
}

/// RFC 5961, 7: whoever repeats a FIN in TIME-WAIT gets so many answers in a second, and no more.
#[test]
fn answers_to_old_connections_are_bounded() {
    let mut hosts = Hosts::new();
    let listener = hosts.listen(80, 4);
    let mut segment = Segment {
        source: 5,
        destination: 80,
        seq: Seq(100),
        window: 1000,
        ..Segment::default()
    };
    segment.flags.syn = true;
    let iss = hosts.forge(&segment)[0].seq;
    (segment.flags.syn, segment.flags.ack) = (false, true);
    (segment.seq, segment.ack) = (Seq(101), iss + 1);
    hosts.forge(&segment);
    let server = hosts.accept(listener).unwrap();
    hosts.hosts[1].tcp.leave(server, hosts.now);
    let Host { tcp, wire } = &mut hosts.hosts[1];
    tcp.send(wire, hosts.now);
    wire.sent.clear();
    (segment.flags.fin, segment.ack) = (true, iss + 2);
    hosts.forge(&segment);
    let Host { tcp, wire } = &mut hosts.hosts[1];
    tcp.send(wire, hosts.now);
    wire.sent.clear();
    let mut answers = 0;
    for _ in 0..ANSWERS_MAX + 100 {
        answers += hosts.forge(&segment).len();
    }
    assert_eq!(answers, ANSWERS_MAX as usize);
    hosts.now = hosts.now + Duration::from_secs(1);
    assert_eq!(hosts.forge(&segment).len(), 1);
    // RFC 1122, 4.2.2.13: who takes its place begins behind all that it has sent.
    (segment.flags.fin, segment.flags.ack) = (false, false);
    (segment.flags.syn, segment.seq) = (true, Seq(200));
    let answer = &hosts.forge(&segment)[0];
    assert!(answer.flags.syn && !answer.seq.is_before(iss + 65_536));
}

/// Of connections that send without end, each has its share of the memory, also when one of them
/// was first.
#[test]
fn writers_share_the_memory() {
    const CONNECTIONS: usize = 16;
    const ALONE: usize = 200;
    let mut hosts = Hosts::new();
    let listener = hosts.listen(80, CONNECTIONS);
    let clients: Vec<_> = (0..CONNECTIONS).map(|_| hosts.connect(80)).collect();
    hosts.exchange();
    let servers: Vec<_> = std::iter::from_fn(|| hosts.accept(listener)).collect();
    let mut written = [0; CONNECTIONS];
    for round in 0..3 * ALONE {
        let writers = if round < ALONE { 1 } else { CONNECTIONS };
        for (client, written) in clients.iter().zip(&mut written).take(writers) {
            while let Poll::Ready(Ok(count)) = hosts.write(0, *client, &[7; 10_000]) {
                *written += if round < 2 * ALONE { 0 } else { count };
            }
        }
        hosts.pass(Duration::from_millis(1));
        for server in &servers {
            while let Poll::Ready(Ok(bytes)) = hosts.read(1, *server) {
                assert!(!bytes.is_empty());
            }
        }
    }
    let (least, most) = (written.iter().min().unwrap(), written.iter().max().unwrap());
    assert!(*least > 0 && *most <= 2 * least, "{written:?}");
}

#[test]
fn slices_leave_as_one_write() {
    let mut hosts = Hosts::new();
    let (client, server) = hosts.pair();
    let slices: [&[u8]; 4] = [b"one ", b"", b"two ", b"three"];
    let slices = Slices::new(&slices);
    let tcp = &mut hosts.hosts[0].tcp;
    let written = tcp.poll_write_vectored(client, &slices, &mut context());
    assert_eq!(written, Poll::Ready(Ok(13)));
    let Host { tcp, wire } = &mut hosts.hosts[0];
    tcp.send(wire, hosts.now);
    assert_eq!(wire.sent.len(), 1, "one segment");
    hosts.exchange();
    assert_eq!(
        hosts.read(1, server),
        Poll::Ready(Ok(b"one two three".to_vec()))
    );
    // There is no room for all of them.
    let large = vec![7; MEMORY];
    let slices: [&[u8]; 2] = [b"small", &large];
    let mut slices = Slices::new(&slices);
    let tcp = &mut hosts.hosts[0].tcp;
    let written = tcp.poll_write_vectored(client, &slices, &mut context());
    let Poll::Ready(Ok(count)) = written else {
        panic!("{written:?}");
    };
    assert!((6..MEMORY).contains(&count));
    slices.advance(count);
    let written = tcp.poll_write_vectored(client, &slices, &mut context());
    assert_eq!(written, Poll::Pending);
}

#[test]
fn who_waits_for_acknowledgements_is_woken_by_the_last_one() {
    let mut hosts = Hosts::new();
    let (client, server) = hosts.pair();
    let woken = Arc::new(Woken(AtomicUsize::new(0)));
    let waker = Waker::from(woken.clone());
    let mut context = Context::from_waker(&waker);
    let mut wait = |hosts: &mut Hosts| {
        let tcp = &mut hosts.hosts[0].tcp;
        tcp.poll_acknowledged(client, &mut context)
    };
    let count = || woken.0.load(Ordering::Relaxed);
    assert_eq!(wait(&mut hosts), Poll::Ready(Ok(())), "nothing was written");
    assert_eq!(hosts.write(0, client, &[1; 5000]), Poll::Ready(Ok(5000)));
    assert_eq!(wait(&mut hosts), Poll::Pending);
    hosts.pass(Duration::from_secs(1));
    assert_eq!((wait(&mut hosts), count()), (Poll::Ready(Ok(())), 1));
    // The end counts, and the peer's program need not have read anything.
    hosts.hosts[0].tcp.shutdown(client);
    assert_eq!(wait(&mut hosts), Poll::Pending);
    hosts.pass(Duration::from_secs(1));
    assert_eq!((wait(&mut hosts), count()), (Poll::Ready(Ok(())), 2));
    assert!(hosts.read(1, server).is_ready());

    let mut hosts = Hosts::new();
    let (client, server) = hosts.pair();
    let tcp = &mut hosts.hosts[0].tcp;
    tcp.shutdown(client);
    let waits = tcp.poll_acknowledged(client, &mut Context::from_waker(&waker));
    assert_eq!(waits, Poll::Pending);
    hosts.hosts[1].tcp.abort(server);
    hosts.exchange();
    let tcp = &mut hosts.hosts[0].tcp;
    let failed = tcp.poll_acknowledged(client, &mut Context::from_waker(&waker));
    let reset = Err(Error::Failed(Failure::Reset));
    assert_eq!((failed, count()), (Poll::Ready(reset), 3));
}
