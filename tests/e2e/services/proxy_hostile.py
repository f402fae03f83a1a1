"""A program that means no good, or is careless: each part is one way, and says what it has seen."""

import array
import ctypes
import errno
import os
import select
import signal
import socket
import struct
import sys
import threading
import time

HOST = "127.0.0.1"
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def call(number, *arguments):
    """Makes a system call; what it returns, or the name of its error."""
    words = [ctypes.c_long(argument) for argument in arguments]
    result = libc.syscall(ctypes.c_long(number), *words)
    return result if result >= 0 else errno.errorcode[ctypes.get_errno()]


def listening(count=64):
    one = socket.socket()
    one.bind((HOST, 0))
    one.listen(count)
    return one


def serve(listener):
    """Echoes, for ever: one connection at a time."""
    while True:
        one, _ = listener.accept()
        with one:
            while got := one.recv(1 << 16):
                one.sendall(got)


def echoed(address, text):
    with socket.create_connection(address, timeout=10) as one:
        one.sendall(text)
        return one.recv(len(text), socket.MSG_WAITALL) == text


def flood():
    """Threads that make sockets as fast as they can, while another process is served."""
    listener = listening()
    server = os.fork()
    if server == 0:
        serve(listener)
    flooder = os.fork()
    if flooder == 0:
        def make():
            while True:
                socket.socket().close()
        for _ in range(4):
            threading.Thread(target=make).start()
        time.sleep(60)
    # Each within ten seconds, however slow the machine is.
    served = sum(echoed(listener.getsockname(), b"asked") for _ in range(20))
    for child in (server, flooder):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    print("served", served)


def race():
    """A thread that rewrites the address while connect is called with it."""
    one, two = listening(256), listening(256)
    ports = [one.getsockname()[1], two.getsockname()[1]]
    place = ctypes.create_string_buffer(16)
    shapes = [struct.pack("=HH4s8x", 2, socket.htons(port), b"\x7f\0\0\1") for port in ports]
    shapes += [struct.pack("=HH4s8x", family, 0, b"\xff" * 4) for family in (0, 1, 10, 0xffff)]
    over = False

    def rewrite():
        while not over:
            for shape in shapes:
                ctypes.memmove(place, shape, 16)

    thread = threading.Thread(target=rewrite)
    thread.start()
    seen = set()
    for _ in range(300):
        with socket.socket() as client:
            client.setblocking(False)
            seen.add(call(42, client.fileno(), ctypes.addressof(place), 16))
    over = True
    thread.join()
    known = {0, "EINPROGRESS", "EAFNOSUPPORT", "EINVAL", "ECONNREFUSED", "EADDRNOTAVAIL"}
    known |= {"ENETUNREACH", "ECONNABORTED"}
    print("answered" if seen <= known else "odd", sorted(map(str, seen)))
    print("echo", serves())


def serves():
    """Whether sockets still work."""
    listener = listening()
    server = os.fork()
    if server == 0:
        serve(listener)
    good = echoed(listener.getsockname(), b"hello")
    os.kill(server, signal.SIGKILL)
    os.waitpid(server, 0)
    return good


def pointers():
    """Every call that is answered, with pointers that lead nowhere: the same as without a proxy."""
    listener = listening()
    stream = socket.create_connection(listener.getsockname())
    datagrams = socket.socket(2, 2)
    datagrams.bind((HOST, 0))
    datagrams.setblocking(False)
    room = ctypes.create_string_buffer(256)
    good = ctypes.addressof(room)
    sockets = {"idle": socket.socket().detach(), "udp": datagrams.fileno(), "tcp": stream.fileno()}
    for bad in (0, 1, 0x7FFFFFFFF000, 0xFFFF800000000000 - (1 << 64), -4096):
        for name, fd in sockets.items():
            say = lambda what, result: print(hex(bad), name, what, result, flush=True)
            if name != "tcp":
                say("bind", call(49, fd, bad, 16))
                say("connect", call(42, fd, bad, 16))
            say("connect, too long", call(42, fd, bad, 1000))
            say("getsockname", call(51, fd, bad, bad))
            say("getpeername", call(52, fd, bad, bad))
            say("setsockopt", call(54, fd, 1, 2, bad, 4))
            say("getsockopt", call(55, fd, 1, 4, bad, bad))
            if name == "udp":
                say("sendto", call(44, fd, good, 4, 0, bad or 1, 16))
                say("sendmsg", call(46, fd, bad, 0))
                say("recvmsg", call(47, fd, bad, 0))
                say("sendmmsg", call(307, fd, bad, 1, 0))
                say("recvmmsg", call(299, fd, bad, 1, 0, 0))
        for question in (0x8910, 0x8912, 0x8913, 0x8915, 0x8933):
            print(hex(bad), hex(question), call(16, datagrams.fileno(), question, bad), flush=True)
    ctypes.memset(good, 0xFF, 56)
    print("a header of ones", call(46, datagrams.fileno(), good, 0), flush=True)
    ctypes.memset(good, 0, 56)
    client = socket.create_connection(listener.getsockname())
    print("accept", call(288, listener.fileno(), 1, 1, 0), flush=True)
    print("accept", call(288, listener.fileno(), 0, 1, 0x7777), flush=True)
    client.close()


