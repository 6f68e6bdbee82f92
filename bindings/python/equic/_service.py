"""Services and guards: what a server tells the gateway."""

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

# As asyncio gives it: (host, port) for IPv4, (host, port, flow, scope) for IPv6.
Address = tuple[str, int] | tuple[str, int, int, int]

_OVER_LIMIT = 1
_UNTRACKED = 2


class Counts(NamedTuple):
    """Packets with one reason, their UDP payload, and how many were really dropped."""

    packets: int
    bytes: int
    dropped: int


def _native(peer: Address) -> tuple[bytes, int]:
    """A struct sockaddr_in or sockaddr_in6."""
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
    """A service of a gateway, to count connections to it. It needs no closing."""

    def __init__(self, handle: c_void_p) -> None:
        self._handle = handle
        weakref.finalize(self, library.equic_service_release, handle)

    @property
    def name(self) -> str:
        """Its name."""
        return library.equic_service_name(self._handle).decode()

    @property
    def limit(self) -> int:
        """Connections a source may hold, as set this moment; 0: any number."""
        return library.equic_service_limit(self._handle)

    def count(self, peer: Address) -> int:
        """Connections the peer's source holds in this process."""
        count = c_uint32()
        library.equic_service_count(self._handle, *_native(peer), byref(count))
        return count.value

    def full(self, peer: Address) -> bool:
        """Whether the peer's source holds as many connections in this process as it may."""
        return bool(library.equic_service_full(self._handle, *_native(peer)))

    def opened(self, peer: Address) -> Guard:
        """Counts a connection, to be called when its handshake is complete, until it is closed."""
        handle, count, flags = c_void_p(), c_uint32(), c_uint32()
        library.equic_opened(
            self._handle, *_native(peer), byref(handle), byref(count), byref(flags)
        )
        return Guard(self, handle, peer, count.value, flags.value)

    def counter(self, reason: str) -> Counts:
        """How many packets to the service had a reason, by its name ("quota", "new", ...)."""
        counts = NativeCounts()
        number = library.equic_reason_find(reason.encode())
        if number < 0:
            raise Error(Code.NOT_FOUND, f"no reason is called `{reason}`")
        library.equic_counter(self._handle, number, byref(counts))
        return Counts(counts.packets, counts.bytes, counts.dropped)


class Guard:
    """One open connection, which counts for its source until it is closed, or the `with` ends."""

    def __init__(
        self, service: Service, handle: c_void_p, peer: Address, count: int, flags: int
    ) -> None:
        self._service, self._handle, self._peer = service, handle, peer
        self._count, self._flags = count, flags
        self._lock = threading.Lock()
        # Should somebody forget it, it ends with the object.
        self._end = weakref.finalize(self, library.equic_connection_closed, handle)

    @property
    def count(self) -> int:
        """Connections of the source when this one was opened or moved, with this one."""
        return self._count

    @property
    def over_limit(self) -> bool:
        """Whether the source holds more than it may: the server should close this connection."""
        return bool(self._flags & _OVER_LIMIT)

    @property
    def untracked(self) -> bool:
        """Whether there was no room to count this connection."""
        return bool(self._flags & _UNTRACKED)

    def moved(self, peer: Address) -> None:
        """Counts the connection at another address of its peer, and no longer at the old one.

        `over_limit` then tells whether the new source is at its limit: close the connection. The same address again
        costs a comparison.

        Call it only with an address at which the peer has proved that it receives (path validation, RFC 9000
        s.8.2). Anybody can write any source address into a packet: a server that calls it with the address of the
        last packet counts an attacker's connections at the address of somebody else, who is shut out then.
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
        """Ends the count. A second time it does nothing."""
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
