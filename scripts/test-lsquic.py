#!/usr/bin/env python3
"""Tests the server with lsquic behind a gateway, with aioquic's client: `make test-lsquic`.

Prints a line for each check. Each check has a gateway, a server and a client of its own. If one fails, the others still
run. All checks use the namespaces of one lab (`equic-lab net up`), which is removed at the end.

Usage: test-lsquic.py EQUIC BUILT [CHECK ...]
  EQUIC  path of the program equic
  BUILT  the folder target/lsquic, where scripts/test-lsquic.sh builds
  CHECK  names of the functions to run; default: all checks
"""

import contextlib
import json
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
import time

# Time in seconds after which a check fails. lsquic's idle timeout is 30 seconds.
PATIENCE = 90
# Time in seconds for an attempt that the gateway must drop.
IN_VAIN = 1
LIMIT = 3
FORGED = 300
HERE, THERE, HERE_V6 = "10.77.1.1", "10.77.1.99", "fd65:7175:6963:1::1"
SERVER, SERVER_V6 = "10.77.0.1", "fd65:7175:6963::1"
CLIENT = "crates/cli/tests/servers/client.py"


def forge():
    """Sends packets of connections that do not exist: short headers, and Handshake packets of version 1."""
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for number in range(FORGED):
        # Length and rotation bits are those of a valid connection ID.
        made_up = bytes([(number % 7) << 5 | 11]) + random.randbytes(11)
        short = b"\x41" + made_up + random.randbytes(40)
        handshake = b"\xe0\0\0\0\1\x0c" + made_up + b"\0\x40\x28" + random.randbytes(40)
        udp.sendto(handshake if number % 3 == 0 else short, (SERVER, 443))


