"""Implements docs/bench-contract.md for QUIC stacks in Python: the command line, the exchange and a
client's workloads. An adapter passes a function for each role to `main`.
"""

import argparse
import asyncio
import json
import math
import os
import socket
import sys
import time

UNSUPPORTED = 127
CORRUPTED = 3
STREAM_WINDOW = 16 << 20
CONNECTION_WINDOW = 32 << 20
STREAMS = 1024
PAYLOAD = 1452
BUFFER = 4 << 20
IDLE = 600.0
SMALL_BODY = 1024
# Maximum number of concurrent handshakes.
OPENING = 32
# Size of the number at the beginning of requests and responses, in bytes.
HEAD = 8
CHUNK = 64 << 10
# Period of the pattern, in bytes.
PERIOD = 65521
# Size of a compared block. In each 64 KiB, one block of this size is compared, at a rotating
# position.
BLOCK = 4096
SUITES = {"aes128": "TLS_AES_128_GCM_SHA256", "chacha20": "TLS_CHACHA20_POLY1305_SHA256"}


def unsupported(what: str) -> None:
    print("unsupported:", what, file=sys.stderr)
    sys.stderr.flush()
    os._exit(UNSUPPORTED)


def make_pattern() -> bytes:
    state, period = 1, bytearray()
    for _ in range(PERIOD):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        period.append(state >> 24)
    return bytes((period * 3)[: PERIOD + CHUNK])


PATTERN = make_pattern()


def pattern(at: int, left: int) -> bytes:
    """Returns at most `left` bytes of the pattern from the offset `at` on, and at most one chunk."""
    start = at % PERIOD
    return PATTERN[start : start + min(left, CHUNK)]


class Check:
    """Compares received bytes with the pattern."""

    def __init__(self) -> None:
        self.at = 0
        self.wrong = False

    def take(self, data) -> None:
        place, count = 0, len(data)
        while place < count:
            block = self.at // BLOCK
            part = min(BLOCK - self.at % BLOCK, count - place)
            if block // 16 % 16 == block % 16:
                start = self.at % PERIOD
                self.wrong |= data[place : place + part] != PATTERN[start : start + part]
            place += part
            self.at += part

    def finish(self) -> None:
        """Ends the process if any byte differed."""
        if self.wrong:
            print("corrupted: not what was sent", file=sys.stderr)
            sys.stderr.flush()
            os._exit(CORRUPTED)


class Received:
    """The response on a stream of a client."""

    def __init__(self) -> None:
        self.head = b""
        self.bytes = 0
        self.check = Check()
        loop = asyncio.get_running_loop()
        self.first = loop.create_future()
        self.done = loop.create_future()

    def take(self, data: bytes, end: bool) -> None:
        self.bytes += len(data)
        if self.bytes and not self.first.done():
            self.first.set_result(time.monotonic())
        if len(self.head) < HEAD:
            missing = HEAD - len(self.head)
            self.head += data[:missing]
            data = data[missing:]
        self.check.take(data)
        if end and not self.done.done():
            self.check.finish()
            self.done.set_result(self)

    def fail(self, why: str) -> None:
        for waiting in (self.first, self.done):
            if not waiting.done():
                waiting.set_exception(ConnectionError(why))
                # Marks the exception as retrieved, because no task may be waiting for this future.
                waiting.exception()

    def at_server(self) -> int:
        return int.from_bytes(self.head, "big")


class Request:
    """The request on a stream of a server."""

    def __init__(self) -> None:
        self.head = b""
        self.read = 0

    def take(self, data: bytes) -> None:
        if len(self.head) < HEAD:
            self.head += data[: HEAD - len(self.head)]
        self.read += len(data)

    def pieces(self):
        """Yields the pieces of the response."""
        if self.read < HEAD:
            raise ValueError("the request has fewer than 8 bytes")
        wanted = int.from_bytes(self.head, "big")
        yield (self.read - HEAD).to_bytes(HEAD, "big")[:wanted]
        yield from pattern_pieces(wanted - HEAD)


