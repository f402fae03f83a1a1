//! The stack's image is killed, and connections go on.

use super::scene::{PORT, Scene, at, bytes};
use crate::Net;
use alloc::rc::Rc;
use alloc::vec;
use core::cell::Cell;
use core::net::{Ipv4Addr, SocketAddr};
use net::socket::{Listener, Sockets, Stream};
use net::task::yield_now;

/// Kills in a plain `cargo test`, for each kind of link.
const RUNS: u64 = 24;

/// Where the far host listens.
fn far(port: u16) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::new(10, 0, 0, 2).into(), port)
}

/// Has each connection answered in a task of its own.
async fn echo(net: Net, spawner: net::task::Spawner) {
    let mut listener = net.listen(at(PORT), 8).unwrap();
    while let Ok(mut stream) = listener.accept().await {
        spawner.spawn(async move { while stream.give_back().await.unwrap() > 0 {} });
    }
}

/// Sends bytes and has them back, and the end.
async fn round(stream: impl Stream + 'static, count: usize, spawner: net::task::Spawner) {
    let (mut reader, mut writer) = stream.split();
    let sent = bytes(count);
    spawner.spawn(async move {
        for piece in sent.chunks(3000) {
            writer.write(piece).await.unwrap();
            yield_now().await;
        }
        writer.shutdown();
    });
    let mut back = vec![0; count];
    assert_eq!(reader.read_exact(&mut back).await, Ok(Some(())));
    assert!(back == bytes(count));
    assert_eq!(reader.read(&mut [0]).await, Ok(0));
}

/// Kills the stack at random while `done` says that so many tasks are not over.
fn killed(scene: &mut Scene, left: &Rc<Cell<usize>>, random: &mut fastrand::Rng, kills: usize) {
    for _ in 0..kills {
        scene.turns(random.usize(1..60));
        scene.kill();
    }
    for _ in 0..100_000 {
        if left.get() == 0 {
            break;
        }
        scene.turn();
    }
    assert_eq!(left.get(), 0, "some hang");
    let faults = (scene.server().faults(), scene.table.borrow().faults());
    assert_eq!(faults, (0, 0));
}

#[test]
fn accepted_connections_outlive_the_stack() {
    for (seed, mtu) in (0..RUNS).zip([68, 1500, 65_535].into_iter().cycle()) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut scene = Scene::kept(mtu);
        let spawner = scene.executor.spawner();
        spawner.spawn(echo(scene.app(), scene.executor.spawner()));
        scene.turns(20);
        let left = Rc::new(Cell::new(3));
        for _ in 0..3 {
            let (net, left, count) = (scene.far(), left.clone(), random.usize(1..200_000));
            let spawner = scene.executor.spawner();
            scene.executor.spawner().spawn(async move {
                let stream = net.connect(at(PORT)).await.unwrap();
                round(stream, count, spawner).await;
                left.set(left.get() - 1);
            });
        }
        let kills = random.usize(1..8);
        killed(&mut scene, &left, &mut random, kills);
        scene.turns(50);
        // The listener, and connections that may come.
        assert_eq!(scene.server().len(), 1 + 8, "seed {seed}");
    }
}

#[test]
fn what_was_written_before_a_close_outlives_the_stack() {
    for seed in 0..RUNS {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut scene = Scene::kept(9000);
        let mut listener = scene.far().listen(far(8), 4).unwrap();
        let count = random.usize(1..300_000);
        let left = Rc::new(Cell::new(2));
        let (app, written) = (scene.app(), left.clone());
        let lingers = random.bool();
        scene.executor.spawner().spawn(async move {
            let mut stream = app.connect(far(8)).await.unwrap();
            stream.set_no_delay(true);
            stream.write(&bytes(count)).await.unwrap();
            if lingers {
                stream.shutdown();
                stream.acknowledged().await.unwrap();
            }
            written.set(written.get() - 1);
        });
        let read = left.clone();
        scene.executor.spawner().spawn(async move {
            let mut stream = listener.accept().await.unwrap();
            let mut all = vec![0; count];
            assert_eq!(stream.read_exact(&mut all).await, Ok(Some(())));
            assert!(all == bytes(count));
            assert_eq!(stream.read(&mut all).await, Ok(0));
            read.set(read.get() - 1);
        });
        // It is open.
        scene.turns(20);
        killed(&mut scene, &left, &mut random, 3);
        scene.turns(50);
        assert!(scene.server().is_empty() && scene.table.borrow().has_left());
    }
}