class Program:
    """A program on a host of the lab, or in this namespace. It is killed at the end."""

    def __init__(self, words, namespace=None):
        enter = ["nsenter", f"--net=/run/netns/{namespace}"] if namespace else []
        self.child = subprocess.Popen(
            enter + words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.lines, self.said = queue.Queue(), []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.child.stdout:
            self.said.append(line)
            self.lines.put(line)
        self.lines.put(None)

    def line(self, begin):
        """Returns the next line of the output that starts with `begin`."""
        while True:
            try:
                line = self.lines.get(timeout=PATIENCE)
            except queue.Empty:
                raise AssertionError(f"{self.child.args} is silent, after: {''.join(self.said[-20:])}") from None
            assert line is not None, f"{self.child.args} ended: {''.join(self.said)}"
            if line.startswith(begin):
                return line

    def end(self, how=signal.SIGKILL):
        self.child.send_signal(how)
        self.child.wait(PATIENCE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.child.poll() is None:
            self.end()


def eventually(what, holds):
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"timed out waiting until {what}"
        time.sleep(0.05)


class Clients:
    """aioquic's client on a host, with many connections."""

    def __init__(self, stage, host, server=SERVER):
        words = [sys.executable, CLIENT, server, "443", "echo"]
        self.program = stage.start(words, host)
        self.program.line("ready")
        self.count = 0

    def tell(self, order, *words):
        self.program.child.stdin.write(" ".join(map(str, [order, *words])) + "\n")
        self.program.child.stdin.flush()

    def result(self, name):
        return self.program.line(f"{name} ").split()[1]

    def begin(self, source, seconds=60):
        self.count += 1
        self.tell("open", self.count, source, seconds)
        return self.count

    def attempt(self, source, seconds=IN_VAIN):
        return self.result(self.begin(source, seconds))

    def open(self, source):
        name = self.begin(source)
        result = self.result(name)
        assert result == "open", f"a client at {source}: {result}"
        return name

    def ask(self, name, size=14):
        self.tell("ask", name, size)
        result = self.result(name)
        assert result == "open", f"{size} bytes of connection {name} are not echoed: {result}"

    def move(self, name, source, order="move"):
        """Moves a connection to another source, with the ID of a NEW_CONNECTION_ID frame."""
        self.tell(order, name, source)
        result = self.result(name)
        assert result == "open", f"connection {name} does not continue at {source}: {result}"

    def close(self, name):
        self.tell("close", name)
        assert self.result(name) == "closed"


class Stage:
    """The programs of a check: a gateway with its options, a server that has joined it, and clients."""

    def __init__(self, equic, built, hosts):
        self.equic, self.built, self.hosts = equic, built, hosts
        self.name = f"lsquic-{os.getpid()}"
        self.programs = contextlib.ExitStack()

    def start(self, words, host):
        return self.programs.enter_context(Program(words, self.hosts[host]))

    def gateway(self, *options):
        words = [self.equic, "gateway", "run", "--json", "--name", self.name, "-i", "eth0", "-p", "443"]
        gateway = self.start(words + list(options), "server")
        while json.loads(gateway.line("{"))["event"] != "ready":
            pass
        return gateway

    def server(self):
        pem = [f"{self.built}/certificate.pem", f"{self.built}/key.pem"]
        server = self.start([f"{self.built}/serve-lsquic", "443", self.name, *pem], "server")
        server.line("listening")
        self.await_servers(1)
        return server

    def ask_gateway(self, *words):
        words = [self.equic, "gateway", *words, "--gateway", self.name]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    def set(self, *setting):
        done = self.ask_gateway("set", *setting)
        assert done.returncode == 0, done.stderr

    def status(self):
        return json.loads(self.ask_gateway("status", "--json").stdout)

    def ledgers(self):
        return self.status()["ledgers"]

    def await_servers(self, count):
        eventually(f"the gateway has {count} servers", lambda: len(self.ledgers()) == count)

    def verdicts(self):
        """Returns the number of packets for each reason of a verdict."""
        return {row["reason"]: row["packets"] for row in self.status()["services"][0]["verdicts"] if row["packets"]}

    def verdict(self, reason):
        return self.verdicts().get(reason, 0)

    def connections(self, source):
        words = ["sources", "--json", "--top", "1000", "--by", "connections"]
        rows = json.loads(self.ask_gateway(*words).stdout)["sources"]
        return max((row["connections"] for row in rows if row["source"] == source), default=0)

    def await_connections(self, source, count):
        eventually(f"{source} has {count} connections", lambda: self.connections(source) == count)

    def assert_refused(self, clients, source):
        before = self.verdict("quota")
        result = clients.attempt(source)
        assert result == "silence", f"a connection over the limit was not dropped: {result}"
        assert self.verdict("quota") > before, f"the quota has dropped nothing: {self.verdicts()}"

    def forge(self):
        words = ["nsenter", f"--net=/run/netns/{self.hosts['c1']}", sys.executable, __file__, "forge"]
        subprocess.run(words, check=True)


def handshakes(stage):
    """handshakes succeed, and a stream of 8 MB and 250 consecutive streams are echoed, over IPv4 and IPv6"""
    stage.gateway()
    stage.server()
    for clients, source in [(Clients(stage, "c0"), HERE), (Clients(stage, "c0", SERVER_V6), HERE_V6)]:
        name = clients.open(source)
        clients.ask(name, 8 << 20)
        for _ in range(250):
            clients.ask(name)


def counted(stage):
    """a connection counts from its opening until it is closed"""
    stage.gateway()
    stage.server()
    clients = Clients(stage, "c0")
    (ledger,) = stage.ledgers()
    said = [ledger[key] for key in ("name", "keys", "ids", "opened", "connections")]
    assert said == ["lsquic", False, True, 0, 0], ledger
    first, second = clients.open(HERE), clients.open(HERE)
    stage.await_connections(HERE, 2)
    clients.close(first)
    stage.await_connections(HERE, 1)
    clients.close(second)
    stage.await_connections(HERE, 0)
    eventually("the ledger is empty", lambda: stage.ledgers()[0]["connections"] == 0)
    assert stage.ledgers()[0]["opened"] == 2, stage.ledgers()


def vanished(stage):
    """a client that is killed counts until lsquic's idle timeout"""
    stage.gateway()
    stage.server()
    clients = Clients(stage, "c0")
    clients.open(HERE)
    stage.await_connections(HERE, 1)
    clients.program.end()
    stage.await_connections(HERE, 0)


def quota(stage):
    """the quota drops a connection over the limit in the kernel, and admits a new one after another was closed"""
    stage.gateway("--max-connections", str(LIMIT))
    stage.server()
    clients, others = Clients(stage, "c0"), Clients(stage, "c1")
    names = [clients.open(HERE) for _ in range(LIMIT)]
    stage.await_connections(HERE, LIMIT)
    stage.assert_refused(clients, HERE)
    others.open("10.77.2.1")
    clients.close(names.pop())
    stage.await_connections(HERE, LIMIT - 1)
    names.append(clients.open(HERE))
    stage.await_connections(HERE, LIMIT)
    stage.assert_refused(clients, HERE)
    for name in names:
        clients.ask(name)


def race(stage):
    """if three times as many handshakes as the limit run in parallel, exactly the limit remains"""
    stage.gateway("--max-connections", str(LIMIT))
    stage.server()
    clients = Clients(stage, "c0")
    begun = {str(clients.begin(HERE, 15)) for _ in range(3 * LIMIT)}
    answers = {}
    while begun != set(answers):
        name, answer = clients.program.line("").split()
        answers[name] = answer
    stay = [name for name, answer in answers.items() if answer == "open"]
    assert len(stay) == LIMIT, answers
    stage.await_connections(HERE, LIMIT)
    for name in stay:
        clients.ask(name)


def moved(stage):
    """a client that moves counts at its new address, even if it only acknowledges and pings"""
    stage.gateway("--max-connections", str(LIMIT))
    stage.server()
    clients = Clients(stage, "c0")
    name = clients.open(HERE)
    stage.await_connections(HERE, 1)
    clients.move(name, THERE)
    stage.await_connections(THERE, 1)
    stage.await_connections(HERE, 0)
    clients.move(name, HERE, "drift")
    stage.await_connections(HERE, 1)
    stage.await_connections(THERE, 0)


def gateway_again(stage):
    """after the gateway is killed and restarted, the quota includes the connections that are still open"""
    options = ["--max-connections", str(LIMIT)]
    gateway = stage.gateway(*options)
    stage.server()
    clients = Clients(stage, "c0")
    names = [clients.open(HERE) for _ in range(LIMIT)]
    stage.await_connections(HERE, LIMIT)
    gateway.end()
    stage.gateway(*options)
    stage.await_servers(1)
    stage.await_connections(HERE, LIMIT)
    stage.assert_refused(clients, HERE)
    for name in names:
        clients.ask(name)


def server_again(stage):
    """when the server is killed, its connections no longer count"""
    stage.gateway("--max-connections", str(LIMIT))
    server = stage.server()
    clients = Clients(stage, "c0")
    for _ in range(LIMIT):
        clients.open(HERE)
    stage.await_connections(HERE, LIMIT)
    server.end()
    stage.await_servers(0)
    stage.await_connections(HERE, 0)
    stage.server()
    clients.ask(clients.open(HERE))
    stage.await_connections(HERE, 1)


def ids(stage):
    """with check_ids, the gateway accepts the server's IDs: those of handshakes and of NEW_CONNECTION_ID frames"""
    stage.gateway()
    stage.server()
    stage.set("check_ids=true")
    both = [
        (Clients(stage, "c0"), HERE, "10.77.1.", "10.77.1.31"),
        # An IPv6 source is a network.
        (Clients(stage, "c0", SERVER_V6), HERE_V6, "fd65:7175:6963:1::", "fd65:7175:6963:1::/64"),
    ]
    for clients, first, prefix, source in both:
        name = clients.open(first)
        clients.ask(name, 1 << 20)
        # The client moves more often than the server issues connection IDs at first.
        for place in range(20, 32):
            clients.move(name, f"{prefix}{place}")
            clients.ask(name)
        stage.await_connections(source, 1)
    verdicts = stage.verdicts()
    assert "forged_id" not in verdicts, verdicts
    # The packets of the transfers were checked.
    assert verdicts["established"] > 1000, verdicts


def forged(stage):
    """packets with forged IDs reach the server without check_ids, and are dropped as forged_id with it"""
    stage.gateway()
    stage.server()
    stage.forge()
    eventually("forged packets pass", lambda: stage.verdict("established") + stage.verdict("handshake") > FORGED / 2)
    stage.set("check_ids=true")
    before = stage.verdicts()
    stage.forge()
    eventually("forged packets are dropped", lambda: stage.verdict("forged_id") > FORGED / 2)
    after = stage.verdicts()
    del after["forged_id"]
    assert after == before, f"some forged packets passed: {before}, {after}"
    clients = Clients(stage, "c0")
    clients.ask(clients.open(HERE))


def ids_again(stage):
    """with check_ids, the next gateway, which has other keys, accepts the IDs of new connections"""
    gateway = stage.gateway("-o", "check_ids=true")
    stage.server()
    clients = Clients(stage, "c0")
    clients.ask(clients.open(HERE))
    gateway.end()
    stage.gateway("-o", "check_ids=true")
    stage.await_servers(1)
    name = clients.open(THERE)
    clients.move(name, "10.77.1.98")
    clients.ask(name)
    stage.await_connections("10.77.1.98", 1)


def retry(stage):
    """Retry is refused for this server; with --force, no handshake completes until retry=never"""
    # In this mode, packets that the program sends back through a veth interface arrive.
    stage.gateway("--mode", "generic")
    stage.server()
    refused = stage.ask_gateway("set", "retry=always")
    assert refused.returncode == 1 and "lsquic (process" in refused.stderr, refused
    assert stage.status()["services"][0]["retry"] == "never"
    stage.set("retry=always", "--force")
    clients = Clients(stage, "c0")
    result = clients.attempt(HERE, 15)
    assert result in ("silence", "refused"), result
    # The client sent the token back, and the gateway accepted it. Only lsquic does not use it.
    assert stage.verdict("retry_sent") and stage.verdict("proved"), stage.verdicts()
    assert stage.ledgers()[0]["opened"] == 0, stage.ledgers()
    stage.set("retry=never")
    clients.ask(clients.open(HERE))
    stage.await_connections(HERE, 1)


CHECKS = [
    handshakes, counted, vanished, quota, race, moved, gateway_again, server_again, ids, forged, ids_again, retry
]


def main(equic, built, *names):
    checks = [check for check in CHECKS if not names or check.__name__ in names]
    failed = 0
    with Program([f"{equic}-lab", "net", "up", f"lsquic-{os.getpid()}", "--json"]) as lab:
        try:
            hosts = json.loads(lab.line("{"))["lab"]["hosts"]
            hosts = {host["name"].rsplit("-", 1)[1]: host["name"] for host in hosts}
            for check in checks:
                stage = Stage(equic, built, hosts)
                with stage.programs:
                    try:
                        check(stage)
                        print(f"ok      {check.__doc__}", flush=True)
                    except Exception as error:
                        failed += 1
                        print(f"FAILED  {check.__doc__}\n        {error!r}", flush=True)
        finally:
            lab.end(signal.SIGTERM)
    print(f"test-lsquic: {len(checks) - failed} of {len(checks)} checks passed")
    return 1 if failed else 0


if sys.argv[1:] == ["forge"]:
    forge()
else:
    # SIGTERM ends this program with all programs that it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(main(*sys.argv[1:]))
