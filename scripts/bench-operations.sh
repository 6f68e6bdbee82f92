#!/bin/bash
# Runs `make bench-operations`: builds the same benchmark with and without the table of operations,
# and runs both in turns. Then measures the cost of one call without a hook, with a hook that does
# nothing, and with bytecode that does nothing.
# Usage: scripts/bench-operations.sh [--rounds N]
set -euo pipefail
cd "$(dirname "$0")/.."

build() {
	cargo bench --quiet -p equic-transport --bench operations --no-run --message-format=json "$@" |
		sed -n 's/.*"name":"operations".*"executable":"\([^"]*\)".*/\1/p' | tail -1
}
with=$(build)
without=$(build --features bench-without-operations)
"$with" --against "$without" "$@"
"$with" --calls
cargo bench --quiet -p equic-plugin-kit --bench calls
