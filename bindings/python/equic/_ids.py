"""Connection IDs that prove themselves (docs/retry.md s.4): those that a gateway can check, Gateway.connection_ids, or
of a ring that was copied."""

from __future__ import annotations

import ctypes
import weakref
from ctypes import byref, c_void_p

from ._library import library
from ._retry import Ring

ID_LENGTH = 12
"""Bytes of the connection IDs that a gateway checks."""


class ConnectionIds:
    """Makes the connection IDs of one server process: two processes need server IDs of their own."""

    def __init__(self, ring: Ring, length: int, server_id: bytes = b"") -> None:
        """IDs of length bytes, 8 to 20, that say server_id, at most 8 bytes, with a copy of the ring. Those that a
        gateway can check: Gateway.connection_ids."""
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
        """An ID that was not given out before."""
        content = ctypes.create_string_buffer(self.length)
        library.equic_ids_generate(self._handle, content, self.length)
        return content.raw

    def check(self, connection_id: bytes) -> None:
        """Raises Error unless a server of this service made the ID."""
        library.equic_ids_check(self._handle, connection_id, len(connection_id))

    def set_ring(self, ring: Ring) -> None:
        """Takes a ring whose keys were rotated. IDs of a gateway follow it without."""
        library.equic_ids_set_ring(self._handle, ring._handle)
