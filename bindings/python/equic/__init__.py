"""Feeds an eQUIC gateway: an XDP program that keeps what would take a QUIC client over its quota of
connections away from the server.

A thin layer over the C library libequic, found by the system's loader or named by EQUIC_LIBRARY::

    gateway = equic.join("eth0", "my server")
    service = gateway.service()
    ...
    with service.opened(peer) as guard:     # from the completed handshake until it is closed
        ...

What counts is memory shared with the kernel: no call but those of Gateway makes a system call.
Everything may be called from any thread; after a fork, join again.

* _gateway.py: gateways; _service.py: services and guards; _retry.py: key rings, Retry tokens; _ids.py: connection IDs;
  _library.py: the C functions, errors.
"""

from ._gateway import Gateway, JoinEvent, Mode, Policy, TokenKeys, connect, join, load, load_config
from ._ids import ID_LENGTH, ConnectionIds
from ._library import Code, Error, version
from ._retry import Clock, RetryProof, Ring
from ._service import Address, Counts, Guard, Service

__all__ = [
    "Address",
    "Clock",
    "Code",
    "ConnectionIds",
    "Counts",
    "Error",
    "Gateway",
    "Guard",
    "ID_LENGTH",
    "JoinEvent",
    "Mode",
    "Policy",
    "RetryProof",
    "Ring",
    "Service",
    "TokenKeys",
    "connect",
    "join",
    "load",
    "load_config",
    "version",
]
