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
