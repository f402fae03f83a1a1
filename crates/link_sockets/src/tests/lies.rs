//! Each end alone, with a liar at the other one: every lie has its name, ends one session, and
//! nothing else.

use super::scene::{MEMORY, PORT, Plug, Scene, at, bytes, cable};
use crate::message::{self, FRAME_HEAD, Message, OWN_MAX, Own, Reason, SOCKETS_MAX};
use crate::message::{Sessions, WINDOW_MAX, What};
use crate::{Fault, Net, Table};
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::task::{Context, Waker};
use device::memory::Wire;
use net::socket::{Datagrams, Error, Sockets};
use net::task::Executor;
use net::tcp::connection::Failure;
use net::tcp::socket::Error as Failed;
use ports::Instant;

/// The liar's session.
const LIAR: u64 = 9;
const WINDOW: u32 = 1000;

type Said<'a> = (u32, What<'a>);

/// A frame with these messages.
fn frame(sessions: Sessions, said: &[Said<'_>]) -> Vec<u8> {
    let mut frame = vec![0; 65_549];
    message::put_head(&mut frame, [2; 6], sessions);
    let mut filled = FRAME_HEAD;
    for (socket, what) in said {
        let message = Message::new(*socket, *what);
        filled += message.put(&mut frame[filled..]).expect("it fits");
    }
    frame.truncate(filled);
    frame
}

/// What an end has sent: its session, and the kinds of messages by their sockets.
fn heard(wire: &Wire) -> (u64, Vec<(u32, &'static str)>) {
    let (mut session, mut all) = (0, Vec::new());
    for frame in wire.sent() {
        let (sessions, mut messages) = message::open(&frame).unwrap();
        session = sessions.from;
        while let Some((message, rest)) = Message::take(messages).unwrap() {
            let kind = match message.what {
                What::Listen { .. } => "listen",
                What::Accept { .. } => "accept",
                What::Connect { .. } => "connect",
                What::Bind { .. } => "bind",
                What::Opened { .. } => "opened",
                What::Closed => "closed",
                What::Failed(_) => "failed",
                _ => "other",
            };
            all.push((message.socket, kind));
            messages = rest;
        }
    }
    (session, all)
}

fn opened(peer: bool) -> What<'static> {
    What::Opened {
        local: at(PORT),
        peer: peer.then_some(at(99)),
        window: WINDOW,
    }
}

/// The application's end, and a liar.
struct App {
    table: Rc<RefCell<Table>>,
    wire: Wire,
    executor: Executor,
    session: u64,
}

/// A listener, its next connection, a connection and a datagram socket, in the order of their
/// numbers.
const LISTENER: u32 = 0;
const NEXT: u32 = 3;
const STREAM: u32 = 1;
const DATAGRAMS: u32 = 2;

impl App {
    fn new() -> Self {
        let (port, wire) = cable(65_535, &Plug::new());
        let table = Table::new(port, MEMORY, 1, Instant(0));
        let table = Rc::new(RefCell::new(table));
        let mut executor = Executor::new();
        let net = Net::new(table.clone());
        executor.spawner().spawn(async move {
            let listener = net.listen(at(PORT), 1);
            let connecting = net.connect(at(99));
            let mut connecting = core::pin::pin!(connecting);
            let mut context = Context::from_waker(Waker::noop());
            assert!(connecting.as_mut().poll(&mut context).is_pending());
            let datagrams = net.bind(at(9));
            let stream = connecting.await;
            core::future::pending::<()>().await;
            drop((listener, stream, datagrams));
        });
        executor.run(9);
        let mut app = Self {
            table,
            wire,
            executor,
            session: 0,
        };
        app.turn();
        app.greets(0);
        app
    }

    fn turn(&mut self) {
        self.table.borrow_mut().receive(Instant(1));
        self.executor.run(9);
        self.table.borrow_mut().flush();
    }

    /// The liar says who it is; what it hears.
    fn greets(&mut self, session: u64) -> Vec<(u32, &'static str)> {
        let sessions = Sessions {
            from: LIAR + session,
            to: 0,
        };
        self.wire.arrives(&frame(sessions, &[]));
        self.turn();
        let (session, said) = heard(&self.wire);
        self.session = session;
        said
    }

    fn says(&mut self, said: &[Said<'_>]) {
        let sessions = Sessions {
            from: LIAR,
            to: self.session,
        };
        self.wire.arrives(&frame(sessions, said));
        self.turn();
    }

    fn fault(&self) -> Option<Fault> {
        self.table.borrow_mut().take_fault()
    }
}

#[test]
fn an_application_finds_each_lie_of_a_stack() {
    let data = bytes(WINDOW_MAX as usize);
    let long: Vec<_> = data[..256 << 10]
        .chunks(60_000)
        .map(|piece| (STREAM, What::Data(piece)))
        .collect();
    let datagram = What::Datagram {
        remote: at(5),
        local: at(0).ip(),
        bytes: b"x",
    };
    let open = (STREAM, opened(true));
    let cases: &[(&[Said<'_>], Fault)] = &[
        (&[(9, What::Closed)], Fault::Socket(9)),
        (&[(u32::MAX, What::End)], Fault::Socket(u32::MAX)),
        (&[(STREAM, What::Closed)], Fault::State(STREAM)),
        (&[(STREAM, What::Data(b"x"))], Fault::State(STREAM)),
        (&[(STREAM, What::End)], Fault::State(STREAM)),
        (&[open, open], Fault::State(STREAM)),
        (
            &[open, (STREAM, What::End), (STREAM, What::End)],
            Fault::State(STREAM),
        ),
        (
            &[open, (STREAM, What::End), (STREAM, What::Data(b"x"))],
            Fault::State(STREAM),
        ),
        (&[open, (STREAM, What::Credit(1))], Fault::Credit(STREAM)),
        (&[(STREAM, What::Credit(1))], Fault::Credit(STREAM)),
        (&[open, (STREAM, What::Acknowledged)], Fault::State(STREAM)),
        (&[open, (STREAM, What::Refused)], Fault::State(STREAM)),
        (&[open, (STREAM, datagram)], Fault::State(STREAM)),
        (&[(DATAGRAMS, What::Data(b"x"))], Fault::State(DATAGRAMS)),
        (&[(LISTENER, What::Data(b"x"))], Fault::State(LISTENER)),
        (&[(NEXT, What::Data(b"x"))], Fault::State(NEXT)),
        (&[(NEXT, What::Failed(Reason::Other))], Fault::State(NEXT)),
        (&[(NEXT, opened(false))], Fault::Value),
        (&[(STREAM, What::Close)], Fault::Kind),
        (&[(STREAM, What::Ask)], Fault::Kind),
        (
            &[(
                STREAM,
                What::Listen {
                    local: at(1),
                    backlog: 1,
                },
            )],
            Fault::Kind,
        ),
    ];
    let check = |app: &mut App, fault, is_open: bool| {
        assert_eq!(app.fault(), Some(fault));
        assert_eq!(app.table.borrow().faults(), 1);
        // A better stack has what listens.
        let said = app.greets(1);
        assert!(said.contains(&(LISTENER, "listen")), "{fault}: {said:?}");
        assert!(said.contains(&(DATAGRAMS, "bind")), "{fault}: {said:?}");
        // What was not open yet is tried again.
        assert_eq!(said.contains(&(STREAM, "connect")), !is_open, "{fault}");
    };
    for (said, fault) in cases {
        let mut app = App::new();
        app.says(said);
        check(&mut app, *fault, said[0] == open);
    }
    let mut app = App::new();
    app.says(&[open]);
    long.iter().for_each(|piece| app.says(&[*piece]));
    check(&mut app, Fault::Overrun(STREAM), true);
}

#[test]
fn what_a_stack_says_of_itself_is_checked() {
    let own = |last, is| What::Own(Own::Address(Ipv4Addr::new(10, 0, 0, last).into(), 24), is);
    let too_many: Vec<_> = (0..=OWN_MAX as u8)
        .map(|last| (0, own(last, true)))
        .collect();
    let cases: [(&[Said<'_>], Fault); 4] = [
        (&[(1, own(1, true))], Fault::Socket(1)),
        (&[(0, own(1, false))], Fault::Value),
        (&[(0, own(1, true)), (0, own(1, true))], Fault::Value),
        (&too_many, Fault::Value),
    ];
    for (said, fault) in cases {
        let mut app = App::new();
        app.says(said);
        assert_eq!(app.fault(), Some(fault));
        assert!(app.table.borrow().own().is_empty());
    }
    let mut app = App::new();
    app.says(&too_many[1..]);
    assert_eq!(app.fault(), None);
    assert_eq!(app.table.borrow().own().len(), OWN_MAX);
}

/// What is no message has no meaning, at either end.
#[test]
fn frames_and_messages_are_checked_whole() {
    let good = |session| {
        let sessions = Sessions {
            from: LIAR,
            to: session,
        };
        frame(sessions, &[(STREAM, opened(true))])
    };
    type Spoil = fn(&mut Vec<u8>);
    let cases: [(Spoil, Fault); 11] = [
        (|frame| frame.truncate(14), Fault::Frame),
        (|frame| frame.truncate(20), Fault::Length),
        (|frame| frame[12] = 8, Fault::Frame),
        (|frame| frame[14] += 1, Fault::Frame),
        (|frame| frame[16..24].fill(0), Fault::Value),
        (|frame| frame.truncate(FRAME_HEAD + 7), Fault::Length),
        (|frame| frame[FRAME_HEAD] = 0, Fault::Kind),
        (|frame| frame[FRAME_HEAD + 1] = 1, Fault::Value),
        (|frame| frame[FRAME_HEAD + 2] += 1, Fault::Length),
        (|frame| frame[FRAME_HEAD + 2] -= 1, Fault::Length),
        // A window larger than any.
        (|frame| *frame.last_mut().unwrap() = 1, Fault::Value),
    ];
    for (number, (spoil, fault)) in cases.into_iter().enumerate() {
        let mut app = App::new();
        let mut bad = good(app.session);
        spoil(&mut bad);
        app.wire.arrives(&bad);
        app.turn();
        assert_eq!(app.fault(), Some(fault), "case {number}");
    }
    let mut app = App::new();
    let fine = good(app.session);
    app.wire.arrives(&fine);
    app.turn();
    assert_eq!(app.fault(), None);
    // What is for another session is not even looked at.
    let mut other = good(app.session + 1);
    other[FRAME_HEAD] = 0;
    app.wire.arrives(&other);
    app.turn();
    assert_eq!(app.fault(), None);
}

#[test]
fn datagrams_of_one_peer_tell_once_that_nobody_listens() {
    let mut app = App::new();
    let net = Net::new(app.table.clone());
    let mut socket = net.bind(at(11)).unwrap();
    app.says(&[(4, opened(false)), (4, What::Refused)]);
    assert_eq!(app.fault(), None);
    let refused = Err(Error::Failed(Failed::Failed(Failure::Refused)));
    assert_eq!(socket.send(b"x", at(5)), refused);
    assert_eq!(socket.send(b"x", at(5)), Ok(()));
    // No more than the stack has room for, and nothing that it never has.
    assert!(socket.send(&[0; WINDOW as usize - 100], at(5)).is_err());
    assert!(socket.send(&[0; WINDOW as usize], at(5)).is_err());
}

/// A stack's end with a lying application.
struct Stack {
    scene: Scene,
    session: u64,
}

impl Stack {
    fn new() -> Self {
        let mut stack = Self {
            scene: Scene::alone(),
            session: 0,
        };
        stack.greets();
        stack
    }

    fn greets(&mut self) {
        let sessions = Sessions { from: LIAR, to: 0 };
        self.scene.wire().arrives(&frame(sessions, &[]));
        self.scene.turns(3);
        self.session = heard(self.scene.wire()).0;
    }

    fn says(&mut self, said: &[Said<'_>]) {
        let sessions = Sessions {
            from: LIAR,
            to: self.session,
        };
        self.scene.wire().arrives(&frame(sessions, said));
        self.scene.turns(10);
    }
}

const LISTEN: What<'_> = What::Listen {
    local: LOCAL,
    backlog: u32::MAX,
};
const BIND: What<'_> = What::Bind {
    local: LOCAL,
    peer: None,
    window: WINDOW,
};
/// To the stack's own listener.
const CONNECT: What<'_> = What::Connect {
    remote: SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 80),
    window: WINDOW,
};
const LOCAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), PORT);

fn datagram(bytes: &[u8]) -> What<'_> {
    What::Datagram {
        remote: SocketAddr::from(([192, 0, 2, 1], 9)),
        local: LOCAL.ip(),
        bytes,
    }
}

