#!/bin/bash
# Runs `make soak`: mutated packets on the real program, and then a lab with churn and floods.
# Usage: scripts/soak.sh [DURATION] [FRAMES]
#   DURATION  time for the lab, such as 10m
#   FRAMES    number of mutated packets, by default 10^7 for each ten minutes, at most 10^8
set -euo pipefail
cd "$(dirname "$0")/.."

duration=${1:-10m}
case "$duration" in
*h) seconds=$((${duration%h} * 3600)) ;;
*m) seconds=$((${duration%m} * 60)) ;;
*s) seconds=${duration%s} ;;
*)
	echo "soak: invalid duration '$duration': write a number and s, m or h, such as 10m" >&2
	exit 2
	;;
esac
frames=${2:-$((seconds * 10000000 / 600))}
[ "$frames" -le 100000000 ] || frames=100000000

echo "== $frames mutated packets on the program and on the model"
EQUIC_CASES=$frames cargo test --release --workspace --features boringssl,png --test data_plane -- \
	--nocapture --exact fuzzed::mutated_inputs_lead_to_the_same_verdicts
echo "== $duration of churn and floods"
target/release/equic-lab soak --duration "$duration"
