#!/usr/bin/env python3
"""What a virtual machine needs of the implementations: `name program` for each on standard output, and in its root
their commands and certificates. Usage: programs.py ROOT NAME..."""

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
            sys.exit(f"bench-netem: no implementation {name}: there are {' '.join(listed)}")
        program, *arguments = peers.filled(listed[name]["command"])
        if not os.access(program, os.X_OK):
            sys.exit(f"bench-netem: {name} is not built: there is no {program}")
        (root / "programs" / name).write_text(" ".join([f"/bin/bench-{name}", *arguments]) + "\n")
        print(name, program)
    peers.certificates(root / "certificates")
    return 0


if __name__ == "__main__":
    sys.exit(main())
