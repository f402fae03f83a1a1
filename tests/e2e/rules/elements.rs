//! What is in the sets that a guest's rules change: listed, added, and deleted by hand.

use super::load::{Guest, NAME};
use crate::harness::build::Images;
use crate::harness::network::Network;
use crate::harness::process::{Ended, run};
use crate::harness::temporary::TemporaryFile;
use libtest_mimic::{Failed, Trial};

/// Ports that frames are sent to.
const ONE: u16 = 1001;
const TWO: u16 = 1002;
const RULES: &str = "table bridge filter {
	set blocked {
		type inet_service
		size 3
		flags dynamic, timeout
		timeout 1h
	}
	set seen {
		type inet_service
		size 100
		flags dynamic
	}
	chain forward {
		type filter hook forward priority 0; policy drop;
		udp dport @blocked drop
		update @seen { udp dport counter } accept
	}
}
";

pub fn trials(images: &'static Images, network: &Network) -> Vec<Trial> {
    let name = "rules::elements are listed, added and deleted by hand";
    vec![network.trial(name.to_owned(), move || by_hand(images))]
}

/// `outboard rules` with these words.
fn rules(guest: &Guest, images: &Images, words: &[&str]) -> Result<Ended, Failed> {
    let words: Vec<_> = ["rules"].iter().chain(words).copied().collect();
    run(&mut guest.runtime.outboard(images, &words))
}

/// What becomes of elements of the set of blocked ports.
fn blocked(guest: &Guest, images: &Images, verb: &str, elements: &str) -> Result<Ended, Failed> {
    let set = ["element", verb, NAME, "bridge", "filter", "blocked"];
    let elements = [elements].into_iter().filter(|text| !text.is_empty());
    let words: Vec<_> = set.into_iter().chain(elements).collect();
    rules(guest, images, &words)
}

fn expect(ended: &Ended, status: i32, says: &str) -> Result<(), Failed> {
    let is = ended.status == status && ended.stdout.contains(says);
    is.then_some(())
        .ok_or_else(|| format!("{ended:?}: not {status} and {says:?}").into())
}

fn by_hand(images: &Images) -> Result<(), Failed> {
    let file = TemporaryFile::new("rules.nft", 0)?;
    std::fs::write(&file.path, RULES)?;
    let guest = Guest::start(images, &[&format!("--rules={}", file.path.display())], &[])?;
    guest.expect(ONE, true)?;
    let both = format!("{{ {ONE} timeout 30s, {TWO} }}");
    expect(&blocked(&guest, images, "add", &both)?, 0, "")?;
    guest.expect(ONE, false)?;
    guest.expect(TWO, false)?;
    let listed = rules(&guest, images, &["list", NAME])?;
    expect(&listed, 0, "{ 1001 timeout 30s expires 2")?;
    expect(&listed, 0, "1002 expires 59m5")?;
    expect(&listed, 0, "{ 1001 counter packets 1 bytes ")?;
    // Other rules with the same set go on with what is in it.
    let load = ["load", NAME, &file.path.display().to_string()];
    expect(&rules(&guest, images, &load)?, 0, "")?;
    guest.expect(TWO, false)?;
    expect(&blocked(&guest, images, "delete", "{ 1001 }")?, 0, "")?;
    guest.expect(ONE, true)?;
    expect(&blocked(&guest, images, "delete", "{ 1001 }")?, 1, "")?;
    expect(&blocked(&guest, images, "add", "{ 1, 2, 3 }")?, 1, "")?;
    expect(&blocked(&guest, images, "flush", "")?, 0, "")?;
    guest.expect(TWO, true)?;
    let empty = blocked(&guest, images, "list", "")?;
    expect(&empty, 0, "set blocked")?;
    match empty.stdout.contains("elements") {
        true => Err(format!("{empty:?}: there is an element").into()),
        false => Ok(()),
    }
}
