#!/usr/bin/env python3
"""Writes the settings of a service into docs/equic.example.toml, which the reference page includes.

Usage: scripts/example_settings.py PATH_OF_EQUIC
"""

import pathlib
import subprocess
import sys

EXAMPLE = pathlib.Path(__file__).parent.parent / "docs/equic.example.toml"


def main() -> None:
    command = [sys.argv[1], "gateway", "settings", "--toml"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    header, _, settings = printed.partition("\n")
    lines = EXAMPLE.read_text().splitlines(keepends=True)
    table = lines.index(f"{header}\n")
    listen = next(i for i in range(table, len(lines)) if lines[i].startswith("listen = "))
    # The settings end before the comment of the next key, `group`.
    end = next(i for i in range(listen, len(lines)) if lines[i].startswith("group = "))
    while lines[end - 1].startswith("#"):
        end -= 1
    EXAMPLE.write_text("".join(lines[: listen + 1]) + settings + "".join(lines[end:]))


main()
