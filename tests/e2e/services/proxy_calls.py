"""Calls of sockets, one behind the other, whose results are printed: the same on any stack.

Ports that are chosen, and times, are not printed.
"""

import errno
import os
import select
import socket
import struct
import time

HOST = "127.0.0.1"
count = 0


def say(name, work):
    """Prints what a call returns, or its error."""
    global count
    count += 1
    try:
        result = work()
    except OSError as error:
        result = errno.errorcode.get(error.errno, error.args)
    print(count, name, result, flush=True)


def polled(one, wait=0):
    """What poll says of a socket; a connection that is reset may also say that it can be read."""
    poller = select.poll()
    poller.register(one, select.POLLIN | select.POLLOUT | select.POLLRDHUP)
    found = poller.poll(wait)
    flags = found[0][1] if found else 0
    names = ["IN", "OUT", "ERR", "HUP", "RDHUP"]
    return [name for name in names if flags & getattr(select, "POLL" + name)]


def settle():
    """Lets what is under way arrive."""
    time.sleep(0.1)


def pair():
    """Both ends of a connection, and the listener."""
    listener = socket.socket()
    listener.bind((HOST, 0))
    listener.listen(5)
    client = socket.create_connection(listener.getsockname())
    server, _ = listener.accept()
    return client, server, listener


def options():
    """What options are, and become."""
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        one = socket.socket(socket.AF_INET, kind)
        for level, name in [(1, 3), (1, 4), (1, 38), (1, 39), (1, 2), (1, 9), (1, 15), (1, 30)]:
            say(f"getsockopt {level} {name}", lambda: one.getsockopt(level, name))
        say("a level that is none", lambda: one.getsockopt(200, 1))
        say("reuse", lambda: one.setsockopt(1, 2, 1))
        say("reuse is", lambda: one.getsockopt(1, 2))
        say("linger", lambda: one.setsockopt(1, 13, struct.pack("ii", 1, 7)))
        say("linger is", lambda: struct.unpack("ii", one.getsockopt(1, 13, 8)))
        say("too short", lambda: one.setsockopt(1, 2, b"\1"))
        one.close()
    one = socket.socket()
    say("nodelay", lambda: one.setsockopt(6, 1, 1))
    say("nodelay is", lambda: one.getsockopt(6, 1))
    say("buffer", lambda: one.setsockopt(1, 8, 50000))
    say("buffer is", lambda: one.getsockopt(1, 8))
    say("only the other version", lambda: one.setsockopt(41, 26, 1))
    say("nodelay of a datagram", lambda: socket.socket(2, 2).setsockopt(6, 1, 1))


def kinds():
    """Which sockets there are."""
    for family in (2, 10):
        for kind in (1, 2):
            for protocol in (0, 6, 17, 99):
                say(
                    f"socket {family} {kind} {protocol}",
                    lambda: socket.socket(family, kind, protocol).type,
                )
    say("flags", lambda: socket.socket(2, 1 | socket.SOCK_NONBLOCK).getblocking())


def states():
    """Calls in states in which they make no sense."""
    one = socket.socket()
    say("no peer", one.getpeername)
    say("own name", one.getsockname)
    say("accept without listen", one.accept)
    say("bind", lambda: one.bind((HOST, 0)))
    say("bind again", lambda: one.bind((HOST, 0)))
    say("listen", lambda: one.listen(1))
    say("listen again", lambda: one.listen(2))
    say("connect", lambda: one.connect(one.getsockname()))
    say("polled", lambda: polled(one))
    other = socket.socket()
    say("in use", lambda: other.bind(one.getsockname()))
    port = one.getsockname()[1]
    six = socket.socket(socket.AF_INET6)
    say("in use by the other version", lambda: six.bind(("::", port)))
    six.close()
    six = socket.socket(socket.AF_INET6)
    six.setsockopt(41, 26, 1)
    say("only the other version", lambda: six.bind(("::", port)))
    one.close()
    settle()
    refused = socket.socket()
    say("refused", lambda: refused.connect((HOST, port)))
    datagrams = socket.socket(2, 2)
    say("listen for datagrams", lambda: datagrams.listen(1))
    say("accept datagrams", datagrams.accept)


def bytes_of_a_connection():
    """What is read, and in which pieces it may be."""
    client, server, listener = pair()
    say("names agree", lambda: client.getsockname() == server.getpeername())
    say("names agree", lambda: client.getpeername() == server.getsockname())
    say("connect again", lambda: client.connect(listener.getsockname()))
    say("sent", lambda: client.send(b"hello"))
    settle()
    say("peeked", lambda: server.recv(3, socket.MSG_PEEK))
    say("polled", lambda: polled(server))
    say("read", lambda: server.recv(100))
    say("nothing", lambda: server.recv(1, socket.MSG_DONTWAIT))
    client.sendall(b"ab")
    settle()
    client.sendall(b"cd")
    say("all of it", lambda: server.recv(4, socket.MSG_WAITALL))
    say("vectors", lambda: client.sendmsg([b"12", b"34"]))
    settle()
    say("vectors", lambda: server.recvmsg(3)[0])
    say("the rest", lambda: server.recv(9))
    say("half closed", lambda: client.shutdown(socket.SHUT_WR))
    settle()
    say("the end", lambda: server.recv(1))
    say("polled", lambda: polled(server))
    say("the other half", lambda: server.send(b"still"))
    settle()
    say("the other half", lambda: client.recv(9))
    say("no more", lambda: client.send(b"x", socket.MSG_NOSIGNAL))
    server.close()
    settle()
    say("closed", lambda: client.recv(1))
    say("polled", lambda: polled(client))


