"""Calls of sockets in an order that a seed chooses, whose results are printed: the same on any stack.

    python3 proxy_sequences.py FIRST COUNT [SECONDS [PATH]]
    python3 proxy_sequences.py peer PATH

It makes the sequences FIRST to FIRST + COUNT - 1, all at a time, each in a process of its own with
ports of its own. After each call, what is under way has so many SECONDS to arrive. Calls of which
docs/proxy.md says that they differ from Linux are not made; `skipped` says which.

Without a PATH, all sockets are those of one host, which meet at its addresses for itself. With one,
half of them are those of a peer, which is this program as `peer` in another network: it does there
what it is asked for at a socket of unix(7) of this PATH.
"""

import errno
import os
import random
import select
import signal
import socket
import struct
import sys
import tempfile
import time
from multiprocessing.connection import Client, Listener

CALLS = 40
PLACES = 6
PORTS = 2
V4, V6 = socket.AF_INET, socket.AF_INET6
STREAM, DGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM
# Of a host that is alone; of one that has a peer, and of the peer.
ALONE = {V4: "127.0.0.1", V6: "::1"}
OWN = {V4: "10.0.0.2", V6: "fd00::2"}
PEERS = {V4: "10.0.0.1", V6: "fd00::1"}
# How long both may take to have their addresses, in seconds.
PATIENCE = 10
ANY = {V4: "0.0.0.0", V6: "::"}
# Who waits longer than this is told that there is nothing.
SHORT = struct.pack("ll", 0, 60000)
# Level, name, and values.
OPTIONS = [
    (1, 2, (0, 1)),
    (1, 9, (0, 1, 7)),
    (1, 15, (0, 1)),
    (1, 8, (1, 5000, 100000)),
    (6, 1, (0, 1, 2)),
    (6, 4, (0, 5, 40000)),
    (6, 13, (1,)),
    (0, 1, (16,)),
    (0, 8, (0, 1, 9)),
    (41, 26, (0, 1)),
    (41, 49, (0, 1)),
    (99, 1, (1,)),
]
# What is asked that needs no call to have been made: SO_TYPE, SO_ERROR, SO_PROTOCOL, SO_DOMAIN,
# SO_ACCEPTCONN, SO_REUSEADDR, TCP_NODELAY, IP_PKTINFO, IPV6_V6ONLY.
ASKED = [(1, 3), (1, 4), (1, 38), (1, 39), (1, 30), (1, 2), (6, 1), (0, 8), (41, 26)]


class Near:
    """A socket of this process."""

    def __init__(self, one):
        self.one = one
        # What blocks waits for a short time.
        one.setsockopt(1, socket.SO_RCVTIMEO, SHORT)
        one.setsockopt(1, socket.SO_SNDTIMEO, SHORT)

    def __getattr__(self, name):
        return getattr(self.one, name)

    def accept(self):
        # socket.accept takes the flags of the listening socket's timeout, and not O_NONBLOCK.
        one, peer = self.one.accept()
        return Near(one), peer

    def set_blocking(self, blocks):
        os.set_blocking(self.one.fileno(), blocks)

    def polled(self, asked):
        """What poll(2) says of it."""
        poller = select.poll()
        poller.register(self.one, asked)
        return sum(flags for _, flags in poller.poll(0))


class Far:
    """A socket of the peer's, under its number there."""

    def __init__(self, peer, number):
        self.peer, self.number = peer, number

    def __getattr__(self, name):
        return lambda *arguments: self.peer.ask(self.number, name, *arguments)

    def accept(self):
        number, peer = self.peer.ask(self.number, "accept")
        return Far(self.peer, number), peer


class Peer:
    """The other process, as this one sees it."""

    def __init__(self, path):
        self.connection = Client(path, "AF_UNIX")

    def ask(self, number, name, *arguments):
        self.connection.send((number, name, arguments))
        error, result = self.connection.recv()
        if error is not None:
            raise OSError(error, os.strerror(error))
        return result

    def socket(self, family, kind):
        return Far(self, self.ask(None, "socket", family, kind))


