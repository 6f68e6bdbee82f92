"""Returns the commands of the implementations in bench.json, and creates certificates for them."""

import json
import pathlib
import subprocess

PEERS = pathlib.Path(__file__).resolve().parent
ROOT = PEERS.parent.parent
PLACES = {
    "{dir}": str(PEERS),
    "{built}": str(ROOT / "target/servers"),
    "{equic}": str(ROOT / "target/release/equic-lab"),
}


def listed() -> dict:
    return json.loads((PEERS / "bench.json").read_text())


def filled(command: list[str]) -> list[str]:
    for mark, place in PLACES.items():
        command = [word.replace(mark, place) for word in command]
    return command


def certificates(folder: pathlib.Path) -> None:
    """Creates an authority and a certificate for `server` like those of the benchmark: ECDSA on P-256."""
    extensions = folder / "extensions"
    extensions.write_text("subjectAltName=DNS:server\nbasicConstraints=CA:FALSE\n")
    key = ["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out"]
    sign = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "extensions"]
    for command in (
        [*key, "ca.key"],
        ["openssl", "req", "-x509", "-new", "-key", "ca.key", "-subj", "/CN=ca", "-out", "ca.pem"],
        [*key, "priv.key"],
        ["openssl", "req", "-new", "-key", "priv.key", "-subj", "/CN=server", "-out", "request"],
        ["openssl", "x509", "-req", "-in", "request", *sign, "-out", "cert.pem"],
    ):
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
