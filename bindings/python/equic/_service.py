"""Services and guards, with which a server reports its connections to the gateway."""

from __future__ import annotations

import ipaddress
import socket
import struct
import threading
import weakref
from ctypes import byref, c_uint32, c_void_p
from types import TracebackType
from typing import NamedTuple

from ._library import Code, Error, NativeCounts, library

# An address as asyncio returns it: (host, port) for IPv4, (host, port, flow, scope) for IPv6.
Address = tuple[str, int] | tuple[str, int, int, int]

_OVER_LIMIT = 1
_UNTRACKED = 2


class Counts(NamedTuple):
    """Number of packets with one reason, their UDP payload in bytes, and the number that was really
    dropped."""

    packets: int
    bytes: int
    dropped: int


def _native(peer: Address) -> tuple[bytes, int]:
    """Returns an address as a struct sockaddr_in or sockaddr_in6, and its length."""
    try:
        host = ipaddress.ip_address(peer[0].partition("%")[0])
        port = struct.pack("!H", peer[1])
    except (ValueError, TypeError, AttributeError, IndexError, struct.error) as error:
        raise Error(Code.INVALID_ARGUMENT, f"{peer!r} is not an address: {error}") from error
    if host.version == 4:
        packed = struct.pack("=H", socket.AF_INET) + port + host.packed + bytes(8)
    else:
        packed = struct.pack("=H", socket.AF_INET6) + port + bytes(4) + host.packed + bytes(4)
    return packed, len(packed)


class Service:
    """A service of a gateway, for counting its connections. It need not be closed."""

    def __init__(self, handle: c_void_p) -> None:
        self._handle = handle
        weakref.finalize(self, library.equic_service_release, handle)

    @property
    def name(self) -> str:
        """Name of the service."""
        return library.equic_service_name(self._handle).decode()

    @property
    def limit(self) -> int:
        """Current limit of connections per source. 0 means no limit."""
        return library.equic_service_limit(self._handle)

    def count(self, peer: Address) -> int:
        """Returns the number of connections of the peer's source in this process."""
        count = c_uint32()
        library.equic_service_count(self._handle, *_native(peer), byref(count))
        return count.value

    def full(self, peer: Address) -> bool:
        """Returns whether the peer's source holds as many connections in this process as its limit."""
        return bool(library.equic_service_full(self._handle, *_native(peer)))

    def opened(self, peer: Address) -> Guard:
        """Counts a connection until the guard is closed. Call it when the handshake is complete."""
        handle, count, flags = c_void_p(), c_uint32(), c_uint32()
        library.equic_opened(
            self._handle, *_native(peer), byref(handle), byref(count), byref(flags)
        )
        return Guard(self, handle, peer, count.value, flags.value)

    def counter(self, reason: str) -> Counts:
        """Returns the number of packets to the service with this reason, by its name ("quota", "new",
        ...)."""
        counts = NativeCounts()
        number = library.equic_reason_find(reason.encode())
        if number < 0:
            raise Error(Code.NOT_FOUND, f"there is no reason `{reason}`")
        library.equic_counter(self._handle, number, byref(counts))
        return Counts(counts.packets, counts.bytes, counts.dropped)


class Guard:
    """An open connection. It counts for its source until `close` or the end of a `with`."""

    def __init__(
        self, service: Service, handle: c_void_p, peer: Address, count: int, flags: int
    ) -> None:
        self._service, self._handle, self._peer = service, handle, peer
        self._count, self._flags = count, flags
        self._lock = threading.Lock()
        # The count also ends if the object is collected without close().
        self._end = weakref.finalize(self, library.equic_connection_closed, handle)

    @property
    def count(self) -> int:
        """Number of connections of the source, including this one, when this one was opened or moved."""
        return self._count

    @property
    def over_limit(self) -> bool:
        """Whether the source holds more connections than its limit. The server should close this one."""
        return bool(self._flags & _OVER_LIMIT)

    @property
    def untracked(self) -> bool:
        """Whether there was no room to count this connection."""
        return bool(self._flags & _UNTRACKED)

    def moved(self, peer: Address) -> None:
        """Moves the count of the connection to another address of its peer. If `over_limit` is then
        true, the new source is at its limit, and the server should close the connection. A call with
        the same address is cheap.

        Call it only after the peer has proved that it receives packets at the address (path validation,
        RFC 9000 s.8.2). An attacker can forge any source address: if a server called it for every
        packet, it would count an attacker's connections at the address of a victim, who could then not
        connect.
        """
        if peer == self._peer:
            return
        with self._lock:
            if not self._end.alive:
                raise Error(Code.CLOSED, "the connection is closed")
            count, flags = c_uint32(), c_uint32()
            native = _native(peer)
            library.equic_connection_moved(self._handle, *native, byref(count), byref(flags))
            self._peer, self._count, self._flags = peer, count.value, flags.value

    def close(self) -> None:
        """Stops counting the connection. It does nothing when called again."""
        with self._lock:
            self._end()

    def __enter__(self) -> Guard:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
