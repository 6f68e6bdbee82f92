"""Key rings, and the Retry tokens that a gateway creates with a ring (docs/retry.md). A ring is that of
a gateway (Gateway.ring), or a copy, which needs no gateway in this process and no privileges."""

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
    """Values that a server must send to a client that presented a Retry token (RFC 9000 s.7.3)."""

    original_dcid: bytes
    retry_scid: bytes


class Ring:
    """Keys that a gateway and its servers share. Everyone who has them can create tokens and connection
    IDs."""

    def __init__(self, content: bytes) -> None:
        """Reads a ring of 128 bytes that a gateway has issued."""
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
        """Returns a ring with one key, for servers that send Retry packets themselves."""
        handle = c_void_p()
        library.equic_ring_generate(clock, byref(handle))
        return cls._of(handle)

    def __bytes__(self) -> bytes:
        """Returns the serialized ring for other processes. The bytes are secret."""
        content = ctypes.create_string_buffer(128)
        library.equic_ring_write(self._handle, content, 128)
        return content.raw

    def verify(self, client: Address, dcid: bytes, token: bytes) -> RetryProof:
        """Checks the token of an Initial packet from client with Destination Connection ID dcid.

        Raises Error if the client's address is not validated. Its code is the reason.
        Code.NEW_TOKEN: the token is from a NEW_TOKEN frame, so the server must validate it.
        Code.NOT_FOUND: the gateway that was joined last does not give its ring.
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
        """Creates the token of a Retry packet, for servers that send Retry packets themselves."""
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