def pattern_pieces(count: int):
    at = 0
    while at < count:
        piece = pattern(at, count - at)
        at += len(piece)
        yield piece


def last_known(pieces):
    """Yields each piece, and whether it is the last one."""
    before = None
    for piece in pieces:
        if before is not None:
            yield before, False
        before = piece
    if before is not None:
        yield before, True


def set_buffers(sock: socket.socket, options, effective: dict) -> None:
    """Sets the buffers and records the resulting sizes. Root may exceed the system's limits."""
    force = {socket.SO_RCVBUF: 33, socket.SO_SNDBUF: 32}
    for name, option, value in (
        ("receive_buffer", socket.SO_RCVBUF, options.rcvbuf),
        ("send_buffer", socket.SO_SNDBUF, options.sndbuf),
    ):
        try:
            sock.setsockopt(socket.SOL_SOCKET, force[option], value)
        except PermissionError:
            sock.setsockopt(socket.SOL_SOCKET, option, value)
        effective[name] = sock.getsockopt(socket.SOL_SOCKET, option)


def split_address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def udp(options, address: tuple[str, int], effective: dict) -> socket.socket:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_DGRAM)
    set_buffers(sock, options, effective)
    sock.bind(address)
    sock.setblocking(False)
    return sock


def local_address(server: tuple[str, int]) -> str:
    """Returns the local address that can reach the server."""
    family = socket.AF_INET6 if ":" in server[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(server)
        return probe.getsockname()[0]


def ready(host: str, port: int, effective: dict) -> None:
    shown = f"[{host}]" if ":" in host else host
    print(f"ready {shown}:{port}")
    print("effective", json.dumps(effective), flush=True)


def read_options(words: list[str]):
    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> None:
            if "unrecognized" in message:
                unsupported(message)
            raise SystemExit(f"{message}")

    parser = Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("role", choices=["server", "client"])
    for name in ("listen", "connect", "cert", "key", "name", "ca", "protocol", "keylog", "qlog"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--gso", choices=["on", "off"])
    parser.add_argument("--congestion")
    parser.add_argument("--cipher")
    parser.add_argument("--rcvbuf", type=int, default=BUFFER)
    parser.add_argument("--sndbuf", type=int, default=BUFFER)
    parser.add_argument("--mtu", type=int)
    work = parser.add_mutually_exclusive_group()
    for name, kind in (
        ("download", int), ("upload", int), ("handshakes", float), ("requests", float),
        ("ttfb", float), ("hold", int),
    ):
        work.add_argument(f"--{name}", type=kind)
    for name in ("streams", "connections", "parallel"):
        parser.add_argument(f"--{name}", type=int, default=1)
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args(words)
    if options.cipher and options.cipher not in SUITES:
        unsupported(options.cipher)
    return options


def share(total: int, count: int, index: int) -> int:
    return total // count + (total % count if index == 0 else 0)


class Stage:
    """A client's workloads. `connect(worker)` returns a connection. Its methods `ask(wanted)` and
    `send(count)` return a `Received`. It also has `close`, `is_open`, `is_resumed` and
    `observe(effective)`."""

    def __init__(self, options, connect, effective: dict) -> None:
        self.options = options
        self.connect = connect
        self.effective = effective

    async def run(self) -> dict:
        for name in ("download", "upload", "handshakes", "ttfb", "hold"):
            value = getattr(self.options, name)
            if value is not None:
                return await getattr(self, name)(value)
        if self.options.requests is not None:
            unsupported("requests")
        raise SystemExit("exactly one is required of --download, --upload, --handshakes, --requests, --ttfb, --hold")

    async def connect_all(self, count: int) -> list:
        limit = asyncio.Semaphore(OPENING)

        async def one():
            async with limit:
                return await self.connect(0)

        return list(await asyncio.gather(*(one() for _ in range(count))))

    async def download(self, count: int) -> dict:
        streams, wide = self.options.streams, self.options.connections
        start = time.monotonic()
        connections = await self.connect_all(wide)
        handshake = time.monotonic() - start
        start = time.monotonic()
        asked = [
            connection.ask(share(share(count, wide, at), streams, stream))
            for at, connection in enumerate(connections)
            for stream in range(streams)
        ]
        done = await asyncio.gather(*(one.done for one in asked))
        seconds = time.monotonic() - start
        for connection in connections:
            connection.observe(self.effective)
            await connection.close()
        answer = {"bytes": sum(one.bytes for one in done), "count": len(done), "seconds": seconds}
        if wide == 1:
            answer["handshake_seconds"] = handshake
        return answer

    async def upload(self, count: int) -> dict:
        start = time.monotonic()
        connection = await self.connect(0)
        handshake = time.monotonic() - start
        start = time.monotonic()
        received = await connection.send(count).done
        seconds = time.monotonic() - start
        connection.observe(self.effective)
        await connection.close()
        arrived = received.at_server()
        return {"bytes": arrived, "count": 1, "seconds": seconds, "handshake_seconds": handshake}

    async def exchange(self, worker: int) -> tuple[int, bool]:
        connection = await self.connect(worker)
        received = await connection.ask(HEAD).done
        connection.observe(self.effective)
        resumed = connection.is_resumed()
        await connection.close()
        return received.bytes, resumed

    async def handshakes(self, limit: float) -> dict:
        workers = range(self.options.parallel)
        for worker in workers:
            # Gets a session ticket for this worker.
            await self.exchange(worker)
        start = time.monotonic()

        async def work(worker: int) -> list[tuple[int, bool]]:
            done = []
            while time.monotonic() - start < limit:
                done.append(await self.exchange(worker))
            return done

        done = [one for each in await asyncio.gather(*map(work, workers)) for one in each]
        seconds = time.monotonic() - start
        resumed = sum(again for _, again in done)
        total = sum(count for count, _ in done)
        return {"bytes": total, "count": len(done), "resumed": resumed, "seconds": seconds}

    async def ttfb(self, limit: float) -> dict:
        # Runs one exchange before the clock starts, so that one-time initialization is not
        # measured.
        await self.exchange(0)
        times = []
        start = time.monotonic()
        while time.monotonic() - start < limit:
            begun = time.monotonic()
            connection = await self.connect(0)
            times.append(await connection.ask(1).first - begun)
            await connection.close()
        seconds = time.monotonic() - start
        times.sort()

        def at(part: float) -> float:
            # Nearest rank, rounded up.
            return times[math.ceil((len(times) - 1) * part)]

        first = {"median": at(0.5), "p95": at(0.95)}
        count = len(times)
        return {"bytes": count, "count": count, "seconds": seconds, "first_byte_seconds": first}

    async def hold(self, count: int) -> dict:
        start = time.monotonic()
        connections = await self.connect_all(count)
        seconds = time.monotonic() - start
        if connections:
            connections[0].observe(self.effective)
        print("held", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
        still = sum(connection.is_open() for connection in connections)
        return {"bytes": 0, "count": still, "seconds": seconds}


def main(speaks: list[str], serve, client) -> None:
    """Runs the program. `serve(options)` is awaited and never returns. `client(options)` returns a function
    that connects, and the settings in force."""
    options = read_options(sys.argv[1:])
    if options.role == "server":
        asyncio.run(serve(options))
        return
    usual = "h3" if options.requests is not None else speaks[0]
    options.protocol = options.protocol or usual
    if options.protocol not in speaks:
        unsupported(options.protocol)

    async def ask() -> dict:
        connect, effective = client(options)
        answer = await Stage(options, connect, effective).run()
        answer["effective"] = effective
        return answer

    print(json.dumps(asyncio.run(ask())), flush=True)
    # Exits at once, without waiting for threads of libraries.
    os._exit(0)
