"""aioquic as an endpoint of the QUIC Interop Runner (see interop-contract for its environment).

It sets no ECN marks, and does not migrate as a client.
"""

import asyncio
import os
import pathlib
import socket
import sys
from urllib.parse import urlsplit

from aioquic.asyncio import QuicConnectionProtocol, connect
from aioquic.asyncio.server import QuicServer
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ProtocolNegotiated, QuicEvent, StreamDataReceived
from aioquic.quic.packet import QuicProtocolVersion
from aioquic.tls import CipherSuite, SessionTicket

UNSUPPORTED = 127
BOTH = ["handshake", "transfer", "chacha20", "retry", "resumption", "zerortt", "http3", "multiconnect", "v2"]
CLIENT = BOTH + ["keyupdate", "versionnegotiation"]
SERVER = BOTH + ["versionnegotiation", "connectionmigration"]
HQ_ALPN = ["hq-interop"]
MAX_REQUEST = 4096
# Number of bytes to receive before the key update.
FIRST = 100_000

TESTCASE = os.environ.get("TESTCASE", "")


def folder(name: str, otherwise: str) -> pathlib.Path:
    return pathlib.Path(os.environ.get(name) or otherwise)


def file(path: str) -> bytes:
    """Returns the content of the requested file below the served folder."""
    root = folder("WWW", "/www").resolve()
    wanted = (root / path.lstrip("/")).resolve()
    if wanted.parent != root:
        raise FileNotFoundError(path)
    return wanted.read_bytes()


def configuration(is_client: bool) -> QuicConfiguration:
    config = QuicConfiguration(
        is_client=is_client, alpn_protocols=H3_ALPN if TESTCASE == "http3" else HQ_ALPN
    )
    config.supported_versions = [QuicProtocolVersion.VERSION_1]
    if TESTCASE == "v2":
        config.supported_versions = [QuicProtocolVersion.VERSION_2, QuicProtocolVersion.VERSION_1]
        config.original_version = QuicProtocolVersion.VERSION_1
    if TESTCASE == "chacha20":
        config.cipher_suites = [CipherSuite.CHACHA20_POLY1305_SHA256]
    if keys := os.environ.get("SSLKEYLOGFILE"):
        config.secrets_log_file = open(keys, "a")
    certs = folder("CERTS", "/certs")
    if is_client:
        config.load_verify_locations(str(certs / "ca.pem"))
    else:
        config.load_cert_chain(certs / "cert.pem", certs / "priv.key")
    return config


class Server(QuicConnectionProtocol):
    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.http: H3Connection | None = None
        self.requests: dict[int, bytes] = {}

    def quic_event_received(self, event: QuicEvent) -> None:
        if isinstance(event, ProtocolNegotiated) and event.alpn_protocol in H3_ALPN:
            self.http = H3Connection(self._quic)
        if self.http is not None:
            self.answer_http3(event)
        elif isinstance(event, StreamDataReceived):
            request = self.requests.get(event.stream_id, b"") + event.data
            self.requests[event.stream_id] = request[:MAX_REQUEST]
            if event.end_stream:
                self.answer_hq(event.stream_id, self.requests.pop(event.stream_id))
        self.transmit()

    def answer_hq(self, stream: int, request: bytes) -> None:
        method, _, path = request.decode().strip().partition(" ")
        try:
            content = file(path) if method == "GET" else None
        except OSError as error:
            print(error, file=sys.stderr)
            content = None
        if content is None:
            self._quic.reset_stream(stream, 1)
        else:
            self._quic.send_stream_data(stream, content, end_stream=True)

    def answer_http3(self, event: QuicEvent) -> None:
        for heard in self.http.handle_event(event):
            if not isinstance(heard, HeadersReceived):
                continue
            path = dict(heard.headers).get(b":path", b"").decode()
            try:
                status, content = b"200", file(path)
            except OSError:
                status, content = b"404", b""
            self.http.send_headers(heard.stream_id, [(b":status", status)])
            self.http.send_data(heard.stream_id, content, end_stream=True)


async def serve() -> None:
    tickets: dict[bytes, SessionTicket] = {}
    listening = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    listening.bind(("::", int(os.environ.get("PORT") or 443)))
    await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: QuicServer(
            configuration=configuration(is_client=False),
            create_protocol=Server,
            retry=TESTCASE == "retry",
            session_ticket_fetcher=lambda label: tickets.pop(label, None),
            session_ticket_handler=lambda ticket: tickets.__setitem__(ticket.ticket, ticket),
        ),
        sock=listening,
    )
    await asyncio.Event().wait()


