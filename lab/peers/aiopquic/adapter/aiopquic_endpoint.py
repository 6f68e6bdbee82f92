"""aiopquic, a Python binding of picoquic, for `equic-lab bench` (docs/bench-contract.md).

A server runs picoquic on one thread, and a client runs it on one thread per connection. picoquic
creates its sockets and decides about segmentation offload. Neither can be inspected, and both socket
buffers have the same size. It stores session tickets in a file when a connection ends, which does not
work for concurrent connections."""

import asyncio
import contextlib
import pathlib
import socket
import sys
from importlib.metadata import version

from aiopquic.asyncio.client import connect
from aiopquic.asyncio.protocol import QuicConnectionProtocol
from aiopquic.asyncio.server import serve as listen
from aiopquic.quic.configuration import QuicConfiguration
from aiopquic.quic.events import ConnectionTerminated, StreamDataReceived

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python-contract"))

import contract

CIPHERS = {"aes128": 0x1301, "chacha20": 0x1303}
CONGESTION = {None: "cubic", "cubic": "cubic", "newreno": "newreno", "bbr": "bbr"}
# Tasks that close connections. The set keeps them alive.
CLOSING: set = set()
# Each connection has a worker thread.
MOST_CONNECTIONS = 100


def configuration(options) -> QuicConfiguration:
    if options.gso is not None:
        contract.unsupported("choosing segmentation offload")
    if options.mtu is not None:
        contract.unsupported("choosing a payload size")
    if options.rcvbuf != options.sndbuf:
        contract.unsupported("different sizes of the two socket buffers")
    if options.congestion not in CONGESTION:
        contract.unsupported(options.congestion)
    if options.resume:
        contract.unsupported("session tickets")
    address = contract.split_address(options.listen or options.connect)
    config = QuicConfiguration(
        is_client=options.role == "client",
        alpn_protocols=["perf"],
        idle_timeout=contract.IDLE,
        socket_buffer_size=options.rcvbuf,
        max_data=contract.CONNECTION_WINDOW,
        max_stream_data=contract.STREAM_WINDOW,
        max_streams_bidi=contract.STREAMS,
        max_streams_uni=contract.STREAMS,
        max_connections=16384,
        congestion_control_algorithm=CONGESTION[options.congestion],
        cipher_suite=CIPHERS[options.cipher or "aes128"],
        qlog_dir=options.qlog,
        secrets_log_file=options.keylog,
        ip_family=socket.AF_INET6 if ":" in address[0] else socket.AF_INET,
    )
    if config.is_client:
        config.server_name = options.name
        config.load_verify_locations(options.ca)
    else:
        config.load_cert_chain(options.cert, options.key)
    return config


def effective(options) -> dict:
    return {
        "implementation": f"aiopquic {version('aiopquic')}",
        "io": "native",
        "receive_buffer": None,
        "send_buffer": None,
        "stream_window": contract.STREAM_WINDOW,
        "connection_window": contract.CONNECTION_WINDOW,
        "congestion": options.congestion or "cubic",
        "cipher": contract.SUITES[options.cipher or "aes128"],
        "max_payload": None,
        "gso": None,
        "gro": None,
        "crypto": "openssl",
    }


class Exchange(QuicConnectionProtocol):
    """Base of both ends: writes streams."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.tasks: set = set()

    def write(self, stream: int, pieces) -> None:
        async def all_of_it() -> None:
            for piece, last in contract.last_known(pieces):
                await self._quic.send_stream_data_drained(stream, piece, end_stream=last)

        task = asyncio.get_running_loop().create_task(all_of_it())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)


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
        self.over = False
        self.leave = contextlib.AsyncExitStack()

    def quic_event_received(self, event) -> None:
        if isinstance(event, StreamDataReceived):
            self.streams[event.stream_id].take(event.data, event.end_stream)
        elif isinstance(event, ConnectionTerminated):
            self.over = True
            for stream in self.streams.values():
                stream.fail("the connection was closed")

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
        # Closing waits for the server's close, which may never arrive (RFC 9000 s.10.2.2). It
        # therefore runs in the background.
        task = asyncio.get_running_loop().create_task(self.leave.aclose())
        CLOSING.add(task)
        task.add_done_callback(CLOSING.discard)

    def is_open(self) -> bool:
        return not self.over

    def is_resumed(self) -> bool:
        return False

    def observe(self, in_force: dict) -> None:
        pass


async def serve(options) -> None:
    config, in_force = configuration(options), effective(options)
    host, port = contract.split_address(options.listen)
    if port == 0:
        # aiopquic does not report the port that it listens on, so this finds a free one first.
        with socket.socket(config.ip_family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
            port = probe.getsockname()[1]
    await listen(host, port, configuration=config, create_protocol=Serving)
    contract.ready(host, port, in_force)
    await asyncio.Event().wait()


def client(options):
    server = contract.split_address(options.connect)
    in_force = effective(options)
    if max(options.hold or 0, options.connections) > MOST_CONNECTIONS:
        contract.unsupported(f"more than {MOST_CONNECTIONS} connections")

    async def connect_one(_: int) -> Asking:
        leave = contextlib.AsyncExitStack()
        begun = connect(*server, configuration=configuration(options), create_protocol=Asking)
        protocol = await leave.enter_async_context(begun)
        protocol.leave = leave
        return protocol

    return connect_one, in_force


if __name__ == "__main__":
    contract.main(["perf"], serve, client)
