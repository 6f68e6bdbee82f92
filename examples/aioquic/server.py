"""An aioquic server that joins a running gateway. Your own server needs the lines that are marked
`eQUIC`. The rest is written like aioquic's own examples.

    equic gateway run -i eth0 -p 443 --max-connections 8
    python server.py 443 eth0

The server answers every HTTP/3 request with a line of text.
"""

import asyncio
import contextlib
import datetime
import socket
import sys

import equic  # eQUIC
from aioquic.asyncio import QuicConnectionProtocol
from aioquic.asyncio import server as aioquic_server
from aioquic.asyncio.server import QuicServer
from aioquic.buffer import Buffer
from aioquic.h3.connection import H3_ALPN, ErrorCode, H3Connection
from aioquic.h3.events import HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import ConnectionTerminated, HandshakeCompleted, QuicEvent
from aioquic.quic.packet import pull_quic_header
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

service: equic.Service  # eQUIC


class Protocol(QuicConnectionProtocol):
    http: H3Connection | None = None

    # -- eQUIC: a connection counts from the end of the handshake until it is closed, at the
    # validated address of the client. aioquic does not report a migration, so each event checks the
    # paths. Do not use `get_peer_address`: it returns the address of the last packet, which may be
    # forged.
    guard: equic.Guard | None = None

    def count(self, event: QuicEvent) -> None:
        peer = next((path.addr for path in self._quic._network_paths if path.is_validated), None)
        if isinstance(event, ConnectionTerminated):
            if self.guard:
                self.guard.close()
            return
        if isinstance(event, HandshakeCompleted):
            self.guard = service.opened(peer)
        elif self.guard and peer:
            self.guard.moved(peer)
        if self.guard and self.guard.over_limit:
            self.close(ErrorCode.H3_EXCESSIVE_LOAD, "too many connections")

    # --

    def quic_event_received(self, event: QuicEvent) -> None:
        self.count(event)  # eQUIC
        if isinstance(event, HandshakeCompleted):
            self.http = H3Connection(self._quic)
        if self.http is None:
            return
        for heard in self.http.handle_event(event):
            if isinstance(heard, HeadersReceived):
                self.http.send_headers(heard.stream_id, [(b":status", b"200")])
                self.http.send_data(heard.stream_id, b"hello from aioquic\n", end_stream=True)
        self.transmit()


# -- eQUIC Retry: a client that sends a token has received a Retry packet from the gateway. aioquic
# asks this class for the original Destination Connection ID, as if the token were its own. It does
# the rest itself.
class Tokens:
    def __init__(self, ring: equic.Ring) -> None:
        self.ring = ring

    def validate_token(self, *, address, destination_cid: bytes, token: bytes, now: float) -> bytes:
        try:
            return self.ring.verify(address, destination_cid, token).original_dcid
        except equic.Error as error:
            raise ValueError(str(error)) from error


class Server(QuicServer):
    tokens: Tokens

    def datagram_received(self, data: bytes, addr) -> None:
        self._retry = None
        with contextlib.suppress(ValueError):  # aioquic drops packets that it cannot parse
            length = self._configuration.connection_id_length
            token = pull_quic_header(Buffer(data=data), host_cid_length=length).token
            if b"" < token[:1] < b"\x80":  # other tokens are from NEW_TOKEN frames, which this server does not send
                self._retry = self.tokens
        super().datagram_received(data, addr)


# --


# -- eQUIC IDs: aioquic makes random connection IDs in two places: the first ID with the connection,
# and all others in one method. This class replaces them before they are used, with IDs made from
# the gateway's current keys.
class Connection(QuicConnection):
    ids: equic.ConnectionIds

    def __init__(self, **arguments) -> None:
        super().__init__(**arguments)
        self.host_cid = self._local_initial_source_connection_id = self.ids.generate()
        self._host_cids[0].cid = self.host_cid

    def _replenish_connection_ids(self) -> None:
        there = len(self._host_cids)
        super()._replenish_connection_ids()
        for made in self._host_cids[there:]:
            made.cid = self.ids.generate()


aioquic_server.QuicConnection = Connection
# --


def configuration() -> QuicConfiguration:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    config = QuicConfiguration(is_client=False, alpn_protocols=H3_ALPN)
    config.certificate, config.private_key = made, key
    config.connection_id_length = equic.ID_LENGTH  # eQUIC IDs
    return config


async def main(port: int, gateway: str) -> None:
    global service  # eQUIC
    check = equic.TokenCheck.GATEWAY_KEYS  # eQUIC Retry
    joined = equic.join(gateway, "aioquic", token_check=check, issue_ids=True)  # eQUIC
    service = joined.service()  # eQUIC
    Server.tokens = Tokens(joined.ring())  # eQUIC Retry
    Connection.ids = joined.connection_ids()  # eQUIC IDs
    listening = dual(port)
    config = configuration()
    await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: Server(configuration=config, create_protocol=Protocol), sock=listening
    )
    print("listening on", *listening.getsockname()[:2], flush=True)
    await asyncio.Event().wait()


def dual(port: int) -> socket.socket:
    """Returns a UDP socket for IPv4 and IPv6."""
    made = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    made.bind(("::", port))
    return made


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: server.py PORT GATEWAY")
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
