#!/usr/bin/env python3
"""Prints the table of scripts/bench-netem.sh: the median, minimum and maximum of the goodput.

Usage: table.py OUTPUT"""

import statistics
import sys


def shown(sample: list) -> str:
    rates = [rate for rate in sample if isinstance(rate, float)]
    if not rates:
        return " / ".join(sorted(set(sample))).replace("does-not", "unsupported")
    text = f"{statistics.median(rates):.2f} ({min(rates):.2f} to {max(rates):.2f})"
    failed = len(sample) - len(rates)
    return f"{text}, {failed} of {len(sample)} failed" if failed else text


def main() -> int:
    kernel, points, names = "?", {}, []
    with open(sys.argv[1], encoding="utf-8", errors="replace") as lines:
        for line in lines:
            words = line.split()
            if words[:2] == ["@@", "begin"]:
                kernel = words[2]
            elif words[:2] == ["@@", "run"] and len(words) >= 6:
                _, _, point, name, size, *how = words
                try:
                    told = int(size) * 8 / float(how[0]) / 1e6
                except ValueError:
                    told = " ".join(how)
                points.setdefault(point, {}).setdefault(name, []).append(told)
                if name not in names:
                    names.append(name)
    rounds = max((len(sample) for row in points.values() for sample in row.values()), default=0)
    print(f"Mbit/s over netem of Linux {kernel}: medians of {rounds} downloads, the smallest and the largest\n")
    print(f"| congestion control | {' | '.join(names)} |")
    print("| --- |" + " ---: |" * len(names))
    for point, row in points.items():
        print(f"| {point} | {' | '.join(shown(row.get(name, ['-'])) for name in names)} |")
    return 0 if points else 1


if __name__ == "__main__":
    sys.exit(main())
