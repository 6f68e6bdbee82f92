#!/bin/bash
# Runs `make bench-kernel`: compares the kernel's ways of sending and receiving datagrams on
# loopback. As root, it also compares them on veth interfaces with and without offloads.
# Usage: scripts/bench-kernel.sh [--rounds N | --quick] [--markdown] [--place PLACE]
set -euo pipefail
cd "$(dirname "$0")/.."

kernel=$(cargo bench --quiet -p equic-quic --bench kernel --no-run --message-format=json |
	sed -n 's/.*"name":"kernel".*"executable":"\([^"]*\)".*/\1/p' | tail -1)
exec "$kernel" "$@"
