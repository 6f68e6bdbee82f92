"""Tests the binding with a gateway on the loopback interface of a separate network namespace."""

import contextlib
import json
import multiprocessing
import multiprocessing.connection
import os
import queue
import socket
import subprocess
import unittest
from collections.abc import Iterator
from typing import Any

import equic

# Timeout of all waits, in seconds. It is far longer than any expected event takes.
PATIENCE = 60

# The environment passes the same name to child processes.
NAME = os.environ.setdefault("EQUIC_TEST_NAME", f"python-{os.getpid()}")


class Case(unittest.TestCase):
    def setUp(self) -> None:
        self.gateway = equic.load(
            name=NAME,
            service="web",
            listen="4433",
            settings={"max_connections": 2, "new_per_source": "20/s burst 40"},
        )
        self.addCleanup(self.gateway.close)
        self.service = self.gateway.service()

    @contextlib.contextmanager
    def failing(self, code: equic.Code) -> Iterator[None]:
        with self.assertRaises(equic.Error) as caught:
            yield
        self.assertEqual(caught.exception.code, code, str(caught.exception))
        self.assertTrue(str(caught.exception))


def in_ci() -> bool:
    """Returns whether tests run in continuous integration, where no test may be skipped.

    The crate equic-testing has the same rule."""
    return os.environ.get("CI", "") not in ("", "0", "false")


class Settings(Case):
    def test_they_reach_the_kernel(self) -> None:
        equic_command = os.environ.get("EQUIC_COMMAND")
        if not equic_command:
            missing = "EQUIC_COMMAND does not name the command equic"
            self.assertFalse(in_ci(), missing + "; in CI, no test may be skipped")
            self.skipTest(missing)
        self.gateway.close()
        self.gateway = equic.load(
            name=NAME,
            service="web",
            settings={
                "max_connections": 2,
                "new_per_source": "20/s burst 40",
                "web.retry_hold": "45s",
                "enabled": False,
            },
        )
        self.addCleanup(self.gateway.close)
        command = [equic_command, "gateway", "status", "--json", "--gateway", NAME]
        status = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        [service] = status["services"]
        self.assertEqual((service["max_connections"], service["new_per_source"]), (2, "20/s burst 40"))
        self.assertEqual(service["retry_hold"], "45s")
        self.assertIs(service["enabled"], False)

    def test_the_table_checks_them(self) -> None:
        for key, value, code, part in [
            ("max_conections", 1, equic.Code.CONFIG, "did you mean max_connections?"),
            ("retry_hold", "2h", equic.Code.CONFIG, "1s to 1h"),
            ("max_connections", -1, equic.Code.CONFIG, "`-1` is not a whole number"),
            ("max_connections", 1 << 32, equic.Code.CONFIG, "4294967295"),
            ("gateway.sources", 1, equic.Code.CONFIG, "64 to 16777216"),
            ("wbe.policy", "new", equic.Code.NO_SUCH_SERVICE, "wbe"),
            ("policy", "x" * (1 << 20), equic.Code.CONFIG, "at most 4096"),
        ]:
            with self.subTest(key=key), self.assertRaises(equic.Error) as caught:
                equic.load(settings={key: value})
            self.assertEqual(caught.exception.code, code)
            self.assertIn(part, str(caught.exception))
        for key, text in [("policy=strict", ""), ("policy", "new\0")]:
            with self.assertRaises(ValueError):
                equic.load(settings={key: text})
        with self.assertRaises(TypeError):
            equic.load(settings={"retry_hold": 1.5})  # type: ignore[dict-item]