#[test]
fn a_stack_finds_each_lie_of_an_application() {
    let (listener, window) = (0, WINDOW);
    let accept = What::Accept { listener, window };
    let (listen, bind, connect) = (LISTEN, BIND, CONNECT);
    let cases: &[(&[Said<'_>], Fault)] = &[
        (&[(SOCKETS_MAX, listen)], Fault::Socket(SOCKETS_MAX)),
        (&[(0, listen), (0, bind)], Fault::Socket(0)),
        (&[(1, accept)], Fault::Socket(0)),
        (&[(0, bind), (1, accept)], Fault::State(0)),
        (
            &[(0, listen), (1, accept), (1, What::Data(b"x"))],
            Fault::State(1),
        ),
        (&[(0, listen), (1, accept), (1, accept)], Fault::Socket(1)),
        (&[(0, listen), (0, What::Data(b"x"))], Fault::State(0)),
        (&[(0, listen), (0, What::Credit(1))], Fault::State(0)),
        (
            &[(0, listen), (0, What::Close), (0, What::Close)],
            Fault::State(0),
        ),
        (&[(5, What::Close)], Fault::Socket(5)),
        (&[(5, What::Data(b"x"))], Fault::Socket(5)),
        (&[(0, connect), (0, What::Credit(1))], Fault::Credit(0)),
        (
            &[(0, connect), (0, What::Ask), (0, What::Ask)],
            Fault::State(0),
        ),
        (
            &[(0, connect), (0, What::End), (0, What::End)],
            Fault::State(0),
        ),
        (
            &[(0, connect), (0, What::End), (0, What::Data(b"x"))],
            Fault::State(0),
        ),
        (
            &[(0, connect), (0, What::Abort), (0, What::End)],
            Fault::State(0),
        ),
        (&[(0, connect), (0, datagram(b"x"))], Fault::State(0)),
        (
            &[(0, connect), (0, What::Join(at(0).ip()))],
            Fault::State(0),
        ),
        (&[(0, bind), (0, What::NoDelay(true))], Fault::State(0)),
        (&[(0, bind), (0, What::Closed)], Fault::Kind),
        (&[(0, bind), (0, opened(false))], Fault::Kind),
    ];
    for (said, fault) in cases {
        is_found(said, *fault);
    }
}

/// A lie has this name; what comes behind it is served.
fn is_found(said: &[Said<'_>], fault: Fault) {
    let mut stack = Stack::new();
    let _far = stack.scene.far().listen(at(80), 1).unwrap();
    stack.says(said);
    let found = stack
        .scene
        .server
        .as_mut()
        .and_then(|server| server.take_fault());
    assert_eq!(
        found.map(|(_, count, fault)| (count, fault)),
        Some((1, fault))
    );
    assert!(stack.scene.server().is_empty(), "{fault}");
    // Whoever keeps the rules is served, and what the liar had is free again.
    stack.greets();
    stack.says(&[(0, LISTEN), (1, BIND)]);
    let (_, said) = heard(stack.scene.wire());
    assert_eq!(said, [(0, "opened"), (1, "opened")], "{fault}");
}

/// More than there is room for: of a connection that takes nothing, and of datagrams.
#[test]
fn a_stack_takes_no_more_than_it_has_room_for() {
    let long = vec![0; 60_000];
    for (first, more) in [(CONNECT, What::Data(&long)), (BIND, datagram(&long))] {
        let mut stack = Stack::new();
        let _far = stack.scene.far().listen(at(80), 1).unwrap();
        stack.says(&[(0, first)]);
        let sessions = Sessions {
            from: LIAR,
            to: stack.session,
        };
        // All in one turn, in which no task has its own.
        (0..3).for_each(|_| stack.scene.wire().arrives(&frame(sessions, &[(0, more)])));
        stack.scene.turns(2);
        let found = stack
            .scene
            .server
            .as_mut()
            .and_then(|server| server.take_fault());
        assert_eq!(found.map(|(_, _, fault)| fault), Some(Fault::Overrun(0)));
    }
}

/// Sockets that an application opens cost memory that is bounded, whatever kind they are of.
#[test]
fn more_sockets_than_there_is_memory_for_are_refused() {
    let mut stack = Stack::new();
    for number in 0..SOCKETS_MAX / 16 {
        let local = at(1000 + number as u16);
        let (peer, window) = (None, WINDOW);
        stack.says(&[(
            number,
            What::Bind {
                local,
                peer,
                window,
            },
        )]);
    }
    let (_, said) = heard(stack.scene.wire());
    let count = |what| said.iter().filter(|(_, found)| *found == what).count();
    let (opened, failed) = (count("opened"), count("failed"));
    assert_eq!(opened + failed, SOCKETS_MAX as usize / 16);
    assert!(opened * (64 << 10) < MEMORY && failed > 100, "{opened}");
}

/// An application that does not take what is sent to it costs a bounded part of memory, and is cut
/// off.
#[test]
fn who_does_not_read_the_link_is_cut_off() {
    let mut stack = Stack::new();
    let (local, backlog) = (at(PORT), 1);
    stack.says(&[(0, What::Listen { local, backlog })]);
    stack.scene.plug.is_full.set(true);
    let (listener, window) = (0, WINDOW);
    let pair = [(1, What::Accept { listener, window }), (1, What::Close)];
    let pairs = pair.repeat(1000);
    for _ in 0..100 {
        stack.says(&pairs);
        let server = stack.scene.server.as_mut().unwrap();
        if let Some((_, _, fault)) = server.take_fault() {
            assert_eq!(fault, Fault::Deaf);
            assert!(server.is_empty());
            return;
        }
    }
    panic!("it goes on");
}
