//! What an appliance is promised of sockets, over a link.

use super::scene::{MEMORY, PORT, Scene, at, bytes};
use crate::{Allowed, Net, Own};
use alloc::rc::Rc;
use alloc::vec;
use core::cell::Cell;
use core::net::Ipv4Addr;
use net::socket::{Datagrams, Error, Listener, Sockets, Stream};
use net::task::yield_now;
use net::tcp::connection::Failure;
use net::tcp::host::Unusable;
use net::tcp::socket::Error as Failed;
use ports::Errno;

const RESET: Error = Error::Failed(Failed::Failed(Failure::Reset));
const REFUSED: Error = Error::Failed(Failed::Failed(Failure::Refused));

async fn echo(net: Net) {
    let mut listener = net.listen(at(PORT), 4).unwrap();
    while let Ok(mut stream) = listener.accept().await {
        while stream.give_back().await.is_ok_and(|count| count > 0) {}
    }
}

/// Sends bytes and has them back, through the connection of whoever it is.
async fn round(mut stream: impl Stream, count: usize) {
    let sent = bytes(count);
    let mut back = vec![0; count];
    let (mut reader, mut writer) = (0, 0);
    while reader < count {
        let piece = (count - writer).min(5000);
        stream.write(&sent[writer..writer + piece]).await.unwrap();
        writer += piece;
        let until = writer
            .saturating_sub(50_000)
            .max(if writer == count { count } else { 0 });
        while reader < until {
            let got = stream.read(&mut back[reader..]).await.unwrap();
            assert!(got > 0, "the end came after {reader}");
            reader += got;
        }
    }
    assert!(back == sent);
    stream.shutdown();
    assert_eq!(stream.read(&mut [0]).await, Ok(0));
}

#[test]
fn bytes_come_back_and_the_end_as_well() {
    // The smallest link, that of an Ethernet, and the largest.
    for (mtu, count) in [(68, 20_000), (1500, 300_000), (65_535, 1_000_000)] {
        let mut scene = Scene::new(mtu);
        let (app, far) = (scene.app(), scene.far());
        scene.executor.spawner().spawn(echo(app));
        scene.turns(20);
        for _ in 0..3 {
            let far = far.clone();
            scene.run(async move { round(far.connect(at(PORT)).await.unwrap(), count).await });
        }
        scene.turns(20);
        // The listener, and connections that may come.
        assert_eq!(scene.server().len(), 1 + 4);
        assert_eq!(
            (scene.server().faults(), scene.table.borrow().faults()),
            (0, 0)
        );
    }
}

#[test]
fn an_application_connects_and_knows_when_all_was_acknowledged() {
    let mut scene = Scene::new(65_535);
    let (app, far) = (scene.app(), scene.far());
    let mut listener = far.listen(at(PORT), 4).unwrap();
    scene.executor.spawner().spawn(async move {
        let mut stream = listener.accept().await.unwrap();
        while stream.give_back().await.unwrap() > 0 {}
    });
    scene.run(async move {
        let mut stream = app.connect(at(PORT)).await.unwrap();
        assert_eq!(stream.peer(), at(PORT));
        assert_eq!(stream.local().ip(), at(0).ip());
        stream.set_no_delay(true);
        stream.set_keep_alive(Some(core::time::Duration::from_secs(7200)));
        stream.write(b"hello").await.unwrap();
        stream.acknowledged().await.unwrap();
        let mut place = [0; 5];
        assert_eq!(stream.read_exact(&mut place).await, Ok(Some(())));
        assert_eq!(&place, b"hello");
        stream.shutdown();
        assert!(stream.write(b"more").await.is_err());
        stream.acknowledged().await.unwrap();
        assert_eq!(stream.read(&mut place).await, Ok(0));
    });
    scene.turns(20);
    assert!(scene.server().is_empty() && scene.table.borrow().has_left());
}