class Guards(Case):
    def test_guards_count(self) -> None:
        here, same, there = ("192.0.2.1", 1), ("::ffff:192.0.2.1", 9, 0, 0), ("2001:db8::1", 1)
        self.assertEqual((self.service.name, self.service.limit), ("web", 2))
        first, second = self.service.opened(here), self.service.opened(same)
        self.assertEqual((self.service.count(here), second.count), (2, 2))
        self.assertFalse(first.over_limit or second.over_limit or second.untracked)
        self.assertTrue(self.service.full(here))
        self.assertFalse(self.service.full(there))
        with self.service.opened(here) as third:
            self.assertTrue(third.over_limit)
            third.moved(there)
            self.assertFalse(third.over_limit)
            self.assertEqual(self.service.count(here), 2)
            self.assertEqual(self.service.count(("2001:db8::ffff", 2)), 1)
        self.assertEqual(self.service.count(there), 0)
        first.close()
        first.close()
        self.assertEqual(self.service.count(here), 1)
        with self.failing(equic.Code.CLOSED):
            first.moved(there)
        del second
        self.assertEqual(self.service.count(here), 0, "a forgotten guard ends with its object")

    def test_limit_follows_a_live_change(self) -> None:
        self.gateway.set("max_connections", "7")
        self.assertEqual(self.service.limit, 7)


class Program(Case):
    def test_program_drops_denied_packets(self) -> None:
        self.gateway.attach("lo", equic.Mode.GENERIC)
        self.gateway.deny("127.0.0.0/8", seconds=60)
        before = self.service.counter("denied")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"anybody there?", ("127.0.0.1", 4433))
        # The loopback interface delivers packets before the call returns.
        after = self.service.counter("denied")
        self.assertEqual(after.dropped, before.dropped + 1)
        self.assertEqual(after.bytes, before.bytes + 14)
        self.gateway.forget("127.0.0.0/8")
        with self.failing(equic.Code.NOT_FOUND):
            self.gateway.forget("127.0.0.0/8")
        self.gateway.detach("lo")

    def test_gateway_is_joined(self) -> None:
        with equic.join(NAME, "another") as joined:
            guard = joined.service("web").opened(("192.0.2.1", 1))
            self.assertEqual(joined.service().count(("192.0.2.1", 1)), 1)
        guard.close()

    def test_keys_are_given_to_servers_as_they_join(self) -> None:
        token = self.gateway.ring().seal(("192.0.2.1", 4711), b"original1", b"retried.")
        with equic.join(NAME, "checks", token_check=equic.TokenCheck.GATEWAY_KEYS) as joined:
            ring = joined.ring()
            proof = ring.verify(("192.0.2.1", 4711), b"retried.", token)
            self.assertEqual(proof, (b"original1", b"retried."))
            with self.failing(equic.Code.PROOF_FORGED):
                ring.verify(("192.0.2.2", 4711), b"retried.", token)
        with self.failing(equic.Code.CLOSED):
            ring.verify(("192.0.2.1", 4711), b"retried.", token)
        for check in (equic.TokenCheck.NONE, equic.TokenCheck.OWN_KEYS):
            with equic.join(NAME, token_check=check) as joined:
                with self.failing(equic.Code.NOT_FOUND):
                    joined.ring()
                with self.failing(equic.Code.NOT_FOUND):
                    joined.connection_ids()

    def test_ids_use_the_keys_of_the_gateway(self) -> None:
        checker = equic.ConnectionIds(self.gateway.ring(), equic.ID_LENGTH, b"ab")
        for check in equic.TokenCheck:
            with equic.join(NAME, "makes", token_check=check, issue_ids=True) as joined:
                ids = joined.connection_ids(9)
                made = ids.generate()
                checker.check(made)
                self.assertEqual((len(made), made[1], made[2]), (ids.length, joined.slot(), 9))
                for number in (-1, 256):
                    with self.assertRaises(ValueError):
                        joined.connection_ids(number)
                with self.failing(equic.Code.INVALID_ARGUMENT):
                    ids.set_ring(self.gateway.ring())
            with self.failing(equic.Code.CLOSED):
                ids.generate()


def packet(kind: bytes) -> bytes:
    """Returns an Initial packet of a new connection, with only the fields that a gateway checks."""
    ids = b"\x08" + kind * 8 + b"\x08" + kind * 8
    return (b"\xc0\x00\x00\x00\x01" + ids + b"\x00\x44\x96").ljust(1200, b"\x00")


