"""Verifiable connection IDs (docs/retry.md s.4), which a gateway can check. They are created with the
ring of a gateway (Gateway.connection_ids), or with a copy of a ring."""

from __future__ import annotations

import ctypes
import weakref
from ctypes import byref, c_void_p

from ._library import library
from ._retry import Ring

ID_LENGTH = 12
"""Length in bytes of the connection IDs that a gateway checks."""


class ConnectionIds:
    """Creates the connection IDs of one server process. Two processes need different server IDs."""

    def __init__(self, ring: Ring, length: int, server_id: bytes = b"") -> None:
        """Creates a generator of IDs that are length bytes long, 8 to 20, with server_id, at most 8
        bytes. The generator has a copy of the ring. For IDs that a gateway can check, use
        Gateway.connection_ids."""
        handle = c_void_p()
        library.equic_ids_new(ring._handle, length, server_id, len(server_id), byref(handle))
        self._take(handle, length)

    def _take(self, handle: c_void_p, length: int) -> None:
        self._handle = handle
        self.length = length
        weakref.finalize(self, library.equic_ids_free, handle)

    @classmethod
    def _of(cls, handle: c_void_p) -> ConnectionIds:
        ids = cls.__new__(cls)
        ids._take(handle, ID_LENGTH)
        return ids

    def generate(self) -> bytes:
        """Returns an ID that was not issued before."""
        content = ctypes.create_string_buffer(self.length)
        library.equic_ids_generate(self._handle, content, self.length)
        return content.raw

    def check(self, connection_id: bytes) -> None:
        """Raises Error unless a server of this service issued the ID."""
        library.equic_ids_check(self._handle, connection_id, len(connection_id))

    def set_ring(self, ring: Ring) -> None:
        """Replaces the ring after a key rotation. It is not for generators of a gateway, which always use
        the gateway's current keys."""
        library.equic_ids_set_ring(self._handle, ring._handle)
