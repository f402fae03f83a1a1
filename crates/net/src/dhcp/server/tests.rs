use super::*;
use crate::dhcp::{Client, MESSAGE_LEN, Output, Question};
use crate::ethernet::Mac;
use crate::testing::at;
use proptest::prelude::*;
use smoltcp::wire::DhcpMessageType as Kind;
use std::collections::BTreeMap;
use std::vec::Vec;

const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const NAMES: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 53);
const NOBODY: Ipv4Addr = Ipv4Addr::UNSPECIFIED;
const HOUR: u64 = 3_600_000;

fn range(first: u8, last: u8) -> Result<Config, RangeError> {
    let own = Prefix::new(OWN, 24).unwrap();
    let address = |last| Ipv4Addr::new(10, 0, 0, last);
    Config::new(own, address(first), address(last))
}

fn server(first: u8, last: u8) -> Server {
    let config = range(first, last).unwrap();
    Server::new(config.with_servers([NAMES]).with_mtu(1400))
}

fn mac(n: u8) -> Mac {
    Mac([2, 0, 0, 0, 9, n])
}

/// What a client says, made by hand.
struct Said {
    kind: u8,
    ours: Ipv4Addr,
    options: Vec<(u8, Vec<u8>)>,
    from: Ipv4Addr,
}

impl Said {
    fn new(kind: u8) -> Self {
        Self {
            kind,
            ours: NOBODY,
            options: Vec::new(),
            from: NOBODY,
        }
    }

    fn with(mut self, option: u8, value: &[u8]) -> Self {
        self.options.push((option, value.to_vec()));
        self
    }

    fn wants(self, address: Ipv4Addr) -> Self {
        self.with(50, &address.octets())
    }

    fn to(self, server: Ipv4Addr) -> Self {
        self.with(54, &server.octets())
    }

    fn at(mut self, ours: Ipv4Addr) -> Self {
        (self.ours, self.from) = (ours, ours);
        self
    }

    fn bytes(&self, mac: Mac) -> Vec<u8> {
        let mut bytes = std::vec![0; 240];
        bytes[..3].copy_from_slice(&[1, 1, 6]);
        bytes[12..16].copy_from_slice(&self.ours.octets());
        bytes[28..34].copy_from_slice(&mac.0);
        bytes[236..].copy_from_slice(&[0x63, 0x82, 0x53, 0x63]);
        bytes.extend([53, 1, self.kind]);
        for (kind, value) in &self.options {
            bytes.extend([*kind, value.len() as u8]);
            bytes.extend(value);
        }
        bytes.push(255);
        bytes
    }

    fn tell(&self, server: &mut Server, n: u8, ms: u64) -> Result<Option<Answer>, Ignored> {
        server.receive(&self.bytes(mac(n)), self.from, at(ms))
    }

    /// The kind of the answer, the address in it, and where it goes.
    fn ask(&self, server: &mut Server, n: u8, ms: u64) -> (Kind, Ipv4Addr, Ipv4Addr) {
        let answer = self.tell(server, n, ms).unwrap().unwrap();
        (answer.kind, answer.lent, answer.to)
    }
}

const DISCOVER: u8 = 1;
const REQUEST: u8 = 3;
const DECLINE: u8 = 4;
const RELEASE: u8 = 7;
const INFORM: u8 = 8;

/// What a client of this number is lent.
fn lent(server: &mut Server, n: u8, ms: u64) -> Ipv4Addr {
    let (kind, offered, to) = Said::new(DISCOVER).ask(server, n, ms);
    assert_eq!((kind, to), (Kind::Offer, Ipv4Addr::BROADCAST));
    let request = Said::new(REQUEST).wants(offered).to(OWN);
    let expected = (Kind::Ack, offered, Ipv4Addr::BROADCAST);
    assert_eq!(request.ask(server, n, ms), expected);
    offered
}