def owner(channel: multiprocessing.connection.Connection) -> None:
    """Runs a gateway on the loopback interface in another process, and sends counters on request."""
    with equic.load(name=NAME + "-other", service="web", listen="4434", settings={"max_connections": 2}) as own:
        own.attach("lo", equic.Mode.GENERIC)
        service = own.service()
        channel.send("attached")
        while reason := channel.recv():
            channel.send(service.counter(reason).packets)


class Restarts(unittest.TestCase):
    def start(self) -> tuple[multiprocessing.Process, multiprocessing.connection.Connection]:
        # Use spawn instead of fork, because this process has threads of the library.
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=owner, args=(there,))
        process.start()
        self.addCleanup(process.kill)
        # With this end closed, the other one reports EOF if the process ends.
        there.close()
        self.assertEqual(self.receive(here), "attached")
        return process, here

    def receive(self, channel: multiprocessing.connection.Connection) -> Any:
        self.assertTrue(channel.poll(PATIENCE), "the process that runs the gateway does not answer")
        return channel.recv()

    def refused(self, channel: multiprocessing.connection.Connection, kind: bytes) -> int:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(packet(kind), ("127.0.0.1", 4434))
        channel.send("quota")
        return self.receive(channel)

    def test_next_gateway_is_joined(self) -> None:
        first, channel = self.start()
        events: queue.Queue[tuple[equic.JoinEvent, str]] = queue.Queue()
        with equic.join(NAME + "-other", "joined", on_event=lambda *event: events.put(event)) as joined:
            service = joined.service()
            guards = [service.opened(("127.0.0.1", number)) for number in (1, 2)]
            self.assertEqual(self.refused(channel, b"a"), 1)
            first.kill()
            first.join()
            event, message = events.get(timeout=PATIENCE)
            self.assertEqual(event, equic.JoinEvent.LOST, message)
            guards.pop().close()
            second, channel = self.start()
            event, message = events.get(timeout=PATIENCE)
            self.assertEqual(event, equic.JoinEvent.JOINED, message)
            self.assertIn("the gateway counts 1 open connection", message)
            # The quota is enforced again with the right count: one more connection is admitted, and
            # the next one is not.
            self.assertEqual(self.refused(channel, b"b"), 0)
            guards.append(service.opened(("127.0.0.1", 3)))
            self.assertEqual(self.refused(channel, b"c"), 1)
            joined.set("max_connections", "3")
            self.assertEqual(self.refused(channel, b"d"), 1, "settings are the next one's")
            second.kill()
            for guard in guards:
                guard.close()


class Errors(Case):
    def test_errors_say_what_is_wrong(self) -> None:
        for address in [("nowhere", 1), ("192.0.2.1", 99999), ("192.0.2.1",), (), None, ("::1", "x")]:
            with self.failing(equic.Code.INVALID_ARGUMENT):
                self.service.opened(address)  # type: ignore[arg-type]
        with self.failing(equic.Code.CONFIG):
            self.gateway.set("max_conections", "1")
        with self.failing(equic.Code.NO_SUCH_SERVICE):
            self.gateway.service("wbe")
        with self.failing(equic.Code.NO_SUCH_INTERFACE):
            self.gateway.attach("nowhere0")
        with self.failing(equic.Code.NOT_FOUND):
            self.service.counter("nonsense")
        with self.assertRaisesRegex(equic.Error, "nonsense"):
            self.service.counter("nonsense")
        with self.failing(equic.Code.NO_GATEWAY):
            equic.join("no such gateway")
        with self.failing(equic.Code.INVALID_ARGUMENT):
            equic.join(NAME, token_check=3)  # type: ignore[arg-type]
        with self.failing(equic.Code.NO_GATEWAY):
            equic.connect("/nonexistent/equic.sock", issue_ids=True)
        with self.failing(equic.Code.CONFIG):
            equic.load(settings={"new_per_source": "many"})
        self.gateway.close()
        with self.failing(equic.Code.CLOSED):
            self.gateway.set("max_connections", "1")


if __name__ == "__main__":
    unittest.main()
