"""Gateways: loading, joining, attaching, settings, lists."""

from __future__ import annotations

import enum
import logging
import math
import threading
from collections.abc import Callable, Mapping
from ctypes import byref, c_char_p, c_uint32, c_void_p, sizeof
from types import TracebackType
from typing import Any

from ._ids import ConnectionIds
from ._library import Code, Error, JoinCallback, NativeJoinOptions, Options, library, optional
from ._retry import Ring
from ._service import Service


class JoinEvent(enum.IntEnum):
    """An event of a joined gateway."""

    LOST = 1
    """The gateway has ended. The kernel enforces no quota until the library has joined the next one,
    which it tries automatically."""
    UNREACHABLE = 2
    """The gateway has ended, and the next one cannot be joined. The library keeps trying."""
    JOINED = 3
    """The library has joined the next gateway, and has reported all open connections to it."""


class Mode(enum.IntEnum):
    """How the program is attached to an interface."""

    CONFIGURED = 0
    AUTO = 1
    NATIVE = 2
    GENERIC = 3


class TokenCheck(enum.IntEnum):
    """The keys with which a server checks the tokens of a gateway's Retry packets (Ring.verify)."""

    NONE = 0
    """The server does not check tokens."""
    GATEWAY_KEYS = 1
    """The server checks tokens with the gateway's key ring (Gateway.ring)."""
    OWN_KEYS = 2
    """The server checks tokens with a ring from another source, for example a file."""


def load(
    *,
    listen: str = "443",
    name: str | None = None,
    service: str | None = None,
    settings: Mapping[str, str | int | bool] | None = None,
) -> Gateway:
    """Loads a gateway that belongs to this process, with one service. It protects nothing until it
    is attached, and it ends with the process. Needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN.

    `settings` has keys and values of `equic gateway run -o`, for example {"max_connections": 100,
    "new_per_source": "20/s burst 40", "gateway.dry_run": True}. `equic gateway settings` lists them.
    """
    options = Options()
    library.equic_options_init(byref(options), sizeof(options))
    options.listen = listen.encode()
    options.name = optional(name)
    options.service = optional(service)
    texts = [_setting(key, value) for key, value in (settings or {}).items()]
    options.settings = (c_char_p * (len(texts) + 1))(*texts, None)
    return _made(library.equic_gateway_open, byref(options))


def _setting(key: str, value: str | int | bool) -> bytes:
    """Returns a setting as the library reads it: KEY=VALUE."""
    if not isinstance(value, (str, int)):
        raise TypeError(f"the setting {key!r} is {type(value).__name__}, but must be str, int or bool")
    text = f"{key}={str(value).lower() if isinstance(value, bool) else value}"
    if "=" in key or "\0" in text:
        raise ValueError(f"the setting {text[:100]!r} contains `=` in its key, or a zero byte")
    return text.encode()


def load_config(text: str) -> Gateway:
    """Loads a gateway from the text of a configuration (TOML, docs/equic.example.toml)."""
    return _made(library.equic_gateway_open_config, text.encode())


def join(
    selector: str | None = None,
    name: str | None = None,
    *,
    token_check: TokenCheck = TokenCheck.NONE,
    issue_ids: bool = False,
    on_event: Callable[[JoinEvent, str], None] | None = None,
) -> Gateway:
    """Joins a gateway of another process. `selector` is an interface, the gateway's name or the ID of
    its program. With None, there must be exactly one gateway. `name` identifies this process in
    `equic gateway status`. Needs CAP_SYS_ADMIN.

    When that gateway ends, the library joins the next one automatically, and reports all open
    connections to it. It calls `on_event` with each event and a line for a log, in a thread of the
    library. `on_event` must not close the gateway. Without it, events are warnings of the logger
    "equic".

    `token_check` declares whether this server checks the tokens of the gateway's Retry packets.
    `issue_ids` declares that it creates all its connection IDs with the gateway's key ring
    (Gateway.connection_ids), so that the gateway may check them (check_ids). The gateway refuses to
    enable Retry or check_ids while a server has joined that does not support it, because clients of
    that server could not connect.
    """
    options = _join_options(token_check, issue_ids)
    made = _made(library.equic_gateway_join, optional(selector), optional(name), byref(options))
    return _followed(made, on_event)


def connect(
    path: str,
    name: str | None = None,
    *,
    token_check: TokenCheck = TokenCheck.NONE,
    issue_ids: bool = False,
    on_event: Callable[[JoinEvent, str], None] | None = None,
) -> Gateway:
    """Joins the gateway at a Unix socket (`equic gateway run --socket PATH`). It needs no privileges.
    Settings, lists and counters are not available. Otherwise it is like `join`. The gateway gives its
    key ring only to users who may serve all its services. Other users join without it."""
    options = _join_options(token_check, issue_ids)
    made = _made(library.equic_gateway_connect, path.encode(), optional(name), byref(options))
    return _followed(made, on_event)


