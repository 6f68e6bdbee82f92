"""Chromium as a client of the QUIC Interop Runner's case http3 (see interop-contract for its
environment). It loads a page that fetches the files. Its net log must show that each request used
HTTP/3.

This script runs with the Python of scripts/interop.sh's virtual environment, which has `cryptography`.
"""

import base64
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

UNSUPPORTED = 127
# Net log events that begin a request over HTTP/3. The next constant has those of other protocols.
HTTP3 = "HTTP_TRANSACTION_QUIC_SEND_REQUEST_HEADERS"
OTHERS = ("HTTP_TRANSACTION_SEND_REQUEST_HEADERS", "HTTP_TRANSACTION_HTTP2_SEND_REQUEST_HEADERS")
# Time limit for loading the page, in seconds.
PATIENCE = 40


def folder(name: str, otherwise: str) -> pathlib.Path:
    return pathlib.Path(os.environ.get(name) or otherwise)


def key_hash() -> str:
    """Returns the hash of the server's public key, which the browser must trust."""
    chain = (folder("CERTS", "/certs") / "cert.pem").read_bytes()
    key = x509.load_pem_x509_certificate(chain).public_key()
    info = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(info).digest()).decode()


def browse(program: str, url: str, profile: str, log: pathlib.Path) -> str:
    """Loads the page. Returns its content after its scripts have run."""
    done = subprocess.run(
        [
            program,
            "--headless=new",
            # The page is ours. This may run as root, which cannot use the sandbox.
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            f"--user-data-dir={profile}",
            f"--origin-to-force-quic-on={urlsplit(url).netloc}",
            f"--ignore-certificate-errors-spki-list={key_hash()}",
            f"--log-net-log={log}",
            "--virtual-time-budget=30000",
            "--dump-dom",
            url,
        ],
        stdout=subprocess.PIPE,
        timeout=PATIENCE,
        check=True,
        text=True,
    )
    return done.stdout


def store(page: str) -> int:
    """Writes the files that the page has received. Returns their number."""
    found = re.search(r'<pre id="got">(.*?)</pre>', page, re.DOTALL)
    lines = found.group(1).splitlines() if found else []
    for line in lines:
        name, status, content = (line.split(" ") + ["", ""])[:3]
        if status != "200":
            sys.exit(f"the page says: {line[:200]}")
        (folder("DOWNLOADS", "/downloads") / os.path.basename(name)).write_bytes(bytes.fromhex(content))
    return len(lines)


def protocols(log: pathlib.Path) -> tuple[int, int]:
    """Returns the number of requests over HTTP/3, and that over other protocols."""
    text = log.read_text()
    try:
        entries = json.loads(text)
    except json.JSONDecodeError:
        # A browser that is killed does not write the end of its log.
        entries = json.loads(text.rstrip().rstrip(",") + "]}")
    types = entries["constants"]["logEventTypes"]
    wanted = [types[HTTP3]], [types[name] for name in OTHERS if name in types]
    # Phase 1 is the beginning of an event, 2 its end, and 0 an event without a duration.
    seen = [event["type"] for event in entries["events"] if event.get("phase") != 2]
    http3, others = (sum(seen.count(kind) for kind in kinds) for kinds in wanted)
    return http3, others


def main() -> None:
    if os.environ.get("ROLE") != "client" or os.environ.get("TESTCASE") != "http3":
        sys.exit(UNSUPPORTED)
    program = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if not program:
        sys.exit("chromium is not installed: install it with `apt-get install chromium`")
    url = os.environ["REQUESTS"].split()[0]
    log = folder("QLOGDIR", ".") / "net-log.json"
    with tempfile.TemporaryDirectory() as profile:
        page = browse(program, url, profile, log)
    files = store(page)
    http3, others = protocols(log)
    print(f"{files} files; requests over HTTP/3: {http3}, over others: {others}")
    # The page itself is one more request.
    if files == 0 or http3 < files + 1 or others > 0:
        sys.exit("not every request used HTTP/3" if files else f"the page received no file: {page[:500]}")


if __name__ == "__main__":
    main()
