#!/usr/bin/env python3
"""Prepares implementations for a virtual machine: prints `name program` for each, and writes their
commands and certificates below the root of the machine.

Usage: programs.py ROOT NAME..."""

import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import peers


def main() -> int:
    root = pathlib.Path(sys.argv[1])
    listed = peers.listed()
    for place in ("certificates", "programs"):
        (root / place).mkdir()
    for name in sys.argv[2:]:
        if name not in listed:
            sys.exit(f"bench-netem: unknown implementation {name}: known are {' '.join(listed)}")
        program, *arguments = peers.filled(listed[name]["command"])
        if not os.access(program, os.X_OK):
            sys.exit(f"bench-netem: {name} is not built: {program} does not exist")
        (root / "programs" / name).write_text(" ".join([f"/bin/bench-{name}", *arguments]) + "\n")
        print(name, program)
    peers.certificates(root / "certificates")
    return 0


if __name__ == "__main__":
    sys.exit(main())