def serve(connection):
    """Does what somebody asks for, as long as he does."""
    ones = []

    def keep(one):
        ones.append(one)
        return len(ones) - 1

    def do(number, name, arguments):
        if number is None:
            return keep(Near(socket.socket(*arguments)))
        result = getattr(ones[number], name)(*arguments)
        return (keep(result[0]), result[1]) if name == "accept" else result

    while True:
        try:
            asked = connection.recv()
        except EOFError:
            return
        try:
            said = None, do(*asked)
        except OSError as error:
            said = error.errno, None
        connection.send(said)


class Place:
    """A socket, and what has been asked of it so far."""

    def __init__(self, one, family, kind, blocks, hosts):
        self.one, self.family, self.kind, self.blocks = one, family, kind, blocks
        self.hosts = hosts
        self.state = "idle"
        self.is_bound = False
        self.is_shut = False
        # By accept.
        self.has_come = False


class Sequence:
    """Calls that a seed chooses."""

    def __init__(self, seed, seconds, path):
        self.random = random.Random(seed)
        self.peer = Peer(path) if path else None
        self.places = [None] * PLACES
        self.seconds = seconds
        # Of nobody else: sequences run at the same time.
        self.first_port = 20000 + seed % 1000 * 10

    def run(self):
        for number in range(CALLS):
            # All choices first: none depends on a result.
            at, other = self.random.randrange(PLACES), self.random.randrange(PLACES)
            call = self.random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
            draws = [self.random.random() for _ in range(6)]
            fit = [
                number
                for number, place in enumerate(self.places)
                if place and place.state == PREFERRED.get(call)
            ]
            # So that calls are made that make sense, most of the time.
            if fit and draws[5] < 0.8:
                at = fit[other % len(fit)]
            if self.places[at] is None:
                call = "make"
            result = self.attempt(call, at, other, draws)
            print(number, call, at, other, result, flush=True)
        for place in self.places:
            if place is not None:
                place.one.close()

    def attempt(self, call, at, other, draws):
        place = self.places[at]
        if call in ("set", "get", "connect") and place.has_come:
            if place.is_shut and self.is_left(place):
                return skipped("one that came and is over")
        try:
            result = getattr(self, call)(at, self.places[other], draws)
        except OSError as error:
            result = errno.errorcode.get(error.errno, str(error))
        if call in CAUSES:
            time.sleep(self.seconds)
        return result

    def make(self, at, _, draws):
        if self.places[at] is not None:
            return "taken"
        family = (V4, V6)[draws[0] < 0.4]
        kind = (STREAM, DGRAM)[draws[1] < 0.35]
        if self.peer and draws[3] < 0.5:
            one, hosts = self.peer.socket(family, kind), PEERS
        else:
            one, hosts = Near(socket.socket(family, kind)), OWN if self.peer else ALONE
        blocks = draws[2] < 0.5
        one.set_blocking(blocks)
        self.places[at] = Place(one, family, kind, blocks, hosts)
        return "made"

    def address(self, family, hosts, draws, aims=0):
        """One of a few addresses, so that sockets meet."""
        host = (hosts[family], ANY[family])[draws[0] < 0.3]
        if draws[4] < aims:
            for place in self.places:
                if place and place.family == family and place.state == "listening":
                    return place.hosts[family], place.one.getsockname()[1]
        # Each version has its own: where one listens, the other is not refused but reset.
        own = 0 if family == V4 else PORTS
        port = self.first_port + own + int(draws[1] * PORTS)
        return host, port

    def bind(self, at, _, draws):
        place = self.places[at]
        if place.state != "idle":
            return skipped("bind behind connect")
        place.one.bind(self.address(place.family, place.hosts, draws))
        place.is_bound = True
        return place.one.getsockname()[:2]

    def listen(self, at, _, draws):
        place = self.places[at]
        if place.kind == STREAM and not place.is_bound and place.state == "idle":
            place.one.bind(self.address(place.family, place.hosts, draws[1:]))
            place.is_bound = True
        # Of a queue that is full the proxy takes more: there is room for all sockets of a sequence.
        place.one.listen(int(draws[0] * 4) + PLACES)
        place.state = "listening"

    def connect(self, at, _, draws):
        place = self.places[at]
        if place.kind == STREAM and place.is_bound and place.state == "idle":
            return skipped("bind before connect")
        if place.kind == STREAM and place.state in ("failed", "opening") and not self.is_open(place):
            return skipped("a second connect")
        if place.kind == DGRAM and place.one.polled(select.POLLIN) & select.POLLIN:
            return skipped("a peer behind what others have sent")
        host, port = self.address(place.family, self.either(place, draws), draws, 0.8)
        before, place.state = place.state, "failed"
        try:
            place.one.connect((host, port))
        except OSError as error:
            if error.errno not in (errno.EINPROGRESS, errno.ECONNREFUSED, errno.EALREADY):
                place.state = before
            elif error.errno == errno.EINPROGRESS or not place.blocks:
                place.state = "opening"
            # Over the loopback interface Linux may know at once.
            if not place.blocks and error.errno in (errno.EINPROGRESS, errno.ECONNREFUSED):
                time.sleep(self.seconds)
                return "begun"
            raise
        place.state = "open"
        if not place.blocks and place.kind == STREAM:
            return "begun"
        return port if self.is_known(port) else "a port that was chosen"

    def is_known(self, port):
        """Whether a port is one of those that the sequence chooses among."""
        return 0 <= port - self.first_port < 2 * PORTS

    def either(self, place, draws):
        """Whose address it is to."""
        if self.peer is None:
            return place.hosts
        return PEERS if draws[3] < 0.5 else OWN

    def accept(self, at, _, draws):
        place = self.places[at]
        free = [number for number, one in enumerate(self.places) if one is None]
        if not free:
            return skipped("no place")
        one, peer = place.one.accept()
        blocks = draws[0] < 0.5
        one.set_blocking(blocks)
        new = Place(one, place.family, STREAM, blocks, place.hosts)
        new.state, new.is_bound, new.has_come = "open", True, True
        self.places[free[0]] = new
        return free[0], peer[0], one.getsockname()[:2]

    def is_open(self, place):
        """Whether it has a peer, as far as anybody can know."""
        try:
            place.one.getpeername()
            return True
        except OSError:
            return False

    def is_left(self, place):
        """Whether the peer sends no more."""
        return place.kind == STREAM and bool(place.one.polled(select.POLLRDHUP))

    def send(self, at, _, draws):
        place = self.places[at]
        if place.is_shut or self.is_left(place):
            return skipped("send behind an end")
        if not self.is_open(place):
            return skipped("send without a peer")
        size = int(draws[0] * 2000)
        work = lambda: place.one.send(bytes([at]) * size, socket.MSG_NOSIGNAL)
        return unless_refused(work) if place.kind == DGRAM else work()

    def recv(self, at, _, draws):
        place = self.places[at]
        if place.kind == DGRAM and not place.is_bound and place.state == "idle":
            return skipped("a port that is chosen")
        if place.kind == STREAM and place.state != "open":
            return skipped("recv without a connection")
        flags = (0, socket.MSG_PEEK, socket.MSG_DONTWAIT)[int(draws[0] * 3)]
        size = int(draws[1] * 3000) + 1
        if place.kind == DGRAM:
            got, _, shown, sender = unless_refused(lambda: place.one.recvmsg(size, 0, flags))
            return len(got), got[:1], shown & socket.MSG_TRUNC, sender[:1]
        got = place.one.recv(size, flags)
        return len(got), got[:1]

    def sendto(self, at, _, draws):
        place = self.places[at]
        if place.kind == STREAM or place.state != "idle":
            return skipped("an address for a peer")
        size = int(draws[2] * 2000)
        to = self.address(place.family, self.either(place, draws), draws)
        return place.one.sendto(bytes([at]) * size, to)

    def shutdown(self, at, _, draws):
        place = self.places[at]
        if self.is_left(place) or not self.is_open(place) or place.kind == DGRAM:
            return skipped("shutdown without a connection")
        how = (socket.SHUT_WR, socket.SHUT_WR, socket.SHUT_RDWR)[int(draws[0] * 3)]
        place.one.shutdown(how)
        place.is_shut = True

    def close(self, at, *_):
        one = self.places[at].one
        # What is not read would reset the connection, which the other end learns when it asks.
        one.set_blocking(False)
        try:
            while self.places[at].kind == STREAM and one.recv(1 << 16):
                pass
        except OSError:
            pass
        one.close()
        self.places[at] = None

    def set(self, at, _, draws):
        place = self.places[at]
        level, name, values = OPTIONS[int(draws[0] * len(OPTIONS))]
        value = values[int(draws[1] * len(values))]
        if level == 41 and place.family == V4:
            return skipped("an option of the other version")
        place.one.setsockopt(level, name, value)
        if (level, name) in ((6, 13), (99, 1)):
            return level, name, value
        return level, name, value, place.one.getsockopt(level, name)

    def get(self, at, _, draws):
        place = self.places[at]
        level, name = ASKED[int(draws[0] * len(ASKED))]
        if level == 41 and place.family == V4:
            return skipped("an option of the other version")
        if (level, name) == (1, 4) and place.kind == DGRAM:
            return skipped("when a datagram is found to be refused")
        return level, name, place.one.getsockopt(level, name)

    def poll(self, at, *_):
        place = self.places[at]
        flags = place.one.polled(select.POLLIN | select.POLLOUT | select.POLLRDHUP)
        names = ["IN", "OUT", "ERR", "HUP", "RDHUP"]
        if place.kind == DGRAM:
            names.remove("ERR")
        return [name for name in names if flags & getattr(select, "POLL" + name)]

    def names(self, at, *_):
        place = self.places[at]
        if place.is_shut or place.state in ("opening", "failed") and not self.is_open(place):
            return skipped("the names of one that is over")
        own = place.one.getsockname()[:2]
        shown = own if place.is_bound and self.is_known(own[1]) else own[0]
        if place.kind == DGRAM and place.state != "idle" and not place.is_bound:
            shown = "chosen"
        try:
            return shown, place.one.getpeername()[0]
        except OSError as error:
            return shown, errno.errorcode[error.errno]


