#!/bin/sh
# equic-vm's tests as AArch64 programs, with code that its compiler for AArch64 made, under QEMU in software emulation.
# Usage: scripts/aarch64.sh [--debug] [argument of cargo test ...]
# They are linked by Rust's own linker against Rust's own musl: there is no cross compiler to install.
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
[ -n "$qemu" ] || { echo "aarch64: no qemu-aarch64: run 'sudo make setup' (Debian's package qemu-user)" >&2; exit 1; }

if [ ! -d "$(rustc --print target-libdir --target "$target")" ]; then
	command -v rustup >/dev/null 2>&1 || {
		echo "aarch64: Rust's library for $target is missing, and so is rustup, which installs it" >&2
		exit 1
	}
	rustup target add "$target"
fi

export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER=rust-lld
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_RUNNER=$qemu
# shellcheck disable=SC2086 # a word or none
exec cargo test $profile -p equic-vm --target "$target" --lib --tests "$@" -- --quiet
