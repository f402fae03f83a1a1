//! Images that speak IP over cards: the router, and the stack of an application in another image.

use super::{
    BULK, Cards, Guest, HOSTS, OnCards, PATIENCE, PRIVATE, PUBLIC, ROUTER, address, card, faults,
    transfer, until,
};
use crate::harness::build::Images;
use crate::harness::temporary::TemporaryFile;
use crate::services::{SERVICE, router};
use libtest_mimic::Failed;
use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;
use testbed::segment::Segment;

/// The router's address in a VLAN of the first wire, which has a Linux of its own.
const IN_VLAN: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 9);
const BEHIND_A_VLAN: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 1);
const VLAN: &str = "vlan100";
/// Rules of the router.
const FROM_INSIDE: &str = "table inet f { chain c { type filter hook forward priority 0; policy \
                           drop; iifname { \"private\", \"private.100\" } accept; ct state \
                           established accept; }\n}
table ip n { chain c { type nat hook postrouting priority srcnat; oifname \"public\" masquerade; }
}";

/// Who is on the first wire goes out, without a tag and with one that Linux's own VLAN puts on.
pub fn routed(images: &Images, cards: &Cards, host: &str) -> Result<(), Failed> {
    let [private, public] = &cards.guests;
    let rules = TemporaryFile::new("rules", 0)?;
    fs::write(&rules.path, FROM_INSIDE)?;
    let devices = [
        format!("--pci:private={private}"),
        format!("--pci:public={public}"),
        format!("--rules={}", rules.path.display()),
    ];
    let image = images.appliance("router", cards.kind.variant());
    let own4 = [
        "--vlan:private=100",
        &*format!("--ipv4:private={ROUTER}/24"),
        &*format!("--ipv4:private.100={IN_VLAN}/24"),
        &*format!("--ipv4:public={}/24", router::PUBLIC),
    ];
    let own = [&own4[..], &router::OWN6].concat();
    let guest = Guest::start(images, host, &devices, image, &own)?;
    let networks = [&cards.near, &cards.far];
    let names = [card(&cards.near)?.0, card(&cards.far)?.0];
    let went = router::speak6([(networks[0], &names[0]), (networks[1], &names[1])])
        .and_then(|()| router::go_out(networks, BULK));
    // Without IPv6 nobody says anything by himself, which other tests want.
    for (segment, name) in networks.into_iter().zip(&names) {
        let path = format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6");
        segment.run(|| fs::write(path, "1"))?;
    }
    went?;
    let tagged = Segment::new()?;
    cards.near.netlink(|netlink| {
        netlink.add_vlan(VLAN, &names[0], 100)?;
        netlink.move_to(VLAN, tagged.as_fd())
    })?;
    tagged.configure(VLAN, address(BEHIND_A_VLAN))?;
    tagged.netlink(|netlink| netlink.add_gateway(IN_VLAN.into()))?;
    let to = [&tagged, &cards.far];
    router::reaches(to, router::SERVER.into(), router::PUBLIC.into(), BULK)?;
    // Its ports come in another order than the firewall's.
    guest.expect_sound(PRIVATE)?;
    guest.expect_sound(PUBLIC)
}

/// The application is on the other host. It outlives the stack, whose next run has the card.
pub fn sockets(images: &Images, cards: &Cards, host: &str) -> Result<(), Failed> {
    let other = HOSTS[usize::from(host == HOSTS[0])];
    let own = format!("{SERVICE}/24");
    let system = OnCards::stack(images, [host, other], &cards.guests[0], &own)?;
    let comes_back = || {
        let mut stream = None;
        until("a connection", || {
            let to = (SERVICE, 7).into();
            let connect = || TcpStream::connect_timeout(&to, Duration::from_secs(3));
            stream = cards.near.run(connect).ok();
            Ok(stream.is_some())
        })?;
        let stream = stream.ok_or("no connection")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        transfer(&stream, &stream, BULK)
    };
    comes_back()?;
    let before = faults()?;
    system.kill()?;
    comes_back()?;
    system.down()?;
    match faults()? == before {
        true => Ok(()),
        false => Err("a card reached for memory that it no longer had".into()),
    }
}
