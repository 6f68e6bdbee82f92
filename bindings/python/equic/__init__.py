"""Reports the connections of a QUIC server to an eQUIC gateway. The gateway is an XDP program that
drops packets of a client that would exceed the client's quota of connections.

This is a thin layer over the C library libequic. The system's loader finds the library, or the
environment variable EQUIC_LIBRARY names it::

    gateway = equic.join("eth0", "my server")
    service = gateway.service()
    ...
    with service.opened(peer) as guard:     # from the completed handshake until it is closed
        ...

Connections are counted in memory that is shared with the kernel, so only functions of Gateway make
system calls. All functions may be called from any thread. A forked process must join again.

* _gateway.py: gateways; _service.py: services and guards; _retry.py: key rings and Retry tokens;
  _ids.py: connection IDs; _library.py: the C functions and errors.
"""

from ._gateway import Gateway, JoinEvent, Mode, TokenCheck, connect, join, load, load_config
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
    "RetryProof",
    "Ring",
    "Service",
    "TokenCheck",
    "connect",
    "join",
    "load",
    "load_config",
    "version",
]
