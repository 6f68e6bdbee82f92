#!/bin/bash
# Transfers long enough for key updates: 20 GB of our client from each implementation, of its client from ours, and
# of each from itself, on loopback. With AES-GCM keys are good for 2^23 packets, about 12 GB (RFC 9001 s.6.6). What
# does not take it is a row that says so in the table of its run.
# Usage: scripts/bench-keys.sh [NAME...]   usually all of tier 1 that speak QUIC; BYTES=20G is the size
set -euo pipefail
cd "$(dirname "$0")/.."

peers=("$@")
[ $# -gt 0 ] || peers=(quinn quiche s2n-quic tquic quic-go)
for peer in "${peers[@]}"; do
	echo "== $peer"
	target/release/equic-lab bench run --impl "equic,$peer" --protocol perf --workload download --bytes "${BYTES:-20G}" \
		--path loopback --runs 1 --no-warmup --attempts 1 --max-foreign 100 --max-steal 100
done
