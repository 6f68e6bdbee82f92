#!/usr/bin/env python3
"""Compares real time with virtual time: runs scenarios/*.toml with `equic-lab net run` and `equic-lab sim run`.

Usage: lab.py [FOLDER]       FOLDER has equic-lab and equic-sim; the default is target/release. Needs root.

The medians of the completion times over the seeds may differ by 10 %. Rates are low, so that an idle machine is never
the bottleneck. `equic-lab net run` reports how late packets were. If a scenario differs and its packets were late, the
machine was too busy for a comparison, and the exit code is 3 instead of 1.
"""

import json
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
# TOLERANCE is the largest permitted relative difference of the medians. LATE is the largest
# permitted 99th percentile of the time by which packets were late, in seconds.
TOLERANCE = 0.10
LATE = 0.002


def played(*command):
    done = subprocess.run([*map(str, command), "--json"], stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(f"check-lab: {' '.join(map(str, command))} failed")
    return json.loads(done.stdout)["runs"]


def completion(runs):
    took = [flow["completion"] for run in runs for flow in run["flows"]]
    if None in took:
        sys.exit(f"check-lab: a transfer did not complete: {runs}")
    return statistics.median(took)


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "target/release")
    worse, busy = [], []
    print("| scenario | equic-lab net run | equic-lab sim run | ratio | 99 % late by at most |\n|---|---|---|---|---|")
    for scenario in sorted((HERE / "scenarios").glob("*.toml")):
        simulated = played(folder / "equic-sim", "run", scenario)
        real = played(folder / "equic-lab", "net", "run", scenario)
        late = max(run["real_time"]["late_p99"] for run in real)
        ours, theirs = completion(real), completion(simulated)
        ratio = ours / theirs
        print(
            f"| {scenario.stem} | {ours:.3f} s | {theirs:.3f} s | {ratio:.3f} | {1000 * late:.2f} ms |",
            flush=True,
        )
        if abs(ratio - 1) > TOLERANCE:
            (busy if late > LATE else worse).append(scenario.stem)
    if worse:
        sys.exit(f"check-lab: more than {TOLERANCE:.0%} apart: {', '.join(worse)}")
    if busy:
        print(f"check-lab: the machine was too busy for a comparison: {', '.join(busy)}", file=sys.stderr)
        sys.exit(3)


if __name__ == "__main__":
    main()
