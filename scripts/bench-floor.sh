#!/bin/bash
# Runs `make bench-floor`: measures the minimum cost of a packet on loopback. As root, it also
# measures two network namespaces with veth interfaces.
# Usage: scripts/bench-floor.sh [--rounds N] [--markdown]
set -euo pipefail
cd "$(dirname "$0")/.."

floor=$(cargo bench --quiet -p equic-quic --features boringssl --bench floor --no-run --message-format=json |
	sed -n 's/.*"name":"floor".*"executable":"\([^"]*\)".*/\1/p' | tail -1)
"$floor" "$@"
if [ "$(id -u)" != 0 ]; then
	echo "the measurement on veth needs root: skipped" >&2
	exit
fi
from=equic-floor-$$-a to=equic-floor-$$-b
clean() {
	ip netns delete "$from" 2>/dev/null || true
	ip netns delete "$to" 2>/dev/null || true
}
trap clean EXIT
ip netns add "$from"
ip netns add "$to"
ip -n "$from" link add eth0 type veth peer name eth0 netns "$to"
ip -n "$from" address add 10.251.0.1/24 dev eth0
ip -n "$to" address add 10.251.0.2/24 dev eth0
ip -n "$from" link set eth0 up
ip -n "$to" link set eth0 up
echo
"$floor" --veth "$from" "$to" "$@"
