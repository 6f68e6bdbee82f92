#!/bin/bash
# What `make bench-operations` runs: the same benchmark built with the table of operations and without
# it, in turns; then what one call costs, with no hook, with one that does nothing, and with bytecode that does nothing. Usage: scripts/bench-operations.sh [--rounds N]
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
