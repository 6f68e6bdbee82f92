#!/bin/bash
# Runs transfers that are long enough for key updates, on loopback. Each transfer is 20 GB: from
# each implementation to our client, from our server to its client, and from each implementation to
# itself. With AES-GCM, keys may protect 2^23 packets, which is about 12 GB (RFC 9001 s.6.6). If an
# implementation does not support the update, its row in the table of the run says so.
# Usage: scripts/bench-keys.sh [NAME...]
#   NAME      default: all implementations of tier 1 that speak QUIC
#   BYTES=20G size of a transfer
set -euo pipefail
cd "$(dirname "$0")/.."

peers=("$@")
[ $# -gt 0 ] || peers=(quinn quiche s2n-quic tquic quic-go)
for peer in "${peers[@]}"; do
	echo "== $peer"
	target/release/equic-lab bench run --impl "equic,$peer" --protocol perf --workload download --bytes "${BYTES:-20G}" \
		--path loopback --runs 1 --no-warmup --attempts 1 --max-foreign 100 --max-steal 100
done
