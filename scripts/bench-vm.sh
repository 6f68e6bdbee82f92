#!/bin/sh
# Measures the cost of a call of bytecode for each engine (docs/vm.md). lab/peers/vm-engines is a
# workspace of its own.
set -eu
cd "$(dirname "$0")/.."

if [ -z "${CLANG:-}" ]; then
	for version in 21 20 19 18 17 16; do
		if command -v "clang-$version" >/dev/null 2>&1; then
			CLANG=clang-$version
			break
		fi
	done
	[ -n "${CLANG:-}" ] || { echo "bench-vm: clang 16 or newer is missing: run 'make setup'" >&2; exit 1; }
	export CLANG
fi
exec cargo run --release --quiet --manifest-path lab/peers/vm-engines/Cargo.toml -- "$@"
