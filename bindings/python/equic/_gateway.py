"""Gateways: loading, joining, attaching, settings, lists."""

from __future__ import annotations

import enum
import logging
import math
import threading
from collections.abc import Callable
from ctypes import byref, c_uint32, c_void_p, sizeof
from types import TracebackType
from typing import Any

from ._ids import ConnectionIds
from ._library import Code, Error, JoinCallback, Options, library, optional
from ._retry import Ring
from ._service import Service


class Policy(enum.IntEnum):
    """What happens to a source that holds as many connections as its limit."""

    NEW = 0
    STRICT = 1
    UNDERWAY = 2


class JoinEvent(enum.IntEnum):
    """What becomes of a gateway that was joined."""

    LOST = 1
    """It has ended: no quota holds in the kernel until the next one is joined, by itself."""
    UNREACHABLE = 2
    """It has ended, and the next one cannot be joined; that is tried on."""
    JOINED = 3
    """The next one is joined, with every connection that is open."""


class Mode(enum.IntEnum):
    """How the program is attached to an interface."""

    CONFIGURED = 0
    AUTO = 1
    NATIVE = 2
    GENERIC = 3


class TokenKeys(enum.IntEnum):
    """What a server does about the tokens of a gateway's Retry packets, and its connection IDs."""

    NONE = 0
    """It does not check tokens."""
    TAKE = 1
    """It takes the gateway's key ring (Gateway.ring) and checks tokens."""
    OWN = 2
    """It checks tokens, and has the ring already: from a file."""
    TAKE_FOR_IDS = 3
    """It takes the ring, checks tokens, and makes all its connection IDs with it (Gateway.connection_ids): the
    gateway may check them (check_ids)."""
    IDS_ONLY = 4
    """It takes the ring and makes all its connection IDs with it, and does not check tokens: for QUIC stacks whose
    tokens are their own."""


def load(
    *,
    listen: str = "443",
    max_connections: int = 0,
    policy: Policy = Policy.NEW,
    name: str | None = None,
    service: str | None = None,
    dry_run: bool = False,
    new_per_source: str | None = None,
    new_per_service: str | None = None,
    packets_per_source: str | None = None,
    bytes_per_source: str | None = None,
) -> Gateway:
    """Loads a gateway of this process's own, with one service. It protects nothing until it is
    attached, and goes with the process. Needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN. Rates are
    written as in the configuration ("20/s burst 40"); None means no limit.
    """
    options = Options()
    library.equic_options_init(byref(options), sizeof(options))
    options.listen = listen.encode()
    options.max_connections = max_connections
    options.policy = policy
    options.name = optional(name)
    options.service = optional(service)
    options.dry_run = dry_run
    options.new_per_source = optional(new_per_source)
    options.new_per_service = optional(new_per_service)
    options.packets_per_source = optional(packets_per_source)
    options.bytes_per_source = optional(bytes_per_source)
    return _made(library.equic_gateway_open, byref(options))


def load_config(text: str) -> Gateway:
    """Loads a gateway as a configuration (TOML, docs/equic.example.toml) says."""
    return _made(library.equic_gateway_open_config, text.encode())


def join(
    selector: str | None = None,
    name: str | None = None,
    on_event: Callable[[JoinEvent, str], None] | None = None,
    keys: TokenKeys = TokenKeys.NONE,
) -> Gateway:
    """Joins a gateway that another process runs, chosen by interface, name or program id; None: the
    only one there is. `name` is what `equic gateway status` calls this process. Needs CAP_SYS_ADMIN.

    When that gateway ends, the next one is joined by itself, with every connection that is open.
    `on_event` is told of both with a line for a log, in a thread of the library's, where it must not
    close the gateway; without it, they are warnings of the logger "equic".

    `keys` says whether this server checks the tokens of the gateway's Retry packets, and whether its
    connection IDs are made with the gateway's keys: the gateway refuses to be set to Retry, or to check_ids,
    while a server has not said so, as its clients would get no further.
    """
    made = _made(library.equic_gateway_join_checking, optional(selector), optional(name), keys)
    return _followed(made, on_event)


def connect(
    path: str,
    name: str | None = None,
    on_event: Callable[[JoinEvent, str], None] | None = None,
    keys: TokenKeys = TokenKeys.NONE,
) -> Gateway:
    """Joins the gateway behind a Unix socket (`equic gateway run --socket PATH`), which takes no
    privileges. Otherwise as `join`; settings, lists and counters are out of reach. The gateway gives
    its key ring to users who may serve all its services; others join without it."""
    made = _made(library.equic_gateway_connect_checking, path.encode(), optional(name), keys)
    return _followed(made, on_event)


