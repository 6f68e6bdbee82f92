"""Tests the built implementations on loopback: each as client and as server, with itself and with
ours, in a short run of every workload. `-` marks a workload that one end does not support. Nothing is
measured.

Usage: scripts/bench.sh try [NAME...]
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading

import peers

# Workloads by protocol: name, options of the client, and the expected bytes and completions. `None`
# means any number.
HANDSHAKES = "--handshakes 0.5 --parallel 4"
WORKS = {
    "perf": [
        ("download", "--download 20000001", 20_000_001, 1),
        ("streams", "--download 3000001 --streams 7", 3_000_001, 7),
        ("connections", "--download 3000001 --connections 3", 3_000_001, 3),
        ("upload", "--upload 3000001", 3_000_001, 1),
        ("handshakes", HANDSHAKES, None, None),
        ("resumed", f"{HANDSHAKES} --resume", None, None),
        ("ttfb", "--ttfb 0.5", None, None),
        ("loaded", "--loaded 0.5", None, None),
        ("hold", "--hold 20", 0, 20),
    ],
    "h3": [
        ("download", "--protocol h3 --download 20000001", 20_000_001, 1),
        ("streams", "--protocol h3 --download 3000001 --streams 7", 3_000_001, 7),
        ("connections", "--protocol h3 --download 3000001 --connections 3", 3_000_001, 3),
        ("requests", "--requests 0.5 --parallel 4", None, None),
    ],
    "sendfile": [
        ("download", "--download 20000001", 20_000_001, 1),
        ("connections", "--download 3000001 --connections 3", 3_000_001, 3),
    ],
}
WORKS["perf-tcp"] = [work for work in WORKS["perf"] if work[0] not in ("streams", "loaded")]
SECONDS = 60


def run(client: list[str], server: list[str], folder: pathlib.Path, work: tuple) -> str:
    """Runs one workload. Returns `ok`, `-...` if it is unsupported, or the reason of the failure."""
    name, words, wanted, count = work
    listen = ["server", "--listen", "127.0.0.1:0", "--cert", "cert.pem", "--key", "priv.key"]
    with open(folder / "server.log", "w") as log:
        serving = subprocess.Popen(
            [*server, *listen], cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True
        )
    late = threading.Timer(SECONDS, serving.kill)
    late.start()
    try:
        ready = serving.stdout.readline().split()
        if ready[:1] != ["ready"]:
            return "-" if serving.wait() == 127 else f"the server said {ready}"
        told = serving.stdout.readline()
        if not told.startswith("effective {") or not json.loads(told.partition(" ")[2]):
            return f"the server said {told!r}"
        connect = ["client", "--connect", ready[1], "--name", "server", "--ca", "ca.pem"]
        asking = subprocess.run(
            [*client, *connect, *words.split()], cwd=folder, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=SECONDS,
        )
        if asking.returncode == 127:
            return "-"
        if asking.returncode != 0:
            return f"status {asking.returncode}: {(asking.stderr.strip() or '?').splitlines()[-1]}"
        return judge(name, json.loads(asking.stdout.splitlines()[-1]), wanted, count)
    except subprocess.TimeoutExpired:
        return f"not done in {SECONDS} s"
    finally:
        late.cancel()
        serving.send_signal(signal.SIGTERM)
        try:
            serving.wait(5)
        except subprocess.TimeoutExpired:
            serving.kill()
            serving.wait()


def judge(name: str, answer: dict, wanted, count) -> str:
    if wanted is not None and answer["bytes"] != wanted:
        return f"{answer['bytes']} bytes"
    if count is not None and answer["count"] != count or answer["count"] == 0 or not answer["seconds"]:
        return f"{answer['count']} in {answer['seconds']} s"
    if not answer["effective"]["implementation"]:
        return "no implementation"
    if name in ("handshakes", "resumed"):
        should = answer["count"] if name == "resumed" else 0
        if should and not answer["resumed"]:
            return "- (the server gives no tickets)"
        if answer["resumed"] < 0.99 * should or (should == 0 and answer["resumed"]):
            return f"{answer['resumed']} of {answer['count']} resumed"
    if name == "ttfb" and not 0 < answer["first_byte_seconds"]["median"] < 10:
        return str(answer["first_byte_seconds"])
    if name == "loaded":
        latency = answer["latency"]
        times = [time for load in ("unloaded", "loaded") for time in latency[load].values()]
        if not all(0 < time < 10 for time in times) or latency["bulk_bytes"] <= 0:
            return str(latency)
        if answer["bytes"] != latency["bulk_bytes"] + 1024 * answer["count"]:
            return f"{answer['bytes']} bytes"
    return "ok"


def main() -> int:
    listed = peers.listed()
    names = sys.argv[1:] or [
        name for name, one in listed.items() if all(map(os.path.exists, peers.filled(one["command"])[:1]))
    ] + [name for name, one in listed.items() if "/" not in one["command"][0] and "{" not in one["command"][0]]
    failed = 0
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        peers.certificates(folder)
        # Without backtraces, the last line of standard error is the error message, which is
        # printed.
        os.environ["RUST_BACKTRACE"] = "0"
        for name in dict.fromkeys(names):
            for protocol in listed[name]["speaks"]:
                ours = protocol in listed["equic"]["speaks"]
                pairs = {(name, name)} | ({(name, "equic"), ("equic", name)} if ours else set())
                for client, server in sorted(pairs):
                    if listed[client].get("role") == "server" or listed[server].get("role") == "client":
                        continue
                    ends = (peers.filled(listed[one]["command"]) for one in (client, server))
                    ends = list(ends)
                    for work in WORKS[protocol]:
                        how = run(*ends, folder, work)
                        failed += how != "ok" and not how.startswith("-")
                        print(f"{protocol:9}{client:>14} <- {server:14}{work[0]:12} {how}", flush=True)
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