#[test]
fn what_is_written_before_a_close_arrives() {
    let mut scene = Scene::new(9000);
    let (app, far) = (scene.app(), scene.far());
    let mut listener = far.listen(at(PORT), 4).unwrap();
    scene.executor.spawner().spawn(async move {
        let mut stream = app.connect(at(PORT)).await.unwrap();
        stream.write(&bytes(100_000)).await.unwrap();
    });
    scene.run(async move {
        let mut stream = listener.accept().await.unwrap();
        let mut all = vec![0; 100_000];
        assert_eq!(stream.read_exact(&mut all).await, Ok(Some(())));
        assert!(all == bytes(100_000));
        assert_eq!(stream.read(&mut all).await, Ok(0));
    });
    scene.turns(20);
    assert!(scene.server().is_empty());
}

#[test]
fn what_is_put_where_it_leaves_from_arrives() {
    // The smallest link, that of an Ethernet, and the largest.
    for mtu in [68, 1500, 65_535] {
        const COUNT: usize = 600_000;
        let mut scene = Scene::new(mtu);
        let (app, far) = (scene.app(), scene.far());
        let mut listener = far.listen(at(PORT), 4).unwrap();
        scene.executor.spawner().spawn(async move {
            let mut stream = app.connect(at(PORT)).await.unwrap();
            let (sent, mut done) = (bytes(COUNT), 0);
            while done < COUNT {
                stream.room().await.unwrap();
                // Who puts nothing there, or fails, has sent nothing.
                assert_eq!(stream.fill(|_| Ok::<_, ()>(0)), Some(Ok(0)));
                assert_eq!(stream.fill(|_| Err(7)), Some(Err(7)));
                // Nothing waits in between, so that there may be no room any more.
                while let Some(count) = stream.fill(|place| {
                    let count = place.len().min(COUNT - done).min(40_000);
                    place[..count].copy_from_slice(&sent[done..done + count]);
                    Ok::<_, ()>(count)
                }) && count != Ok(0)
                {
                    done += count.unwrap();
                }
            }
            stream.shutdown();
            assert!(stream.room().await.is_err());
            assert_eq!(stream.fill(|_| Ok::<_, ()>(1)), None);
        });
        scene.run(async move {
            let mut stream = listener.accept().await.unwrap();
            let mut all = vec![0; COUNT];
            assert_eq!(stream.read_exact(&mut all).await, Ok(Some(())));
            assert!(all == bytes(COUNT));
            assert_eq!(stream.read(&mut all).await, Ok(0));
        });
        scene.turns(20);
        assert_eq!((scene.server().len(), scene.server().faults()), (0, 0));
    }
}

#[test]
fn who_does_not_read_stops_who_writes() {
    let mut scene = Scene::new(65_535);
    let (app, far) = (scene.app(), scene.far());
    let mut listener = far.listen(at(PORT), 1).unwrap();
    let (near, far_stream) = scene.run(async move {
        let near = app.connect(at(PORT)).await.unwrap();
        (near, listener.accept().await.unwrap())
    });
    // Either way: what is written is bounded by windows and queues, and arrives once it is read.
    let written = Rc::new(Cell::new([0_usize; 2]));
    let (mut near_reader, mut near_writer) = near.split();
    let (mut far_reader, mut far_writer) = far_stream.split();
    let counts = written.clone();
    scene.executor.spawner().spawn(async move {
        loop {
            near_writer.write(&[7; 1000]).await.unwrap();
            counts.set([counts.get()[0] + 1000, counts.get()[1]]);
            yield_now().await;
        }
    });
    let counts = written.clone();
    scene.executor.spawner().spawn(async move {
        loop {
            far_writer.write(&[8; 1000]).await.unwrap();
            counts.set([counts.get()[0], counts.get()[1] + 1000]);
            yield_now().await;
        }
    });
    scene.turns(5000);
    let stopped = written.get();
    scene.turns(2000);
    assert_eq!(written.get(), stopped, "they go on writing");
    assert!(
        stopped
            .iter()
            .all(|count| (100_000..MEMORY).contains(count)),
        "{stopped:?}"
    );
    scene.run(async move {
        for (reader, byte) in [(0, 8), (1, 7)] {
            let mut seen = 0;
            while seen < stopped[1 - reader] {
                let mut place = [0; 3000];
                let count = match reader {
                    0 => near_reader.read(&mut place).await.unwrap(),
                    _ => far_reader.read(&mut place).await.unwrap(),
                };
                assert!(place[..count].iter().all(|found| *found == byte));
                seen += count;
            }
        }
    });
}

