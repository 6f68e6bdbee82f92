#!/bin/bash
# What `make bench-kernel` runs: the kernel's ways of moving datagrams side by side, on loopback, and for root on veth
# with and without offloads. Usage: scripts/bench-kernel.sh [--rounds N | --quick] [--markdown] [--place PLACE]
set -euo pipefail
cd "$(dirname "$0")/.."

kernel=$(cargo bench --quiet -p equic-quic --bench kernel --no-run --message-format=json |
	sed -n 's/.*"name":"kernel".*"executable":"\([^"]*\)".*/\1/p' | tail -1)
exec "$kernel" "$@"
