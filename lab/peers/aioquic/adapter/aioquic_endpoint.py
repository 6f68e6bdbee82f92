"""aioquic for `equic-lab bench` (docs/bench-contract.md). It is pure Python with OpenSSL, and sends
one datagram per system call. Its server keeps session tickets in memory. Its HTTP/3 is not measured."""

import asyncio
import pathlib
import sys
from importlib.metadata import version

from aioquic.asyncio import QuicConnectionProtocol
from aioquic.asyncio.server import QuicServer
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import ConnectionTerminated, HandshakeCompleted, StreamDataReceived
from aioquic.quic.logger import QuicFileLogger
from aioquic.quic.packet import QuicProtocolVersion
from aioquic.tls import CipherSuite

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python-contract"))

import contract

# Maximum number of unsent bytes per stream. aioquic itself has no limit.
BACKLOG = 1 << 20
CIPHERS = {
    "aes128": CipherSuite.AES_128_GCM_SHA256,
    "chacha20": CipherSuite.CHACHA20_POLY1305_SHA256,
}
CONGESTION = {None: "cubic", "cubic": "cubic", "newreno": "reno"}


def configuration(options) -> QuicConfiguration:
    if options.gso == "on":
        contract.unsupported("segmentation offload")
    if options.congestion not in CONGESTION:
        contract.unsupported(options.congestion)
    config = QuicConfiguration(
        is_client=options.role == "client",
        alpn_protocols=["perf"],
        congestion_control_algorithm=CONGESTION[options.congestion],
        idle_timeout=contract.IDLE,
        max_data=contract.CONNECTION_WINDOW,
        max_datagram_size=options.mtu or contract.PAYLOAD,
        max_stream_data=contract.STREAM_WINDOW,
        cipher_suites=[CIPHERS[options.cipher or "aes128"]],
        supported_versions=[QuicProtocolVersion.VERSION_1],
        quic_logger=QuicFileLogger(options.qlog) if options.qlog else None,
        secrets_log_file=open(options.keylog, "a") if options.keylog else None,
    )
    if config.is_client:
        config.server_name = options.name
        config.load_verify_locations(options.ca)
    else:
        config.load_cert_chain(options.cert, options.key)
    return config


def effective(options) -> dict:
    return {
        "implementation": f"aioquic {version('aioquic')}",
        "io": "native",
        "stream_window": contract.STREAM_WINDOW,
        "connection_window": contract.CONNECTION_WINDOW,
        "congestion": options.congestion or "cubic",
        "cipher": contract.SUITES[options.cipher or "aes128"],
        "max_payload": options.mtu or contract.PAYLOAD,
        "gso": False,
        "gro": False,
        "crypto": "openssl",
    }


class Exchange(QuicConnectionProtocol):
    """Base of both ends: writes streams."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.writing: dict = {}

    def write(self, stream: int, pieces) -> None:
        self.writing[stream] = contract.last_known(pieces)
        self.transmit()

    def transmit(self) -> None:
        for stream, pieces in list(self.writing.items()):
            while self.backlog(stream) < BACKLOG:
                piece, last = next(pieces)
                self._quic.send_stream_data(stream, piece, end_stream=last)
                if last:
                    del self.writing[stream]
                    break
        super().transmit()

    def backlog(self, stream: int) -> int:
        # aioquic has no public API for this.
        known = self._quic._streams.get(stream)
        return len(known.sender._buffer) if known else 0


class Serving(Exchange):
    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.requests: dict[int, contract.Request] = {}

    def quic_event_received(self, event) -> None:
        if isinstance(event, StreamDataReceived):
            request = self.requests.setdefault(event.stream_id, contract.Request())
            request.take(event.data)
            if event.end_stream:
                self.write(event.stream_id, self.requests.pop(event.stream_id).pieces())


class Asking(Exchange):
    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.streams: dict[int, contract.Received] = {}
        self.resumed = False
        self.over = False

    def quic_event_received(self, event) -> None:
        if isinstance(event, StreamDataReceived):
            self.streams[event.stream_id].take(event.data, event.end_stream)
        elif isinstance(event, HandshakeCompleted):
            self.resumed = event.session_resumed
        elif isinstance(event, ConnectionTerminated):
            self.over = True
            for stream in self.streams.values():
                stream.fail(event.reason_phrase or "the connection was closed")

    def begin(self, pieces) -> contract.Received:
        stream = self._quic.get_next_available_stream_id()
        received = self.streams[stream] = contract.Received()
        self.write(stream, pieces)
        return received

    def ask(self, wanted: int) -> contract.Received:
        return self.begin([wanted.to_bytes(contract.HEAD, "big")])

    def send(self, count: int) -> contract.Received:
        head = contract.HEAD.to_bytes(contract.HEAD, "big")
        return self.begin([head, *contract.pattern_pieces(count)])

    async def close(self) -> None:
        super().close()
        # The connection no longer needs the socket.
        self._transport.close()

    def is_open(self) -> bool:
        return not self.over

    def is_resumed(self) -> bool:
        return self.resumed

    def observe(self, in_force: dict) -> None:
        in_force["max_payload"] = self._quic._max_datagram_size


async def serve(options) -> None:
    tickets: dict = {}
    config, in_force = configuration(options), effective(options)
    sock = contract.udp(options, contract.split_address(options.listen), in_force)
    await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: QuicServer(
            configuration=config,
            create_protocol=Serving,
            session_ticket_fetcher=lambda label: tickets.pop(label, None),
            session_ticket_handler=lambda ticket: tickets.__setitem__(ticket.ticket, ticket),
        ),
        sock=sock,
    )
    contract.ready(*sock.getsockname()[:2], in_force)
    await asyncio.Event().wait()


def client(options):
    server = contract.split_address(options.connect)
    local = contract.local_address(server)
    in_force = effective(options)
    tickets: dict = {}

    async def connect(worker: int) -> Asking:
        config = configuration(options)
        config.session_ticket = tickets.pop(worker, None) if options.resume else None
        quic = QuicConnection(
            configuration=config,
            session_ticket_handler=lambda ticket: tickets.__setitem__(worker, ticket),
        )
        sock = contract.udp(options, (local, 0), in_force)
        _, protocol = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: Asking(quic), sock=sock
        )
        protocol.connect(server)
        await protocol.wait_connected()
        return protocol

    return connect, in_force


if __name__ == "__main__":
    try:
        contract.main(["perf"], serve, client)
    except KeyboardInterrupt:
        sys.exit(130)