#[test]
fn datagrams_go_both_ways() {
    let mut scene = Scene::new(65_535);
    let (app, far) = (scene.app(), scene.far());
    let mut near = app.bind((Ipv4Addr::UNSPECIFIED, PORT).into()).unwrap();
    scene.turns(5);
    assert_eq!(near.local().port(), PORT);
    let mut peer = far.bind(at(0)).unwrap();
    scene.run(async move {
        for len in [0, 1, 1000, 1400] {
            peer.send(&bytes(len), at(PORT)).unwrap();
            let mut place = [0; 2000];
            let (count, ends) = near.receive_at(&mut place).await.unwrap();
            assert_eq!((ends.from, ends.to), (peer.local(), at(0).ip()));
            near.send_from(&place[..count], ends.to, ends.from).unwrap();
            let (count, from) = peer.receive(&mut place).await.unwrap();
            assert_eq!((&place[..count], from), (&bytes(len)[..], at(PORT)));
        }
        let batch = [(&b"one"[..], peer.local()), (&b"two"[..], peer.local())];
        assert_eq!(near.send_batch(&batch), Ok(2));
        let mut place = [0; 9];
        for expected in [b"one", b"two"] {
            let (count, _) = peer.receive(&mut place).await.unwrap();
            assert_eq!(&place[..count], expected);
        }
        assert!(near.send(&[0; 65_500], peer.local()).is_err());
        assert!(near.join(at(0).ip()).is_err());
    });
    scene.turns(20);
    assert!(scene.server().is_empty());
}

#[test]
fn what_cannot_be_had_is_told() {
    let mut scene = Scene::new(1500);
    let (app, far) = (scene.app(), scene.far());
    let taken = far.listen(at(PORT), 1).unwrap();
    let datagrams = far.bind(at(PORT)).unwrap();
    scene.run(async move {
        let in_use = Some(Error::Unusable(Unusable::InUse));
        assert_eq!(
            app.listen(at(PORT), 1).unwrap().accept().await.err(),
            in_use
        );
        let mut socket = app.bind(at(PORT)).unwrap();
        assert_eq!(socket.receive(&mut [0]).await.err(), in_use);
        assert_eq!(app.connect(at(99)).await.err(), Some(REFUSED));
        let nowhere = "192.0.2.1:9".parse().unwrap();
        let no_route = Some(Error::Unusable(Unusable::NoRoute));
        assert_eq!(app.connect(nowhere).await.err(), no_route);
        drop((taken, datagrams));
    });
    scene.turns(20);
    assert!(scene.server().is_empty());
}

#[test]
fn an_application_may_do_what_it_is_allowed() {
    let ports = Allowed::ports("7,80-90").unwrap();
    let connect = false;
    let mut scene = Scene::with(1500, Allowed { ports, connect });
    let app = scene.app();
    let denied = Some(Error::Host(Errno::ACCESS));
    scene.run(async move {
        assert_eq!(app.connect(at(7)).await.err(), denied);
        for port in [0, 8, 79, 91] {
            assert_eq!(
                app.listen(at(port), 1).unwrap().accept().await.err(),
                denied
            );
            let mut socket = app.bind(at(port)).unwrap();
            assert_eq!(socket.receive(&mut [0]).await.err(), denied);
        }
        let mut good = app.bind(at(85)).unwrap();
        while good.send(b"x", at(9)).is_err() {
            yield_now().await;
        }
    });
    for wrong in ["", "a", "9-7", "1-2-3", "70000", "7,"] {
        assert_eq!(Allowed::ports(wrong), None, "{wrong}");
    }
}

/// The application's image ends in the middle: its connections are reset, and the next one is
/// reached at the same place.
#[test]
fn connections_end_with_the_application() {
    for pulled in [true, false] {
        let mut scene = Scene::new(9000);
        let (app, far) = (scene.app(), scene.far());
        scene.executor.spawner().spawn(echo(app));
        scene.turns(20);
        let client = far.clone();
        let mut stream = scene.run(async move { client.connect(at(PORT)).await.unwrap() });
        scene.turns(20);
        if pulled {
            scene.pull();
            scene.turns(20);
            assert!(scene.server().is_empty());
        }
        // Where an image is replaced, the link does not notice.
        scene.other_app();
        if pulled {
            scene.pull();
        }
        let app = scene.app();
        scene.executor.spawner().spawn(echo(app));
        scene.turns(20);
        scene.run(async move {
            assert_eq!(stream.read(&mut [0]).await, Err(RESET));
            round(far.connect(at(PORT)).await.unwrap(), 10_000).await;
        });
        assert_eq!(scene.server().faults(), 0);
    }
}

