//! Scripts by subject, in which both ends do the same, or differ in parts that were chosen.

mod data;
mod ending;
mod opening;

use crate::script::{ACK, Call, Heard, Report, SYN, Sent, Step, ack, fin, syn};

/// A script and its name.
pub type Script = (&'static str, fn() -> Vec<Step>);

/// All of them.
pub fn all() -> impl Iterator<Item = &'static Script> {
    [opening::SCRIPTS, data::SCRIPTS, ending::SCRIPTS]
        .into_iter()
        .flatten()
}

fn then(mut steps: Vec<Step>, more: impl IntoIterator<Item = Step>) -> Vec<Step> {
    steps.extend(more);
    steps
}

fn open() -> Vec<Step> {
    vec![syn().into(), ack(1).into()]
}

fn connect() -> Vec<Step> {
    let answer = Sent {
        flags: SYN | ACK,
        ack: Some(Heard::All(0)),
        ..syn()
    };
    vec![Call::Connect.into(), answer.into()]
}

fn time_wait() -> Vec<Step> {
    then(open(), [Call::Close.into(), fin(1).into()])
}

fn report(code: u8) -> Report {
    Report {
        code,
        mtu: 0,
        ahead: 0,
    }
}
