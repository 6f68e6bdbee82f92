"""The C library: its functions with their types, and its errors."""

from __future__ import annotations

import ctypes
import ctypes.util
import enum
import os
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p


class Code(enum.IntEnum):
    """A kind of error, as enum equic_error in equic.h."""

    INVALID_ARGUMENT = 1
    NOT_PERMITTED = 2
    NO_SUCH_INTERFACE = 3
    INTERFACE_BUSY = 4
    ALREADY_ATTACHED = 5
    NOT_ATTACHED = 6
    NATIVE_REFUSED = 7
    KERNEL_TOO_OLD = 8
    BAD_OBJECT = 9
    ABI_VERSION = 10
    VERIFIER = 11
    NO_GATEWAY = 12
    AMBIGUOUS_GATEWAY = 13
    CONFIG = 14
    NO_SUCH_SERVICE = 15
    FULL = 16
    FOREIGN_PROGRAM = 17
    NOT_FOUND = 18
    NOT_OWNER = 19
    CLOSED = 20
    SYSTEM = 21
    INTERNAL = 22
    REFUSED = 23
    PIN = 24
    NEW_TOKEN = 25
    PROOF_MALFORMED = 26
    PROOF_UNKNOWN_KEY = 27
    PROOF_FORGED = 28
    PROOF_EXPIRED = 29
    PROOF_EARLY = 30


class Error(Exception):
    """An error of the library: a code, and a message that says what failed, why, and how to fix it."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        try:
            self.code: Code | int = Code(code)
        except ValueError:  # the code of a newer library
            self.code = code


class Options(ctypes.Structure):
    """The struct equic_options."""

    _fields_ = [
        ("size", c_size_t),
        ("name", c_char_p),
        ("service", c_char_p),
        ("listen", c_char_p),
        ("port", c_uint16),
        ("settings", POINTER(c_char_p)),
        ("object", c_char_p),
    ]


class NativeJoinOptions(ctypes.Structure):
    """The struct equic_join_options."""

    _fields_ = [("size", c_size_t), ("token_check", c_int), ("issue_ids", c_int)]


class NativeCounts(ctypes.Structure):
    """The struct equic_counts."""

    _fields_ = [("packets", c_uint64), ("bytes", c_uint64), ("dropped", c_uint64)]


class NativeRetryProof(ctypes.Structure):
    """The struct equic_retry_proof."""

    _fields_ = [
        ("original_dcid", c_uint8 * 20),
        ("retry_scid", c_uint8 * 20),
        ("original_dcid_len", c_uint8),
        ("retry_scid_len", c_uint8),
    ]


# The type of equic_join_callback.
JoinCallback = ctypes.CFUNCTYPE(None, c_int, c_char_p, c_void_p)

# Every function used here, with its result and its arguments. The result is a ctypes type, None for
# void, or "error" for enum equic_error.
_handle = c_void_p
_peer = (c_char_p, c_uint32)
_bytes = (c_char_p, c_size_t)
_join = (c_char_p, c_char_p, POINTER(NativeJoinOptions), POINTER(_handle))
_FUNCTIONS: dict[str, tuple[object, tuple[object, ...]]] = {
    "equic_version": (c_char_p, ()),
    "equic_last_error_message": (c_char_p, ()),
    "equic_options_init": ("error", (POINTER(Options), c_size_t)),
    "equic_gateway_open": ("error", (POINTER(Options), POINTER(_handle))),
    "equic_gateway_open_config": ("error", (c_char_p, POINTER(_handle))),
    "equic_join_options_init": ("error", (POINTER(NativeJoinOptions), c_size_t)),
    "equic_gateway_join": ("error", _join),
    "equic_gateway_connect": ("error", _join),
    "equic_gateway_ring": ("error", (_handle, POINTER(_handle))),
    "equic_gateway_ids": ("error", (_handle, c_uint8, POINTER(_handle))),
    "equic_gateway_slot": ("error", (_handle, POINTER(c_uint32))),
    "equic_gateway_notify": ("error", (_handle, JoinCallback, c_void_p)),
    "equic_gateway_close": (None, (_handle,)),
    "equic_gateway_attach": ("error", (_handle, c_char_p, c_int)),
    "equic_gateway_detach": ("error", (_handle, c_char_p)),
    "equic_gateway_service": ("error", (_handle, c_char_p, POINTER(_handle))),
    "equic_service_release": (None, (_handle,)),
    "equic_service_name": (c_char_p, (_handle,)),
    "equic_service_limit": (c_uint32, (_handle,)),
    "equic_service_full": (c_int, (_handle, *_peer)),
    "equic_service_count": ("error", (_handle, *_peer, POINTER(c_uint32))),
    "equic_opened": (
        "error",
        (_handle, *_peer, POINTER(_handle), POINTER(c_uint32), POINTER(c_uint32)),
    ),
    "equic_connection_moved": ("error", (_handle, *_peer, POINTER(c_uint32), POINTER(c_uint32))),
    "equic_connection_closed": (None, (_handle,)),
    "equic_set": ("error", (_handle, c_char_p, c_char_p)),
    "equic_deny": ("error", (_handle, c_char_p, c_uint64)),
    "equic_allow": ("error", (_handle, c_char_p, c_uint64)),
    "equic_forget": ("error", (_handle, c_char_p)),
    "equic_reason_find": (c_int, (c_char_p,)),
    "equic_ring_generate": ("error", (c_int, POINTER(_handle))),
    "equic_ring_read": ("error", (*_bytes, POINTER(_handle))),
    "equic_ring_write": ("error", (_handle, *_bytes)),
    "equic_ring_free": (None, (_handle,)),
    "equic_retry_verify": (
        "error",
        (_handle, *_peer, *_bytes, *_bytes, POINTER(NativeRetryProof)),
    ),
    "equic_retry_seal": ("error", (_handle, *_peer, *_bytes, *_bytes, *_bytes)),
    "equic_ids_new": ("error", (_handle, c_size_t, *_bytes, POINTER(_handle))),
    "equic_ids_generate": ("error", (_handle, *_bytes)),
    "equic_ids_check": ("error", (_handle, *_bytes)),
    "equic_ids_set_ring": ("error", (_handle, _handle)),
    "equic_ids_free": (None, (_handle,)),
    "equic_counter": ("error", (_handle, c_uint32, POINTER(NativeCounts))),
}


def _load() -> ctypes.CDLL:
    path = os.environ.get("EQUIC_LIBRARY") or ctypes.util.find_library("equic") or "libequic.so"
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(
            f"libequic cannot be loaded: {error}. Install it where the system's loader "
            "searches, or set EQUIC_LIBRARY to its path"
        ) from error

    def check(code: int, *_: object) -> None:
        if code:
            raise Error(code, library.equic_last_error_message().decode(errors="replace"))

    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.argtypes = arguments
        function.restype = check if result == "error" else result
    return library


library = _load()


def version() -> str:
    """Returns the version of the loaded library."""
    return library.equic_version().decode()


def optional(text: str | None) -> bytes | None:
    """Returns text in the form of the library, or None, which selects the library's default."""
    return None if text is None else text.encode()


__all__ = ["Code", "Error", "JoinCallback", "NativeCounts", "NativeJoinOptions", "NativeRetryProof", "Options", "byref", "library", "optional", "version"]
