#!/bin/sh
# Runs models of the gateway's shared memory and threads under loom
# (crates/gateway/src/ledger/models). They have a target folder of their own, because they are
# compiled with other flags.
# Usage: scripts/loom.sh [NAME]
#   LOOM_MAX_PREEMPTIONS=3  environment variable of loom
set -eu
cd "$(dirname "$0")/.."

export RUSTFLAGS="--cfg equic_loom ${RUSTFLAGS:-}"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom"
cargo test --release --locked --quiet -p equic-gateway --lib -- "ledger::models::${1:-}"
