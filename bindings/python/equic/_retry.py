"""Retry tokens that a gateway made, and connection IDs that prove themselves (docs/retry.md). They need only
the ring of the gateway: Gateway.ring, or a copy, which needs no gateway in this process and no privileges."""

from __future__ import annotations

import ctypes
import enum
import weakref
from ctypes import byref, c_void_p
from typing import NamedTuple

from ._library import NativeRetryProof, library
from ._service import Address, _native


class Clock(enum.IntEnum):
    """The clock by which Retry tokens expire."""

    MONOTONIC = 0
    UNIX = 1


class RetryProof(NamedTuple):
    """What a server has to tell a client that brought a Retry token (RFC 9000 s.7.3)."""

    original_dcid: bytes
    retry_scid: bytes


class Ring:
    """Keys that a gateway and the servers behind it share. Whoever has them can make tokens and IDs."""

    def __init__(self, content: bytes) -> None:
        """A ring of 128 bytes that a gateway handed out."""
        handle = c_void_p()
        library.equic_ring_read(content, len(content), byref(handle))
        self._take(handle)

    def _take(self, handle: c_void_p) -> None:
        self._handle = handle
        weakref.finalize(self, library.equic_ring_free, handle)

    @classmethod
    def _of(cls, handle: c_void_p) -> Ring:
        ring = cls.__new__(cls)
        ring._take(handle)
        return ring

    @classmethod
    def generate(cls, clock: Clock = Clock.MONOTONIC) -> Ring:
        """A ring with one key, for whoever makes Retry packets."""
        handle = c_void_p()
        library.equic_ring_generate(clock, byref(handle))
        return cls._of(handle)

    def __bytes__(self) -> bytes:
        """The ring for others to read: a secret."""
        content = ctypes.create_string_buffer(128)
        library.equic_ring_write(self._handle, content, 128)
        return content.raw

    def verify(self, client: Address, dcid: bytes, token: bytes) -> RetryProof:
        """Checks the token of an Initial packet from client with that Destination Connection ID.

        Raises Error, whose code says why the client's address is not validated; Code.NEW_TOKEN: the
        token is of a NEW_TOKEN frame, and the server's to judge.
        """
        proof = NativeRetryProof()
        library.equic_retry_verify(
            self._handle, *_native(client), dcid, len(dcid), token, len(token), byref(proof)
        )
        return RetryProof(
            bytes(proof.original_dcid)[: proof.original_dcid_len],
            bytes(proof.retry_scid)[: proof.retry_scid_len],
        )

    def seal(self, client: Address, original_dcid: bytes, retry_scid: bytes) -> bytes:
        """The token of a Retry packet, for a server that sends Retry packets itself."""
        token = ctypes.create_string_buffer(80)
        library.equic_retry_seal(
            self._handle,
            *_native(client),
            original_dcid,
            len(original_dcid),
            retry_scid,
            len(retry_scid),
            token,
            80,
        )
        return token.raw


class ConnectionIds:
    """Makes the connection IDs of one server process: two processes need server IDs of their own."""

    def __init__(self, ring: Ring, length: int, server_id: bytes = b"") -> None:
        """IDs of length bytes, 8 to 20, that say server_id, at most 8 bytes."""
        handle = c_void_p()
        library.equic_ids_new(ring._handle, length, server_id, len(server_id), byref(handle))
        self._handle = handle
        self.length = length
        weakref.finalize(self, library.equic_ids_free, handle)

    def generate(self) -> bytes:
        """An ID that was not given out before."""
        content = ctypes.create_string_buffer(self.length)
        library.equic_ids_generate(self._handle, content, self.length)
        return content.raw

    def check(self, connection_id: bytes) -> None:
        """Raises Error unless a server of this service made the ID."""
        library.equic_ids_check(self._handle, connection_id, len(connection_id))

    def set_ring(self, ring: Ring) -> None:
        """Takes a ring whose keys were rotated."""
        library.equic_ids_set_ring(self._handle, ring._handle)
