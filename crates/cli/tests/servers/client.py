"""An aioquic client with many connections. It reads commands from stdin, one per line:

    open ID ADDRESS SECONDS     connect from ADDRESS, and make a request
    ask ID [BYTES]              make a request of this size on a new stream
    move ID ADDRESS             migrate to ADDRESS with another connection ID, and make a request
    drift ID ADDRESS            migrate in the same way, but only send a PING frame
    close ID                    close the connection

When a command is complete, the client prints a line: `ID open`, `ID refused` (the server closed the
connection), `ID silence` (no answer in time), or `ID closed`. Arguments: the server's address, port
and ALPN protocol.
"""

import asyncio
import socket
import ssl
import sys

from aioquic.asyncio import QuicConnectionProtocol
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection

PATIENCE = 60
HOST, PORT, ALPN = sys.argv[1], int(sys.argv[2]), sys.argv[3]
# Use the same tuple format as for received datagrams, because aioquic treats a different tuple as
# another path.
SERVER = (HOST, PORT, 0, 0) if ":" in HOST else (HOST, PORT)


class Client(QuicConnectionProtocol):
    keeping: asyncio.Task | None = None

    async def bind(self, address: str) -> None:
        before = self._transport
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: self, local_addr=(address, 0), family=family
        )
        if before is not None:
            before.close()

    async def open(self) -> str:
        self.connect(SERVER)
        await self.wait_connected()
        self.keeping = asyncio.create_task(self.keep())
        return await self.ask()

    async def ask(self, size: int = 14) -> str:
        question = (b"anybody there?" * (size // 14 + 1))[:size]
        reader, writer = await self.create_stream()
        writer.write(question)
        writer.write_eof()
        return "open" if await reader.read() == question else "refused"

    async def move(self, address: str) -> None:
        # The client must wait until the server issues another ID with a NEW_CONNECTION_ID frame.
        while not self._quic._peer_cid_available:
            await asyncio.sleep(0.01)
        await self.bind(address)
        self.change_connection_id()

    async def keep(self) -> None:
        try:
            while not self._closed.is_set():
                await asyncio.sleep(5)
                await self.ping()
        except ConnectionError:
            pass


clients: dict[str, Client] = {}


async def done(order: str, name: str, address: str = "", seconds: str = "") -> str:
    if order == "open":
        configuration = QuicConfiguration(
            alpn_protocols=[ALPN],
            server_name="localhost",
            verify_mode=ssl.CERT_NONE,
            idle_timeout=3600,
        )
        client = clients[name] = Client(QuicConnection(configuration=configuration))
        await client.bind(address)
        return await asyncio.wait_for(client.open(), float(seconds))
    client = clients[name]
    if order in ("move", "drift"):
        await asyncio.wait_for(client.move(address), PATIENCE)
    if order == "drift":
        await asyncio.wait_for(client.ping(), PATIENCE)
        return "open"
    if order == "close":
        client.close()
        return "closed"
    # For `ask`, the word after the name is a size, not an address.
    size = int(address) if order == "ask" and address else 14
    return await asyncio.wait_for(client.ask(size), PATIENCE)


async def obey(line: str) -> None:
    name = line.split()[1]
    try:
        result = await done(*line.split())
    except TimeoutError:
        result = "silence"
        # Nothing waits for this connection any longer, so remove the waiter.
        clients[name]._connected_waiter = None
        clients[name].close()
    except ConnectionError:
        result = "refused"
    print(name, result, flush=True)


async def main() -> None:
    orders = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    tasks = set()
    print("ready", flush=True)
    while line := (await orders.readline()).decode():
        task = asyncio.create_task(obey(line))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


asyncio.run(main())
