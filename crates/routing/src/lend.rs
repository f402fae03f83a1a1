//! Servers of DHCP at a router's ports: one task gives each message to the server of the port by
//! which it came.

use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::future::poll_fn;
use core::net::{IpAddr, SocketAddr};
use net::dhcp::server::{ANSWER_MAX, Answer, CLIENT_PORT, PORT, Server};
use net::ipv4::Ipv4;
use net::ipv6::Ipv6;
use net::socket::Hub;
use net::stack::Stack;
use net::udp::{self, BindError, Datagram};

/// Has the servers at these ports of a stack answer what comes.
///
/// # Errors
/// If somebody has a socket at the servers' port.
pub fn lend(
    stack: Rc<RefCell<Stack<Ipv4, Ipv6>>>,
    mut servers: Vec<(usize, Server)>,
) -> Result<impl Future<Output = ()>, BindError> {
    let socket = stack.borrow_mut().udp.bind(None, PORT, 0)?;
    Ok(async move {
        loop {
            let received = poll_fn(|context| {
                let mut stack = stack.borrow_mut();
                stack.udp.poll_receive(socket, context)
            });
            // Only a socket with a peer is refused.
            if let Ok(datagram) = received.await {
                serve(&mut stack.borrow_mut(), socket, &mut servers, &datagram);
            }
        }
    })
}

/// Gives a message to its server, and sends the answer.
fn serve(
    stack: &mut Stack<Ipv4, Ipv6>,
    socket: udp::Socket,
    servers: &mut [(usize, Server)],
    datagram: &Datagram,
) {
    let IpAddr::V4(from) = datagram.from.ip() else {
        return;
    };
    let is_there = |(port, _): &&mut (usize, Server)| datagram.port.map(usize::from) == Some(*port);
    let Some((_, server)) = servers.iter_mut().find(is_there) else {
        return;
    };
    let answer = server.receive(datagram.frame.bytes(), from, stack.now());
    if let Ok(Some(answer)) = answer {
        send(stack, socket, server, &answer);
    }
}

/// Sends an answer by the port whose address is the server's. Without a buffer it is lost, as it
/// may be on its way: clients ask again.
fn send(stack: &mut Stack<Ipv4, Ipv6>, socket: udp::Socket, server: &Server, answer: &Answer) {
    let mut place = [0; ANSWER_MAX];
    let len = answer.write(server.config(), &mut place);
    let to = SocketAddr::new(answer.to.into(), CLIENT_PORT);
    let own = server.config().own().address();
    let _ = stack.send_datagram(socket, Some(own.into()), to, &place[..len]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::boxed::Box;
    use core::net::Ipv4Addr;
    use core::pin::pin;
    use core::task::{Context, Waker};
    use device::memory::{MemoryPort, Wire};
    use device::{HEADROOM, Pool};
    use net::address::Prefix;
    use net::arp::Detect;
    use net::dhcp::server::Config;
    use net::ethernet::Ethernet;
    use net::ip::Ip;
    use net::ipv4::PACKET_MAX;
    use net::tcp::Config as TcpConfig;
    use net::tcp::host::Tcp;
    use net::tcp::identity::Secret;
    use net::version::Addresses;
    use ports::Instant;
    use std::vec;

    /// The router's address at each port.
    const OWN: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 1, 0, 1)];

    fn ip(index: u8) -> (Ip<Ipv4, Ipv6>, Wire) {
        let (port, wire) = MemoryPort::new("net").with_index(index).split();
        let bytes = PACKET_MAX + HEADROOM;
        let large = Pool::new(vec![0; bytes].leak(), bytes);
        let mut v4 = Ipv4::new(large, 1);
        let own = Prefix::new(OWN[usize::from(index)], 24).unwrap();
        assert!(v4.add_address(own, Detect::Later, Instant::PAST));
        let ip = Ip::new(Ethernet::new(Box::new(port)), v4, Ipv6::new(large, 1));
        (ip, wire)
    }

    /// What a client without an address says to everybody: DISCOVER.
    fn discover() -> Vec<u8> {
        let mut message = vec![0; 240];
        message[..3].copy_from_slice(&[1, 1, 6]);
        message[28..34].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
        message[236..].copy_from_slice(&[0x63, 0x82, 0x53, 0x63]);
        message.extend([53, 1, 1, 255]);
        let udp = [&[0, 68, 0, 67, 0, 252, 0, 0][..], &message].concat();
        let mut header = [0; 20];
        header[..4].copy_from_slice(&[0x45, 0, 1, 16]);
        header[8..10].copy_from_slice(&[64, 17]);
        header[16..].fill(0xff);
        device::checksum::complete(&mut header, 0, 10);
        [&[0xff; 6][..], &[2, 0, 0, 0, 0, 9, 8, 0], &header, &udp].concat()
    }

    #[test]
    fn who_asks_is_answered_at_the_port_that_lends() {
        let ((first, public), (second, private)) = (ip(0), ip(1));
        let tcp = Tcp::new(TcpConfig::default(), Secret::new([1; 16]), [1; 16], 1000);
        let mut stack = Stack::new(first, tcp, Instant::PAST);
        stack.ip.add(second);
        let stack = Rc::new(RefCell::new(stack));
        let own = Prefix::new(OWN[1], 24).unwrap();
        let [first, last] = [100, 200].map(|last| Ipv4Addr::new(10, 1, 0, last));
        let server = Server::new(Config::new(own, first, last).unwrap());
        let mut task = pin!(lend(stack.clone(), vec![(1, server)]).unwrap());
        let mut context = Context::from_waker(Waker::noop());
        for (asked, answers) in [(&public, [0, 0]), (&private, [0, 1])] {
            asked.arrives(&discover());
            stack.borrow_mut().receive(Instant::PAST);
            assert!(task.as_mut().poll(&mut context).is_pending());
            stack.borrow_mut().send();
            let sent = [&public, &private].map(|wire| {
                let frames = wire.sent().into_iter();
                let offers = frames.filter(|frame| frame.get(34..38) == Some(&[0, 67, 0, 68]));
                let from = |frame: &Vec<u8>| {
                    frame[..6] == [0xff; 6] && frame[26..34] == [10, 1, 0, 1, 255, 255, 255, 255]
                };
                let offers: Vec<_> = offers.collect();
                assert!(offers.iter().all(from));
                offers.len()
            });
            assert_eq!(sent, answers);
        }
        assert!(lend(stack, Vec::new()).is_err(), "one task serves all");
    }
}