def endings():
    """How a connection ends."""
    client, server, _ = pair()
    server.setsockopt(1, 13, struct.pack("ii", 1, 0))
    server.close()
    settle()
    say("reset", lambda: client.recv(1))
    client, server, _ = pair()
    client.sendall(b"unread")
    settle()
    server.close()
    settle()
    say("reset by what was not read", lambda: client.recv(1))
    client, server, _ = pair()
    server.close()
    settle()
    say("closed", lambda: client.recv(1))
    say("first", lambda: client.recv(1))
    client.shutdown(socket.SHUT_RDWR)
    settle()
    say("connected again behind its end", lambda: client.connect((HOST, 9)))


def without_waiting():
    """Calls that do not wait."""
    listener = socket.socket()
    listener.bind((HOST, 0))
    listener.listen(5)
    listener.setblocking(False)
    say("none yet", listener.accept)
    client = socket.socket()
    client.setblocking(False)
    say("begun", lambda: client.connect_ex(listener.getsockname()) in (0, errno.EINPROGRESS))
    say("open", lambda: polled(client, 1000))
    say("no error", lambda: client.getsockopt(1, 4))
    settle()
    say("it waits", lambda: polled(listener, 1000))
    server, _ = listener.accept()
    say("it blocks", server.getblocking)
    say("none left", listener.accept)
    port = listener.getsockname()[1]
    listener.close()
    settle()
    failed = socket.socket()
    failed.setblocking(False)
    failed.connect_ex((HOST, port))
    settle()
    say("failed", lambda: "ERR" in polled(failed, 1000) and "HUP" in polled(failed, 1000))
    say("why", lambda: errno.errorcode[failed.getsockopt(1, 4)])
    say("once", lambda: failed.getsockopt(1, 4))
    timed = socket.socket()
    timed.bind((HOST, 0))
    timed.listen(1)
    timed.settimeout(0.05)
    try:
        timed.accept()
    except socket.timeout:
        print("in time", flush=True)


def in_time():
    """Calls that wait no longer than the socket says."""
    short = struct.pack("ll", 0, 100000)
    one = socket.socket(2, 2)
    one.bind((HOST, 0))
    one.setsockopt(1, socket.SO_RCVTIMEO, short)
    say("no datagram", lambda: one.recvfrom(9))
    say("no message", lambda: one.recvmsg(9))
    listener = socket.socket()
    listener.bind((HOST, 0))
    listener.listen(1)
    listener.setsockopt(1, socket.SO_RCVTIMEO, short)
    say("no connection", listener.accept)


def one_direction():
    """A side that reads no more."""
    client, server, _ = pair()
    say("reads no more", lambda: server.shutdown(socket.SHUT_RD))
    client.sendall(b"nobody reads this")
    settle()
    say("writes", lambda: server.send(b"still"))
    settle()
    say("reads", lambda: client.recv(9))
    say("writes", lambda: client.send(b"more"))


def across_processes():
    """Sockets of a parent and its children."""
    listener = socket.socket()
    listener.bind((HOST, 0))
    listener.listen(5)
    child = os.fork()
    if child == 0:
        one, _ = listener.accept()
        one.sendall(b"from a child")
        os._exit(0)
    client = socket.create_connection(listener.getsockname())
    say("a child", lambda: client.recv(99, socket.MSG_WAITALL))
    os.waitpid(child, 0)
    say("its end", lambda: client.recv(1))
    copy = os.dup(listener.fileno())
    listener.close()
    settle()
    again = socket.socket(fileno=copy)
    client = socket.create_connection(again.getsockname())
    say("a duplicate listens", lambda: again.accept()[1] == client.getsockname())


def datagrams():
    """Datagrams, with addresses and without."""
    one = socket.socket(2, 2)
    one.bind((HOST, 0))
    two = socket.socket(2, 2)
    say("sent", lambda: two.sendto(b"hello", one.getsockname()))
    settle()
    say("polled", lambda: polled(one))
    say("peeked", lambda: one.recvfrom(2, socket.MSG_PEEK)[0])
    got, sender = one.recvfrom(100)
    say("received", lambda: got)
    say("nothing", lambda: one.recvfrom(1, socket.MSG_DONTWAIT))
    say("port", lambda: sender[1] == two.getsockname()[1])
    say("answered", lambda: one.sendto(b"back", sender))
    settle()
    say("answer", lambda: two.recvfrom(9)[0])
    say("connected", lambda: two.connect(one.getsockname()))
    say("peer", lambda: two.getpeername() == one.getsockname())
    say("sent", lambda: two.send(b"12345"))
    settle()
    say("cut", lambda: one.recvmsg(3)[0::2])
    say("empty", lambda: two.send(b""))
    settle()
    say("empty", lambda: one.recvfrom(9)[0])
    for part in (b"a", b"b", b"c"):
        two.send(part)
    settle()
    say("in order", lambda: [one.recv(9) for _ in range(3)])
    say("too long", lambda: two.sendto(bytes(70000), one.getsockname()))
    say("another version", lambda: two.sendto(b"x", ("::1", 9)))


for part in (
    kinds,
    options,
    states,
    bytes_of_a_connection,
    endings,
    without_waiting,
    in_time,
    one_direction,
    across_processes,
    datagrams,
):
    print(part.__name__, flush=True)
    part()
print("the end")
