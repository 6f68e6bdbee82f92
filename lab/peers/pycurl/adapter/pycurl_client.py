"""curl's HTTP/3 client for `equic-lab bench` (docs/bench-contract.md). The wheels of pycurl contain curl
with ngtcp2 and nghttp3 on OpenSSL. It has one connection at a time. curl decides about flow control and
datagram sizes."""

import json
import os
import pathlib
import socket
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python-contract"))

import contract

# Size of the buffer into which curl reads a response body, in bytes.
READ = 512 << 10


def curl_with(options):
    """Sets the variables that curl reads when it is loaded, and loads it."""
    if options.keylog:
        os.environ["SSLKEYLOGFILE"] = options.keylog
    if options.qlog:
        os.environ["QLOGDIR"] = options.qlog
    import pycurl

    return pycurl


class Client:
    def __init__(self, options) -> None:
        for name in ("gso", "mtu"):
            if getattr(options, name) is not None:
                contract.unsupported(f"the option --{name}")
        if options.congestion not in (None, "cubic"):
            contract.unsupported(options.congestion)
        if options.connections > 1:
            contract.unsupported("several connections")
        self.options = options
        self.curl = curl_with(options)
        self.multi = self.curl.CurlMulti()
        self.multi.setopt(self.curl.M_PIPELINING, self.curl.PIPE_MULTIPLEX)
        self.multi.setopt(self.curl.M_MAX_TOTAL_CONNECTIONS, 1)
        self.multi.setopt(self.curl.M_MAX_CONCURRENT_STREAMS, contract.STREAMS)
        self.host, self.port = contract.split_address(options.connect)
        self.in_force = {
            "implementation": f"pycurl {self.curl.version.split()[0].partition('/')[2]}, "
            + next(part for part in self.curl.version.split() if part.startswith("ngtcp2")),
            "io": "native",
            "stream_window": None,
            "connection_window": None,
            "congestion": "cubic",
            "cipher": contract.SUITES[options.cipher or "aes128"],
            "max_payload": None,
            "gso": None,
            "gro": None,
            "crypto": "openssl",
        }

    def open_socket(self, _purpose, address):
        sock = socket.socket(address.family, socket.SOCK_DGRAM)
        contract.set_buffers(sock, self.options, self.in_force)
        return sock

    def get(self, path: str, check: contract.Check):
        """Returns a handle for a request, which is not started yet."""
        curl, easy = self.curl, self.curl.Curl()
        host = f"[{self.host}]" if ":" in self.host else self.host
        easy.setopt(curl.URL, f"https://{self.options.name}:{self.port}{path}")
        easy.setopt(curl.CONNECT_TO, [f"::{host}:{self.port}"])
        easy.setopt(curl.HTTP_VERSION, curl.CURL_HTTP_VERSION_3ONLY)
        easy.setopt(curl.CAINFO, self.options.ca)
        easy.setopt(curl.PIPEWAIT, 1)
        easy.setopt(curl.BUFFERSIZE, READ)
        easy.setopt(curl.TLS13_CIPHERS, self.in_force["cipher"])
        easy.setopt(curl.OPENSOCKETFUNCTION, self.open_socket)
        easy.setopt(curl.WRITEFUNCTION, check.take)
        easy.setopt(curl.FAILONERROR, 1)
        return easy

    def ended(self) -> list:
        """Waits until at least one request has ended. Returns the handles of the ended ones."""
        while True:
            self.multi.perform()
            _, good, bad = self.multi.info_read()
            if bad:
                raise SystemExit(f"{bad[0][2]} ({bad[0][1]})")
            if good:
                return good
            self.multi.select(1.0)

    def fetch_all(self, first: list[tuple[str, int]], another) -> tuple[int, int]:
        """Fetches paths with their sizes. Calls `another` after each of them, which may return one more.
        Returns bytes and completions."""
        open_ones: dict = {}
        total = count = 0

        def begin(path: str, wanted: int) -> None:
            check = contract.Check()
            easy = self.get(path, check)
            open_ones[easy] = (check, wanted)
            self.multi.add_handle(easy)

        for path, wanted in first:
            begin(path, wanted)
        while open_ones:
            for easy in self.ended():
                check, wanted = open_ones.pop(easy)
                self.multi.remove_handle(easy)
                check.finish()
                if check.at != wanted:
                    raise SystemExit(f"received {check.at} bytes instead of {wanted}")
                total += wanted
                count += 1
                if following := another():
                    begin(*following)
        return total, count

    def connect(self) -> float:
        """Opens the connection by a request of 0 bytes. Returns the duration of the handshake."""
        easy = self.get("/0", contract.Check())
        self.multi.add_handle(easy)
        self.ended()
        seconds = easy.getinfo(self.curl.APPCONNECT_TIME)
        self.multi.remove_handle(easy)
        return seconds

    def run(self) -> dict:
        options = self.options
        handshake = self.connect()
        start = time.monotonic()
        if options.download is not None:
            parts = [contract.share(options.download, options.streams, at) for at in range(options.streams)]
            total, count = self.fetch_all([(f"/{part}", part) for part in parts], lambda: None)
        else:
            small = ("/1k", contract.SMALL_BODY)

            def another():
                return small if time.monotonic() - start < options.requests else None

            total, count = self.fetch_all([small] * options.parallel, another)
        seconds = time.monotonic() - start
        return {
            "bytes": total,
            "count": count,
            "seconds": seconds,
            "handshake_seconds": handshake,
            "effective": self.in_force,
        }


def main() -> None:
    options = contract.read_options(sys.argv[1:])
    if options.role == "server":
        contract.unsupported("the role of a server")
    wanted = options.download is not None or options.requests is not None
    if options.protocol not in (None, "h3") or not wanted:
        contract.unsupported("workloads other than HTTP/3 downloads and requests")
    print(json.dumps(Client(options).run()), flush=True)


if __name__ == "__main__":
    main()