def _followed(gateway: Gateway, on_event: Callable[[JoinEvent, str], None] | None) -> Gateway:
    def log(_: JoinEvent, message: str) -> None:
        logging.getLogger("equic").warning("%s", message)

    tell = on_event or log

    def heard(event: int, message: bytes, _: object) -> None:
        tell(JoinEvent(event), message.decode(errors="replace"))

    callback = JoinCallback(heard)
    gateway._call(library.equic_gateway_notify, callback, None)
    # The library calls it for as long as anything of the gateway is held: it stays for good.
    _callbacks.append(callback)
    return gateway


_callbacks: list[object] = []


def _made(function: Callable[..., None], *arguments: object) -> Gateway:
    handle = c_void_p()
    function(*arguments, byref(handle))
    return Gateway(handle)


class Gateway:
    """An XDP program with its services and lists, loaded or joined by this process.

    It stays until `close`, the end of a `with`, or the end of the process.
    """

    def __init__(self, handle: c_void_p) -> None:
        self._handle: c_void_p | None = handle
        # Nobody may close it under a call of another thread.
        self._lock = threading.Lock()

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        with self._lock:
            if self._handle is None:
                raise Error(Code.CLOSED, "the gateway is closed")
            function(self._handle, *arguments)

    def attach(self, interface: str, mode: Mode = Mode.AUTO) -> None:
        """Puts the program on a network interface."""
        self._call(library.equic_gateway_attach, interface.encode(), mode)

    def detach(self, interface: str | None = None) -> None:
        """Takes the program off an interface; None: off all. Counts, lists and limits stay."""
        self._call(library.equic_gateway_detach, optional(interface))

    def service(self, name: str | None = None) -> Service:
        """The service of that name; None: the only one there is."""
        handle = c_void_p()
        self._call(library.equic_gateway_service, optional(name), byref(handle))
        return Service(handle)

    def ring(self) -> Ring:
        """The key ring of a gateway that was joined with TokenKeys.TAKE or TAKE_FOR_IDS, or loaded by this process.
        Every call goes by the keys that the gateway has at that moment, until the gateway is closed.

        Raises Error with Code.NOT_FOUND if the gateway was not asked for it, or has not given it.
        """
        handle = c_void_p()
        self._call(library.equic_gateway_ring, byref(handle))
        return Ring._of(handle)

    def connection_ids(self, instance: int = 0) -> ConnectionIds:
        """What makes connection IDs that the gateway can check (check_ids), for a server that has joined with
        TokenKeys.TAKE_FOR_IDS or IDS_ONLY, all of whose IDs have to be such. Each is made with the key that the gateway
        uses at that moment, or the next gateway once that one is joined. It says the process's place (`slot`) and
        `instance`, 0 to 255, which tells the process's sockets apart.

        Raises Error with Code.NOT_FOUND as `ring` does.
        """
        if not 0 <= instance <= 255:
            raise ValueError(f"an instance is a number from 0 to 255, not {instance}")
        handle = c_void_p()
        self._call(library.equic_gateway_ids, instance, byref(handle))
        return ConnectionIds._of(handle)

    def slot(self) -> int:
        """The place of this process among those that feed the gateway, which the first byte of the server ID in
        its connection IDs says. The next gateway that is joined may give another."""
        slot = c_uint32()
        self._call(library.equic_gateway_slot, byref(slot))
        return slot.value

    def set(self, key: str, value: str) -> None:
        """Changes a setting while the gateway runs, as `equic gateway set KEY=VALUE` does."""
        self._call(library.equic_set, key.encode(), value.encode())

    def deny(self, prefix: str, seconds: float = 0) -> None:
        """Drops every packet of an address or prefix, for a time; 0: until `forget`."""
        self._call(library.equic_deny, prefix.encode(), math.ceil(seconds * 1000))

    def allow(self, prefix: str, seconds: float = 0) -> None:
        """Exempts an address or prefix from quotas and rates, for a time; 0: until `forget`."""
        self._call(library.equic_allow, prefix.encode(), math.ceil(seconds * 1000))

    def forget(self, prefix: str) -> None:
        """Takes an address or prefix off both lists."""
        self._call(library.equic_forget, prefix.encode())

    def close(self) -> None:
        """Ends the gateway: the program leaves its interfaces; one that was joined stays, without
        this process's counts. Services and guards stay valid and count for nobody."""
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