def forks():
    """Processes without end: as many as the machine gives, 200 at most."""
    listener = listening()
    made = 0
    for _ in range(200):
        try:
            child = os.fork()
        except OSError:
            break
        if child == 0:
            kept = [socket.socket() for _ in range(8)]
            time.sleep(600)
        made += 1
    print("forked", made, "echo", serves(), flush=True)
    time.sleep(600)


def halves():
    """Connections that end in the middle of a transfer, at either end."""
    for turn in range(60):
        listener = listening(1)
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
        client.setblocking(False)
        try:
            while True:
                client.send(bytes(1 << 16))
        except BlockingIOError:
            pass
        server.recv(1000)
        first, second = (client, server) if turn % 2 else (server, client)
        if turn % 3 == 0:
            first.setsockopt(1, 13, struct.pack("ii", 1, 0))
        first.close()
        second.settimeout(5)
        try:
            while second.recv(1 << 16):
                pass
        except ConnectionResetError:
            pass
        second.close()
        listener.close()
    print("ended", "echo", serves())


def rights():
    """Descriptors that are handed to another process: one that listens, one that is connected."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    other = listening()
    if os.fork() == 0:
        other.close()
        _, control, _, _ = theirs.recvmsg(1, 1024)
        numbers = array.array("i")
        numbers.frombytes(control[0][2])
        listener, client = (socket.socket(fileno=number) for number in numbers)
        client.sendall(b"by a child")
        one, peer = listener.accept()
        assert peer == client.getsockname() and client.getpeername() == listener.getsockname()
        os._exit(one.recv(10, socket.MSG_WAITALL) != b"by a child")
    listener = other
    client = socket.create_connection(listener.getsockname())
    numbers = array.array("i", [listener.fileno(), client.fileno()])
    ours.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers.tobytes())])
    listener.close()
    client.close()
    print("handed over", os.waitstatus_to_exitcode(os.wait()[1]), "echo", serves())


def stopped():
    """Processes that are stopped, by a signal and by a debugger, and go on."""
    listener = listening()
    for name in ("signal", "debugger"):
        child = os.fork()
        if child == 0:
            one, _ = listener.accept()
            got = b""
            # Whoever is stopped has what came before (signal(7)).
            while len(got) < 5:
                got += one.recv(5 - len(got), socket.MSG_WAITALL)
            one.sendall(got)
            os._exit(0)
        time.sleep(0.2)
        halt(child, name)
        client = socket.create_connection(listener.getsockname())
        client.sendall(b"12")
        time.sleep(0.2)
        go_on(child, name)
        time.sleep(0.1)
        halt(child, name)
        client.sendall(b"345")
        time.sleep(0.2)
        go_on(child, name)
        print(name, client.recv(5, socket.MSG_WAITALL), os.waitpid(child, 0)[1], flush=True)


PTRACE_ATTACH, PTRACE_DETACH = 16, 17


def halt(child, how):
    if how == "signal":
        os.kill(child, signal.SIGSTOP)
    else:
        assert call(101, PTRACE_ATTACH, child, 0, 0) == 0
    os.waitpid(child, os.WUNTRACED)


def go_on(child, how):
    if how == "signal":
        os.kill(child, signal.SIGCONT)
    else:
        assert call(101, PTRACE_DETACH, child, 0, 0) == 0


def abandoned():
    """Connections that are opened and left: a tenth of them accepted, none read."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    listener = listening(4096)
    listener.setblocking(False)
    address = listener.getsockname()
    for part in range(11):
        for turn in range(1000 if part else 100):
            client = socket.socket()
            client.setblocking(False)
            client.connect_ex(address)
            if turn % 2:
                client.send(b"x") if select.select([], [client], [], 5)[1] else None
            client.close()
            if turn % 10 == 0:
                try:
                    listener.accept()[0].close()
                except BlockingIOError:
                    pass
        # What nobody has accepted goes now.
        while select.select([listener], [], [], 0.3)[0]:
            listener.accept()[0].close()
        if part in (0, 10):
            print("left", (100, 10100)[part > 0], flush=True)
            # Whoever counts says when it goes on.
            signal.sigtimedwait([signal.SIGUSR1], 30)
    listener.close()
    print("echo", serves())


globals()[sys.argv[1]]()
print("the end")