/// Has the server answer a question of our own client's.
fn exchange(server: &mut Server, client: &mut Client, asked: &Question, ms: u64) -> Option<Output> {
    let mut place = [0; MESSAGE_LEN];
    let len = asked.write(&mut place);
    let answer = server.receive(&place[..len], asked.ours, at(ms));
    let answer = answer.unwrap().unwrap();
    let to = if asked.ours == NOBODY {
        Ipv4Addr::BROADCAST
    } else {
        asked.ours
    };
    assert_eq!(answer.to, to);
    let mut place = [0xff; ANSWER_MAX];
    let len = answer.write(server.config(), &mut place);
    client.receive(&place[..len], PORT, at(ms))
}

fn question(output: Option<Output>) -> Question {
    match output {
        Some(Output::Send(question)) => question,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_goes_on_with_what_the_one_before_has_lent() {
    use crate::testing::{lasting, lying};
    let bytes = 4 * PLACE_BYTES;
    let memory = lasting(&std::vec![0; bytes]);
    let address = memory.as_ptr().addr();
    let wall = std::time::Duration::from_secs(1_700_000_000);
    let mut first = server(100, 102).with_shelf(Shelf::open(memory, 1, wall), at(0));
    let had = [1, 2, 3].map(|n| lent(&mut first, n, 0));
    let released = Said::new(RELEASE).at(had[1]).to(OWN);
    assert_eq!(released.tell(&mut first, 2, 0), Ok(None));
    let declined = Said::new(DECLINE).wants(had[2]).to(OWN);
    assert_eq!(declined.tell(&mut first, 3, 0), Ok(None));
    // It has another clock.
    let left = || lasting(&lying(address, bytes));
    let again = |first: u8, last: u8, wall| {
        server(first, last).with_shelf(Shelf::open(left(), 1, wall), at(0))
    };
    let mut second = again(100, 102, wall);
    assert_eq!(second.lent(at(0)), 1);
    assert_eq!(lent(&mut second, 1, 0), had[0]);
    assert_eq!(lent(&mut second, 9, 0), had[1]);
    // Of what is left, one is lent and somebody has the other one.
    let (kind, offered, _) = Said::new(DISCOVER).ask(&mut second, 8, 0);
    assert_eq!(
        (kind, offered),
        (Kind::Offer, had[2]),
        "declined ones are the last"
    );
    // An hour later, and of a range that has other addresses.
    let late = wall + LEASE_TIME;
    assert_eq!(again(100, 102, late).lent(at(0)), 0);
    let moved = again(99, 103, wall);
    assert_eq!(moved.lent(at(0)), 1);
    assert_eq!(again(1, 9, wall).lent(at(0)), 0);
}

#[test]
fn our_own_client_is_lent_an_address_and_renews_it() {
    let mut server = server(100, 200);
    let mut client = Client::new(mac(1), 1, at(0));
    let asked = question(client.poll(at(0)));
    let asked = question(exchange(&mut server, &mut client, &asked, 1));
    let Some(Output::Check(lease)) = exchange(&mut server, &mut client, &asked, 2) else {
        panic!("{asked:?}");
    };
    let own = lease.address.address();
    assert!((100..=200).contains(&own.octets()[3]) && lease.address.bits() == 24);
    assert_eq!((lease.router, lease.server), (Some(OWN), OWN));
    assert_eq!((&lease.servers[..], lease.mtu), (&[NAMES][..], Some(1400)));
    let times = lease.times.unwrap();
    assert_eq!((times.end, times.renewal), (LEASE_TIME, LEASE_TIME / 2));
    assert!(matches!(client.checked(true, at(10)), Some(Output::Use(_))));
    // T1, at the server alone, and T2, at all of them.
    for _ in 0..2 {
        let due = client.deadline().unwrap();
        let ms = due.0 / 1_000_000;
        let asked = question(client.poll(due));
        assert_eq!(asked.ours, own);
        let renewed = exchange(&mut server, &mut client, &asked, ms);
        assert!(matches!(renewed, Some(Output::Use(_))));
    }
    let again = Said::new(DISCOVER).with(61, &[&[1][..], &mac(1).0].concat());
    assert_eq!(again.ask(&mut server, 1, HOUR).1, own, "the same client");
}

#[test]
fn a_client_that_finds_the_address_taken_is_lent_another_one() {
    let mut server = server(100, 101);
    let first = lent(&mut server, 1, 0);
    let decline = Said::new(DECLINE).wants(first).to(OWN);
    assert_eq!(
        decline.tell(&mut server, 2, 0),
        Err(Ignored::Unknown),
        "not its own"
    );
    assert_eq!(decline.tell(&mut server, 1, 0), Ok(None));
    assert_eq!(decline.tell(&mut server, 1, 0), Err(Ignored::Unknown));
    let second = lent(&mut server, 1, 1);
    assert_ne!(second, first);
    // It comes back before nobody gets any.
    assert_eq!(lent(&mut server, 2, 2), first);
    assert_eq!(
        Said::new(DISCOVER).tell(&mut server, 3, 3),
        Err(Ignored::Full)
    );
}

#[test]
fn a_full_range_gives_up_what_ended_first() {
    let mut server = server(100, 102);
    let all = [1, 2, 3].map(|n| lent(&mut server, n, u64::from(n) * 1000));
    let late = HOUR + 2500;
    for ms in [5000, HOUR] {
        assert_eq!(
            Said::new(DISCOVER).tell(&mut server, 4, ms),
            Err(Ignored::Full)
        );
    }
    assert_eq!(lent(&mut server, 4, late), all[0]);
    // Who comes back finds its own, if nobody else has it.
    assert_eq!(lent(&mut server, 2, late), all[1]);
    assert_eq!(
        Said::new(DISCOVER).tell(&mut server, 1, late),
        Err(Ignored::Full)
    );
}

#[test]
fn offers_keep_nobody_out() {
    let mut server = server(100, 102);
    let kept = lent(&mut server, 1, 0);
    for n in 10..200 {
        let (_, offered, _) = Said::new(DISCOVER).ask(&mut server, n, 10);
        assert_ne!(offered, kept);
    }
    let own = lent(&mut server, 2, 20);
    let late = Said::new(REQUEST).wants(own).to(OWN);
    assert_eq!(late.ask(&mut server, 199, 30).0, Kind::Nak);
}

#[test]
fn a_wish_is_heeded_if_nobody_had_the_address() {
    let mut server = server(100, 200);
    let wish = Ipv4Addr::new(10, 0, 0, 150);
    let discover = Said::new(DISCOVER).wants(wish);
    assert_eq!(discover.ask(&mut server, 1, 0).1, wish);
    assert_ne!(discover.ask(&mut server, 2, 0).1, wish);
    for other in [
        OWN,
        Ipv4Addr::new(10, 0, 0, 99),
        Ipv4Addr::BROADCAST,
        NOBODY,
    ] {
        let (_, offered, _) = Said::new(DISCOVER).wants(other).ask(&mut server, 3, 0);
        assert!((100..=200).contains(&offered.octets()[3]));
    }
}

#[test]
fn who_starts_again_keeps_the_address_or_is_told() {
    let mut server = server(100, 200);
    let own = lent(&mut server, 1, 0);
    let reboot = Said::new(REQUEST).wants(own);
    let expected = (Kind::Ack, own, Ipv4Addr::BROADCAST);
    assert_eq!(reboot.ask(&mut server, 1, 9), expected);
    assert_eq!(reboot.ask(&mut server, 2, 9).0, Kind::Nak, "another's");
    let nak = (Kind::Nak, NOBODY, Ipv4Addr::BROADCAST);
    let moved = Said::new(REQUEST).wants(Ipv4Addr::new(192, 168, 0, 7));
    assert_eq!(moved.ask(&mut server, 2, 9), nak);
    // Another server may know.
    for other in [Ipv4Addr::new(10, 0, 0, 9), Ipv4Addr::new(10, 0, 0, 130)] {
        let said = Said::new(REQUEST).wants(other).tell(&mut server, 3, 9);
        assert_eq!(said, Err(Ignored::Unknown));
    }
}

#[test]
fn a_server_that_has_forgotten_goes_on_with_who_renews() {
    let mut server = server(100, 200);
    let own = Ipv4Addr::new(10, 0, 0, 150);
    let renew = Said::new(REQUEST).at(own);
    assert_eq!(renew.ask(&mut server, 1, 0), (Kind::Ack, own, own));
    let nak = (Kind::Nak, NOBODY, Ipv4Addr::BROADCAST);
    assert_eq!(
        renew.ask(&mut server, 2, 0),
        nak,
        "somebody else has it by now"
    );
    let other = Said::new(REQUEST).at(Ipv4Addr::new(10, 0, 0, 151));
    assert_eq!(other.ask(&mut server, 1, 0), nak, "it has one already");
}

#[test]
fn what_is_released_is_kept_for_its_holder_while_there_are_others() {
    let mut server = server(100, 101);
    let own = lent(&mut server, 1, 0);
    let release = Said::new(RELEASE).at(own).to(OWN);
    let mut forged = Said::new(RELEASE).at(own).to(OWN);
    forged.from = Ipv4Addr::new(10, 0, 0, 101);
    assert_eq!(forged.tell(&mut server, 1, 1), Err(Ignored::Address));
    assert_eq!(release.tell(&mut server, 2, 1), Err(Ignored::Unknown));
    assert_eq!(release.tell(&mut server, 1, 1), Ok(None));
    assert_ne!(lent(&mut server, 2, 2), own);
    assert_eq!(lent(&mut server, 1, 3), own);
    assert_eq!(release.tell(&mut server, 1, 4), Ok(None));
    assert_eq!(lent(&mut server, 3, 5), own);
}

#[test]
fn who_has_an_address_learns_the_rest_of_the_network() {
    let mut server = server(100, 101);
    let own = Ipv4Addr::new(10, 0, 0, 7);
    let inform = Said::new(INFORM).at(own);
    let answer = inform.tell(&mut server, 1, 0).unwrap().unwrap();
    assert_eq!(
        (answer.kind, answer.lent, answer.to),
        (Kind::Ack, NOBODY, own)
    );
    let mut place = [0; ANSWER_MAX];
    let len = answer.write(server.config(), &mut place);
    let has = |option: &[u8]| {
        place[240..len]
            .windows(option.len())
            .any(|part| part == option)
    };
    assert!(has(&[3, 4, 10, 0, 0, 1]) && !has(&[51, 4]));
    for other in [OWN, NOBODY, Ipv4Addr::new(8, 8, 8, 8)] {
        let said = Said::new(INFORM).at(other).tell(&mut server, 1, 0);
        assert_eq!(said, Err(Ignored::Address));
    }
}

#[test]
fn an_offer_ends_once_another_server_is_chosen() {
    let mut server = server(100, 100);
    Said::new(DISCOVER).ask(&mut server, 1, 0);
    let chosen = Said::new(REQUEST).to(Ipv4Addr::new(10, 0, 0, 2));
    let chosen = chosen.wants(Ipv4Addr::new(10, 0, 0, 77));
    assert_eq!(chosen.tell(&mut server, 1, 1), Err(Ignored::Server));
    assert_eq!(lent(&mut server, 2, 1), Ipv4Addr::new(10, 0, 0, 100));
}

#[test]
fn messages_that_cannot_be_are_not_heeded() {
    let mut server = server(100, 101);
    let good = Said::new(DISCOVER).bytes(mac(1));
    let mut check = |place: usize, byte: u8, expected| {
        let mut bytes = good.clone();
        bytes[place] = byte;
        assert_eq!(
            server.receive(&bytes, NOBODY, at(0)),
            Err(expected),
            "{place}"
        );
    };
    // Op, kind and length of link addresses, magic, type, a group as a station, a relay.
    for (place, byte) in [
        (0, 2),
        (1, 6),
        (2, 16),
        (236, 0),
        (242, 5),
        (242, 0),
        (28, 3),
    ] {
        check(place, byte, Ignored::Malformed);
    }
    check(27, 9, Ignored::Relayed);
    let long = Said::new(DISCOVER).with(61, &[7; 137]);
    assert_eq!(long.tell(&mut server, 1, 0), Err(Ignored::Malformed));
    let longest = Said::new(DISCOVER).with(61, &[7; 136]);
    let answer = longest.tell(&mut server, 1, 0).unwrap().unwrap();
    let mut place = [0; ANSWER_MAX];
    assert_eq!(answer.write(server.config(), &mut place), ANSWER_MAX);
    assert_eq!(answer.write(server.config(), &mut place[..300]), 0);
}

#[test]
fn a_range_is_of_stations_in_the_network() {
    assert!(range(100, 200).is_ok() && range(1, 254).is_ok());
    assert_eq!(range(200, 100), Err(RangeError::Order));
    for (first, last) in [(0, 9), (9, 255)] {
        assert_eq!(range(first, last), Err(RangeError::Network));
    }
    let own = Prefix::new(OWN, 8).unwrap();
    let config = |last: [u8; 4]| Config::new(own, Ipv4Addr::new(10, 0, 0, 2), last.into());
    assert_eq!(config([11, 0, 0, 9]), Err(RangeError::Network));
    assert_eq!(config([10, 0, 4, 2]), Err(RangeError::TooMany));
    assert!(config([10, 0, 4, 1]).is_ok());
    // Its own address is nobody else's.
    let mut server = server(1, 2);
    assert_eq!(lent(&mut server, 1, 0), Ipv4Addr::new(10, 0, 0, 2));
    assert_eq!(
        Said::new(DISCOVER).tell(&mut server, 2, 0),
        Err(Ignored::Full)
    );
}

/// One step of hostile clients: who, what, the address in it, whether it names us, and the time
/// that passes.
type Step = (u8, u8, u8, u8, u64);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let passed = prop_oneof![4 => 0..1000u64, 1 => 0..HOUR];
    let step = (0..12u8, 0..9u8, 98..108u8, 0..4u8, passed);
    proptest::collection::vec(step, 0..300)
}

proptest! {
    #[test]
    fn no_address_is_lent_twice_at_a_time(steps in steps()) {
        let mut server = server(100, 105);
        // Who has which address until when.
        let mut model: BTreeMap<Ipv4Addr, (u8, u64)> = BTreeMap::new();
        let mut now = 0;
        for (n, kind, last, shape, passed) in steps {
            now += passed;
            let address = Ipv4Addr::new(10, 0, 0, last);
            let mut said = Said::new(kind);
            if shape & 1 == 0 || kind == DECLINE {
                said = said.wants(address);
            }
            if shape & 2 == 0 || kind == DECLINE || kind == RELEASE {
                said = said.to(OWN);
            }
            if kind == RELEASE || (kind != DECLINE && shape & 1 == 1) {
                said = said.at(address);
            }
            match said.tell(&mut server, n, now) {
                Ok(Some(answer)) if answer.kind != Kind::Nak && !answer.lent.is_unspecified() => {
                    prop_assert!((100..=105).contains(&answer.lent.octets()[3]));
                    let held = model.get(&answer.lent).filter(|held| held.1 > now);
                    prop_assert!(held.is_none_or(|held| held.0 == n), "{:?}", answer);
                    if answer.kind == Kind::Ack {
                        model.insert(answer.lent, (n, now + HOUR));
                        let current = model.values().filter(|held| held.1 > now);
                        prop_assert_eq!(current.filter(|held| held.0 == n).count(), 1);
                    }
                }
                Ok(None) => {
                    let held = model.remove(&address);
                    prop_assert!(held.is_none_or(|held| held.0 == n || held.1 <= now));
                }
                _ => {}
            }
        }
    }

    #[test]
    fn random_bytes_never_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        kind in 0u8..9,
    ) {
        let mut server = server(100, 101);
        let _ = server.receive(&bytes, NOBODY, at(0));
        // Some of them in a message that almost is one.
        let mut message = Said::new(kind).bytes(mac(1));
        message.pop();
        message.extend(&bytes);
        if let Ok(Some(answer)) = server.receive(&message, NOBODY, at(0)) {
            let mut place = [0; ANSWER_MAX];
            prop_assert!(answer.write(server.config(), &mut place) > 0);
        }
    }
}
