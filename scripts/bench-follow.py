#!/usr/bin/env python3
"""Measures how long an interface is unprotected after it was deleted and created again: `make bench-follow`.

A denied source sends 20,000 datagrams per second to a service at one end of a veth pair. The other end is on a bridge.
The script deletes the pair, creates it again and gives it the same address, as happens to a container's interface. All
datagrams of the denied source that reach the service's socket arrived while the XDP program was not attached. The source
sends through another port of the bridge, so it is not disturbed. The script creates two network namespaces and removes
them at the end.

Usage: bench-follow.py EQUIC [ROUNDS]
"""

import ctypes
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

PPS = 20_000
PORT = 443
MAC = "02:00:00:00:00:01"
SERVER, DENIED = "10.77.0.1", "10.77.0.66"


def run(*words):
    subprocess.run(words, check=True)


def enter(name):
    """Moves this process into a network namespace."""
    with open(f"/run/netns/{name}") as handle:
        if ctypes.CDLL(None, use_errno=True).setns(handle.fileno(), 0x40000000) != 0:  # CLONE_NEWNET
            sys.exit(f"bench-follow: setns: {os.strerror(ctypes.get_errno())}")


def flood():
    """Sends datagrams until the process is killed. A datagram that cannot be delivered is not sent again."""
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind((DENIED, 0))
    sent, begun = 0, time.monotonic()
    while True:
        while sent > (time.monotonic() - begun) * PPS:
            time.sleep(0.0002)
        try:
            udp.sendto(b"\x40" + bytes(40), (SERVER, PORT))
        except OSError:
            pass
        sent += 1


def make(server, outside):
    """Creates the pair as fast as command line tools can: a second command sets it up and gives it its address."""
    peer = ["peer", "name", "eth", "address", MAC, "netns", server]
    run("ip", "-n", outside, "link", "add", "port", "master", "bridge", "up", "type", "veth", *peer)
    lines = f"link set eth up\naddress add {SERVER}/24 dev eth\n"
    subprocess.run(["ip", "-n", server, "-batch", "-"], input=lines, text=True, check=True)


def attached(server):
    out = subprocess.run(["ip", "-n", server, "link", "show", "eth"], capture_output=True, text=True).stdout
    return "xdp" in out


def sent(outside):
    """Returns the number of packets that were sent to the server since the pair was created."""
    out = subprocess.run(["ip", "-j", "-s", "-n", outside, "link", "show", "port"], capture_output=True, check=True).stdout
    return json.loads(out)[0]["stats64"]["tx"]["packets"]


def until(what, condition):
    end = time.monotonic() + 30
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"bench-follow: timed out after 30 s waiting for {what}")
        time.sleep(0.001)


def taken(udp):
    """Receives all waiting datagrams. Returns their number, and the time between the first and the last, in ms."""
    times = []
    while True:
        try:
            _, ancillary, _, _ = udp.recvmsg(64, 64)
        except BlockingIOError:
            return len(times), (max(times) - min(times)) * 1000 if times else 0.0
        seconds, nanos = (int.from_bytes(ancillary[0][2][at : at + 8], sys.byteorder) for at in (0, 8))
        times.append(seconds + nanos / 1e9)


def measure(equic, rounds, server, outside):
    run("ip", "-n", outside, "link", "add", "bridge", "type", "bridge")
    run("ip", "-n", outside, "link", "set", "bridge", "up")
    run("ip", "-n", outside, "link", "add", "source", "type", "veth", "peer", "name", "in", "netns", outside)
    run("ip", "-n", outside, "link", "set", "in", "master", "bridge", "up")
    run("ip", "-n", outside, "address", "add", f"{DENIED}/24", "dev", "source")
    run("ip", "-n", outside, "link", "set", "source", "up")
    run("ip", "-n", outside, "neighbour", "add", SERVER, "lladdr", MAC, "dev", "source")
    make(server, outside)
    enter(server)
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)  # SO_RCVBUFFORCE
    udp.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS
    udp.setblocking(False)
    udp.bind(("0.0.0.0", PORT))
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "gateway.toml")
        with open(config, "w") as file:
            file.write(f'deny = ["{DENIED}"]\n[gateway]\ninterfaces = ["eth"]\nmode = "native"\n')
            file.write(f'[[service]]\nname = "quic"\nlisten = ["{PORT}"]\n')
        source = os.fork()
        if source == 0:
            enter(outside)
            flood()
        # Without a gateway, the datagrams must arrive. Otherwise, a count of 0 below could have
        # another reason.
        until("datagrams without a gateway", lambda: taken(udp)[0] > 0)
        gateway = subprocess.Popen([equic, "gateway", "run", "--config", config], stdout=subprocess.DEVNULL)
        rows = []
        try:
            until("the first attachment", lambda: attached(server))
            taken(udp)
            for number in range(rounds):
                run("ip", "-n", outside, "link", "delete", "port")
                make(server, outside)
                until("an attachment", lambda: attached(server))
                until("a flood at the new interface", lambda: sent(outside) >= PPS / 10)
                rows.append(taken(udp))
                print(f"round {number + 1}: {rows[-1][0]} denied datagrams arrived within {rows[-1][1]:.2f} ms")
        finally:
            os.kill(source, 9)
            os.waitpid(source, 0)
            gateway.terminate()
            gateway.wait()
    packets, spans = zip(*rows)
    print(f"{rounds} rounds at {PPS} datagrams per second: median {statistics.median(packets)} datagrams arrived,")
    print(f"maximum {max(packets)}; median time {statistics.median(spans):.2f} ms, maximum {max(spans):.2f} ms")


def main():
    equic, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 20
    server, outside = f"follow-{os.getpid()}-s", f"follow-{os.getpid()}-o"
    for name in (server, outside):
        run("ip", "netns", "add", name)
    try:
        measure(equic, rounds, server, outside)
    finally:
        for name in (server, outside):
            run("ip", "netns", "delete", name)


main()
