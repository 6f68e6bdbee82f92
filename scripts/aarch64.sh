#!/bin/sh
# Runs the tests of equic-vm as AArch64 programs under QEMU, in software emulation. They run code
# that equic-vm's compiler for AArch64 made.
# Usage: scripts/aarch64.sh [--debug] [argument of cargo test ...]
# Rust's own linker links the tests against Rust's own musl, so no cross compiler must be installed.
set -eu
cd "$(dirname "$0")/.."

target=aarch64-unknown-linux-musl
profile=--release
if [ "${1:-}" = --debug ]; then
	profile=
	shift
fi

qemu=
for name in qemu-aarch64 qemu-aarch64-static; do
	if command -v "$name" >/dev/null 2>&1; then
		qemu=$name
		break
	fi
done
[ -n "$qemu" ] || { echo "aarch64: qemu-aarch64 is missing: run 'sudo make setup' (Debian's package qemu-user)" >&2; exit 1; }

if [ ! -d "$(rustc --print target-libdir --target "$target")" ]; then
	command -v rustup >/dev/null 2>&1 || {
		echo "aarch64: Rust's standard library for $target is missing, and so is rustup, which can install it" >&2
		exit 1
	}
	rustup target add "$target"
fi

export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER=rust-lld
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_RUNNER=$qemu
# shellcheck disable=SC2086 # a word or none
exec cargo test $profile -p equic-vm --target "$target" --lib --tests "$@" -- --quiet
