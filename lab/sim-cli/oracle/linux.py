#!/usr/bin/env python3
"""Prints the table of linux.sh: the times of a kernel's TCP, those of `equic-lab sim run`, and their ratio.

Usage: linux.py POINTS SAID EQUIC-SIM [SEEDS]
"""

import json
import statistics
import subprocess
import sys
import tempfile

SCENARIO = """
[network]
topology = "simple"
[network.link]
rate = "{rate} b/s"
delay = "{delay} ms"
loss = "{loss} %"
queue = "{queue} packets"
back = {{ loss = "0 %" }}
[[flow]]
protocol = "tcp"
controller = "{controller}"
size = "{size} B"
"""


def simulated(sim, point, seeds):
    """Returns the duration of the transfer with each seed, in seconds."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(SCENARIO.format(**point))
        file.flush()
        done = subprocess.run(
            [sim, "run", file.name, "--json", "--seeds", str(seeds)],
            check=True,
            capture_output=True,
        )
    return [run["flows"][0]["completion"] for run in json.loads(done.stdout)["runs"]]


def shown(sample):
    mean = statistics.mean(sample)
    return f"{mean:.2f}±{statistics.stdev(sample):.2f}" if len(sample) > 1 else f"{mean:.2f}"


def main():
    points, said, sim = sys.argv[1:4]
    seeds = int(sys.argv[4]) if len(sys.argv) > 4 else 30
    took, kernel = {}, "?"
    with open(said, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            words = line.split()
            if words[:2] == ["@@", "begin"]:
                kernel = words[2]
            elif words[:2] == ["@@", "run"] and len(words) == 5:
                took.setdefault(words[2], []).append(float(words[3]))
    print(f"| point | Linux {kernel} | equic-lab sim | ratio |\n|---|---|---|---|")
    missing = []
    with open(points, encoding="utf-8") as lines:
        for line in lines:
            keys = ["name", "controller", "rate", "delay", "loss", "queue", "size", "runs"]
            point = dict(zip(keys, line.split()))
            real = took.get(point["name"], [])
            if len(real) != int(point["runs"]):
                missing.append(point["name"])
                continue
            ours = simulated(sim, point, seeds if point["loss"] != "0" else 1)
            ratio = statistics.mean(ours) / statistics.mean(real)
            print(f"| {point['name']} | {shown(real)} | {shown(ours)} | {ratio:.2f} |", flush=True)
    if missing:
        sys.exit("oracle-linux: transfers failed: " + ", ".join(missing))


if __name__ == "__main__":
    main()
