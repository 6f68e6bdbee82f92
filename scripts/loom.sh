#!/bin/sh
# Models of the gateway's shared memory and threads, played by loom (crates/gateway/src/ledger/models). In a target folder
# of their own, as they are compiled in another way. Usage: scripts/loom.sh [NAME]    LOOM_MAX_PREEMPTIONS=3
set -eu
cd "$(dirname "$0")/.."

export RUSTFLAGS="--cfg equic_loom ${RUSTFLAGS:-}"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom"
cargo test --release --locked --quiet -p equic-gateway --lib -- "ledger::models::${1:-}"