/// The stack's image ends in the middle: connections fail, listeners and datagrams go on with the
/// next one.
#[test]
fn listeners_outlive_the_stack() {
    for pulled in [true, false] {
        let mut scene = Scene::new(9000);
        let (app, far) = (scene.app(), scene.far());
        scene.executor.spawner().spawn(echo(app));
        let app = scene.app();
        let mut datagrams = app.bind(at(9)).unwrap();
        let mut listener = far.listen(at(8), 1).unwrap();
        let mut stream = scene.run(async move {
            let stream = app.connect(at(8)).await.unwrap();
            listener.accept().await.unwrap();
            stream
        });
        if pulled {
            scene.pull();
            scene.turns(20);
        }
        scene.other_stack();
        if pulled {
            scene.pull();
        }
        scene.run(async move {
            assert_eq!(stream.read(&mut [0]).await, Err(RESET));
            assert_eq!(stream.write(b"x").await, Err(RESET));
        });
        scene.turns(20);
        let far = scene.far();
        scene.run(async move {
            round(far.connect(at(PORT)).await.unwrap(), 10_000).await;
            let mut peer = far.bind(at(0)).unwrap();
            peer.send(b"hello", at(9)).unwrap();
            let (count, from) = datagrams.receive(&mut [0; 9]).await.unwrap();
            assert_eq!((count, from), (5, peer.local()));
        });
        assert_eq!(scene.table.borrow().faults(), 0);
    }
}

#[test]
fn who_connects_without_a_stack_is_told_after_a_while() {
    let mut scene = Scene::new(1500);
    scene.server = None;
    let app = scene.app();
    let connected = scene.run(async move { app.connect(at(PORT)).await.err() });
    assert_eq!(connected, Some(Error::Unusable(Unusable::NoRoute)));
}

/// More connections at a time, and one behind the other, than there is room for: all come in turn.
#[test]
fn numbers_and_memory_are_used_again() {
    let mut scene = Scene::new(1500);
    let (app, far) = (scene.app(), scene.far());
    scene.executor.spawner().spawn(echo(app));
    scene.turns(20);
    for _ in 0..3000 {
        let far = far.clone();
        scene.run(async move {
            let mut stream = far.connect(at(PORT)).await.unwrap();
            stream.write(b"x").await.unwrap();
            assert_eq!(stream.read(&mut [0]).await, Ok(1));
            stream.abort();
        });
    }
    scene.turns(50);
    assert_eq!(scene.server().len(), 1 + 4);
}

#[test]
fn an_application_knows_what_the_stack_says_of_itself() {
    let own = [
        Own::Address("10.0.0.1".parse().unwrap(), 24),
        Own::Address("2001:db8::1".parse().unwrap(), 64),
        Own::Resolver("10.0.0.53".parse().unwrap()),
    ];
    let mut scene = Scene::new(65_535);
    let tell = |scene: &mut Scene, own: &[Own]| {
        scene.turns(3);
        scene.server.as_mut().unwrap().tell(own);
        scene.turns(3);
        scene.table.borrow().own().to_vec()
    };
    assert_eq!(tell(&mut scene, &own), own);
    assert_eq!(tell(&mut scene, &own[1..]), own[1..]);
    assert_eq!(tell(&mut scene, &own), [own[1], own[2], own[0]]);
    // Another stack says it anew, and another application hears it.
    scene.pull();
    scene.other_stack();
    scene.pull();
    scene.turns(3);
    assert_eq!(scene.table.borrow().own(), []);
    assert_eq!(tell(&mut scene, &own), own);
    scene.pull();
    scene.other_app();
    scene.pull();
    assert_eq!(tell(&mut scene, &own), own);
}