def _join_options(token_check: TokenCheck, issue_ids: bool) -> NativeJoinOptions:
    options = NativeJoinOptions()
    library.equic_join_options_init(byref(options), sizeof(options))
    options.token_check = token_check
    options.issue_ids = issue_ids
    return options


def _followed(gateway: Gateway, on_event: Callable[[JoinEvent, str], None] | None) -> Gateway:
    def log(_: JoinEvent, message: str) -> None:
        logging.getLogger("equic").warning("%s", message)

    tell = on_event or log

    def heard(event: int, message: bytes, _: object) -> None:
        tell(JoinEvent(event), message.decode(errors="replace"))

    callback = JoinCallback(heard)
    gateway._call(library.equic_gateway_notify, callback, None)
    # The library may call it as long as the process has anything of the gateway, so it is kept
    # forever.
    _callbacks.append(callback)
    return gateway


_callbacks: list[object] = []


def _made(function: Callable[..., None], *arguments: object) -> Gateway:
    handle = c_void_p()
    function(*arguments, byref(handle))
    return Gateway(handle)


class Gateway:
    """An XDP program with its services and lists, loaded or joined by this process.

    It exists until `close`, the end of a `with`, or the end of the process.
    """

    def __init__(self, handle: c_void_p) -> None:
        self._handle: c_void_p | None = handle
        # Prevents another thread from closing the gateway during a call.
        self._lock = threading.Lock()

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        with self._lock:
            if self._handle is None:
                raise Error(Code.CLOSED, "the gateway is closed")
            function(self._handle, *arguments)

    def attach(self, interface: str, mode: Mode = Mode.AUTO) -> None:
        """Attaches the program to a network interface."""
        self._call(library.equic_gateway_attach, interface.encode(), mode)

    def detach(self, interface: str | None = None) -> None:
        """Detaches the program from a network interface, or from all with None. Counts, lists and
        limits are kept."""
        self._call(library.equic_gateway_detach, optional(interface))

    def service(self, name: str | None = None) -> Service:
        """Returns the service of this name. With None, there must be exactly one service."""
        handle = c_void_p()
        self._call(library.equic_gateway_service, optional(name), byref(handle))
        return Service(handle)

    def ring(self) -> Ring:
        """Returns the key ring of a gateway that this process has loaded, or has joined with
        TokenCheck.GATEWAY_KEYS or issue_ids. Each call uses the current keys of the gateway, until the
        gateway is closed.

        Raises Error with Code.NOT_FOUND if this process joined without asking for the ring, or if the
        gateway did not give it.
        """
        handle = c_void_p()
        self._call(library.equic_gateway_ring, byref(handle))
        return Ring._of(handle)

    def connection_ids(self, instance: int = 0) -> ConnectionIds:
        """Returns a generator of connection IDs that the gateway can check (check_ids). The server must
        have joined with issue_ids, and must create all its IDs with it. Each ID is created with the
        current key of the gateway, or of the next gateway after that one is joined. It contains the
        slot of the process (`slot`) and `instance`, from 0 to 255, with which the caller distinguishes
        its sockets.

        Raises Error with Code.NOT_FOUND as `ring` does.
        """
        if not 0 <= instance <= 255:
            raise ValueError(f"`instance` must be from 0 to 255, not {instance}")
        handle = c_void_p()
        self._call(library.equic_gateway_ids, instance, byref(handle))
        return ConnectionIds._of(handle)

    def slot(self) -> int:
        """Returns the slot of this process at the gateway. It is the first byte of the server ID in its
        connection IDs. The next gateway may assign another slot."""
        slot = c_uint32()
        self._call(library.equic_gateway_slot, byref(slot))
        return slot.value

    def set(self, key: str, value: str) -> None:
        """Changes a setting while the gateway runs, as `equic gateway set KEY=VALUE` does."""
        self._call(library.equic_set, key.encode(), value.encode())

    def deny(self, prefix: str, seconds: float = 0) -> None:
        """Drops every packet from an address or prefix. The entry lasts for this time, or until `forget`
        if that is 0."""
        self._call(library.equic_deny, prefix.encode(), math.ceil(seconds * 1000))

    def allow(self, prefix: str, seconds: float = 0) -> None:
        """Exempts an address or prefix from quotas and rates. The entry lasts for this time, or until
        `forget` if that is 0."""
        self._call(library.equic_allow, prefix.encode(), math.ceil(seconds * 1000))

    def forget(self, prefix: str) -> None:
        """Removes an address or prefix from both lists."""
        self._call(library.equic_forget, prefix.encode())

    def close(self) -> None:
        """Closes the gateway. A gateway of this process is detached from its interfaces. A joined
        gateway continues, without the counts of this process. Services and guards stay valid, but no
        longer count."""
        with self._lock:
            library.equic_gateway_close(self._handle)
            self._handle = None

    def __enter__(self) -> Gateway:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