def unless_refused(work):
    """Does it again if an earlier datagram was refused: nobody knows when that is found."""
    try:
        return work()
    except ConnectionRefusedError:
        return work()


def skipped(why):
    return "skipped: " + why


WEIGHTS = {
    "make": 2,
    "bind": 6,
    "listen": 5,
    "connect": 8,
    "accept": 8,
    "send": 8,
    "recv": 8,
    "sendto": 5,
    "shutdown": 2,
    "close": 3,
    "set": 3,
    "get": 3,
    "poll": 8,
    "names": 3,
}
# In which state a socket is with which a call makes sense.
PREFERRED = {
    "bind": "idle",
    "listen": "idle",
    "connect": "idle",
    "accept": "listening",
    "send": "open",
    "recv": "open",
    "shutdown": "open",
}
# Calls behind which something may be under way.
CAUSES = {"connect", "send", "sendto", "shutdown", "close", "listen"}


def be_peer(path):
    """Serves each that asks in a process of its own."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener = Listener(path, "AF_UNIX", backlog=256)
    print("ready", flush=True)
    while True:
        connection = listener.accept()
        if os.fork() == 0:
            serve(connection)
            os._exit(0)
        connection.close()


def meet(peer):
    """Waits until both sides have their addresses, and know each other's."""
    sides = [(lambda *kind: Near(socket.socket(*kind)), OWN), (peer.socket, PEERS)]
    last = time.monotonic() + PATIENCE
    for family in (V4, V6):
        for (make, hosts), (other, _) in (sides, sides[::-1]):
            while True:
                listener, client = make(family, STREAM), other(family, STREAM)
                try:
                    listener.bind((hosts[family], 0))
                    listener.listen(1)
                    client.connect((hosts[family], listener.getsockname()[1]))
                    break
                except OSError:
                    if time.monotonic() > last:
                        raise
                    time.sleep(0.05)
                finally:
                    client.close()
                    listener.close()


def main():
    if sys.argv[1] == "peer":
        be_peer(sys.argv[2])
    first, count = int(sys.argv[1]), int(sys.argv[2])
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 0.03
    path = sys.argv[4] if len(sys.argv) > 4 else None
    if path:
        meet(Peer(path))
    children = []
    for seed in range(first, first + count):
        said = tempfile.TemporaryFile()
        child = os.fork()
        if child == 0:
            os.dup2(said.fileno(), 1)
            Sequence(seed, seconds, path).run()
            os._exit(0)
        children.append((seed, child, said))
    for seed, child, said in children:
        _, status = os.waitpid(child, 0)
        said.seek(0)
        for line in said.read().decode().splitlines():
            print(seed, line)
        print(seed, "status", status, flush=True)
    print("the end")


main()
