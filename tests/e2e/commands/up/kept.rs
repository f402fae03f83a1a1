//! Connections that end in a component, which is killed under load: each goes on, and each byte
//! comes back once.
//!
//! ```text
//!   test === wan0 === firewall === link === echo, with its connections in a state
//! ```

use super::links::{self, Stream, nothing};
use super::{PATIENCE, System, kill};
use crate::harness::build::Images;
use crate::harness::wait::eventually;
use libtest_mimic::Failed;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::scope;

/// Connections that are always at work.
const BUSY: usize = 4;
/// How often echo is killed.
const KILLS: u64 = 12;

/// What all connections have done so far.
#[derive(Default)]
pub struct Work {
    pub rounds: AtomicU64,
    pub done: AtomicBool,
}

impl Work {
    /// Waits until each connection, on average, has had its bytes back once more.
    pub fn wait(&self) -> Result<(), Failed> {
        let first = self.rounds.load(Ordering::Relaxed);
        eventually(PATIENCE, || {
            match self.rounds.load(Ordering::Relaxed) < first + BUSY as u64 {
                true => Err("no bytes come back".into()),
                false => Ok(()),
            }
        })
    }

    /// Sends bytes and has them back until all is done.
    pub fn on(&self, mut stream: Stream) -> Result<(), Failed> {
        while !self.done.load(Ordering::Relaxed) {
            stream.round(nothing)?;
            self.rounds.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// No connection is lost, and no byte of any; one that was silent all the time is still there.
pub fn connections(images: &Images) -> Result<(), Failed> {
    let linked = links::of_link(images);
    let [plain, kept] = ["-link", "-kept"].map(|name| images.appliance("echo", name));
    let text = linked.replace(&format!("{plain:?}"), &format!("{kept:?}"));
    let system = links::system_of(images, &(text + "state.connections = \"memory\"\n"))?;
    let supervisor = system.up(2)?;
    let mut silent = Stream::new(&system)?;
    silent.round(nothing)?;
    let busy = (0..BUSY).map(|_| Stream::new(&system));
    let busy = busy.collect::<Result<Vec<_>, _>>()?;
    let work = Work::default();
    scope(|threads| {
        let busy: Vec<_> = busy
            .into_iter()
            .map(|stream| threads.spawn(|| work.on(stream)))
            .collect();
        let killed = kill_often(&system, &work);
        work.done.store(true, Ordering::Relaxed);
        let mut ends = busy.into_iter().map(|one| {
            let end = one.join();
            end.unwrap_or_else(|_| Err("a connection's thread has panicked".into()))
        });
        ends.try_for_each(|end| end).and(killed)
    })?;
    silent.round(nothing)?;
    Stream::new(&system)?.round(nothing)?;
    let said = system.runtime.says(images, &["logs", "echo"])?;
    let expected = format!("echo: connections: {} go on, 0 are damaged\n", BUSY + 1);
    if !said.contains(&expected) {
        return Err(format!("it does not say {expected:?} but {said:?}").into());
    }
    system.down(Some(supervisor))
}

/// Each time while bytes are under way.
fn kill_often(system: &System<'_>, work: &Work) -> Result<(), Failed> {
    for run in 2..2 + KILLS {
        work.wait()?;
        kill(system.guest("echo")?)?;
        system.wait_for_run("echo", run)?;
    }
    work.wait()
}
