#!/bin/bash
# Builds the implementations that `equic bench transport` measures (docs/bench-transport.md): ours, and
# the adapters in bench/ with the versions of its lock files. What is built lies in target/servers.
# Usage: scripts/bench.sh build
set -euo pipefail
cd "$(dirname "$0")/.."

[ "${1:-build}" = build ] || {
	echo "bench: build, not $1" >&2
	exit 2
}
out=$PWD/target/servers
mkdir -p "$out"
# Where Go's own packages put it; sudo may not look there.
PATH=$PATH:/usr/local/go/bin

cargo build --quiet --release -p equic-cli

# Its own workspace, and its target folder by bench/.cargo/config.toml.
(cd bench && cargo build --quiet --release --locked)
(cd bench/quic-go && go build -mod=readonly -o "$out/bench-quic-go" .)