class Client(QuicConnectionProtocol):
    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.http = H3Connection(self._quic) if TESTCASE == "http3" else None
        self.waiting: dict[int, tuple[asyncio.Future, bytearray]] = {}
        self.came = 0
        self.updated = False
        self.status: dict[int, bytes] = {}

    async def get(self, url: str) -> bytes:
        parts = urlsplit(url)
        stream = self._quic.get_next_available_stream_id()
        done = asyncio.get_running_loop().create_future()
        self.waiting[stream] = (done, bytearray())
        if self.http is None:
            self._quic.send_stream_data(stream, f"GET {parts.path}\r\n".encode(), end_stream=True)
        else:
            head = [
                (b":method", b"GET"),
                (b":scheme", b"https"),
                (b":authority", parts.netloc.encode()),
                (b":path", parts.path.encode()),
            ]
            self.http.send_headers(stream, head, end_stream=True)
        self.transmit()
        return await done

    def quic_event_received(self, event: QuicEvent) -> None:
        if isinstance(event, StreamDataReceived):
            self.came += len(event.data)
            if TESTCASE == "keyupdate" and self.came > FIRST and not self.updated:
                self.updated = True
                self.request_key_update()
        if self.http is None:
            if isinstance(event, StreamDataReceived):
                self.add(event.stream_id, event.data, event.end_stream)
            return
        for heard in self.http.handle_event(event):
            if isinstance(heard, HeadersReceived):
                self.status[heard.stream_id] = dict(heard.headers).get(b":status", b"")
                self.add(heard.stream_id, b"", heard.stream_ended)
            elif isinstance(heard, DataReceived):
                self.add(heard.stream_id, heard.data, heard.stream_ended)

    def add(self, stream: int, data: bytes, ended: bool) -> None:
        if stream not in self.waiting:
            return
        done, content = self.waiting[stream]
        content.extend(data)
        if ended and not done.done():
            done.set_result(bytes(content))


async def fetch(urls: list[str], config: QuicConfiguration, ticket_for_next: bool = False) -> None:
    """Fetches all URLs concurrently on a new connection."""
    parts = urlsplit(urls[0])
    came = asyncio.Event()

    def keep(ticket: SessionTicket) -> None:
        config.session_ticket = ticket
        came.set()

    early = TESTCASE == "zerortt" and config.session_ticket is not None
    async with connect(
        parts.hostname,
        parts.port or 443,
        configuration=config,
        create_protocol=Client,
        session_ticket_handler=keep,
        wait_connected=not early,
    ) as client:
        contents = await asyncio.gather(*[client.get(url) for url in urls])
        for url, content in zip(urls, contents):
            name = urlsplit(url).path.rpartition("/")[2]
            (folder("DOWNLOADS", "/downloads") / name).write_bytes(content)
        if ticket_for_next:
            await came.wait()


async def negotiate(url: str, config: QuicConfiguration) -> None:
    """Connects with a reserved version. aioquic then continues with a version of the server."""
    config.supported_versions = [0x1A2A3A4A, QuicProtocolVersion.VERSION_1]
    config.original_version = 0x1A2A3A4A
    parts = urlsplit(url)
    host = parts.hostname
    async with connect(host, parts.port or 443, configuration=config, wait_connected=True):
        pass


async def run_client() -> None:
    urls = os.environ["REQUESTS"].split()
    config = configuration(is_client=True)
    if TESTCASE == "versionnegotiation":
        await negotiate(urls[0], config)
    elif TESTCASE in ("resumption", "zerortt"):
        await fetch(urls[:1], config, ticket_for_next=True)
        await fetch(urls[1:], config)
    elif TESTCASE == "multiconnect":
        for url in urls:
            await fetch([url], configuration(is_client=True))
    else:
        await fetch(urls, config)


def main() -> None:
    client = os.environ.get("ROLE") == "client"
    if TESTCASE not in (CLIENT if client else SERVER):
        sys.exit(UNSUPPORTED)
    asyncio.run(run_client() if client else serve())


if __name__ == "__main__":
    main()
