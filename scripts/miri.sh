#!/bin/sh
# Runs unit tests under Miri, which finds undefined behaviour and reads of uninitialised memory:
# those of the wire format, and those of the transport that need no cryptography. Miri cannot run C
# code.
set -eu
cd "$(dirname "$0")/.."

if ! cargo +nightly miri --version >/dev/null 2>&1; then
	echo "miri: this needs a nightly toolchain with Miri and the source of the standard library:" >&2
	echo "miri:     rustup toolchain install nightly --component miri,rust-src" >&2
	exit 1
fi
# Isolation is disabled, because proptest reads its environment and the time. Each property runs
# with only a few cases, because Miri is some hundred times slower.
export MIRIFLAGS="-Zmiri-disable-isolation ${MIRIFLAGS:-}"
export PROPTEST_CASES="${PROPTEST_CASES:-4}"
cargo +nightly miri test -p equic-wire --lib
# Tests of connections are skipped, because connections need TLS.
cargo +nightly miri test -p equic-transport --lib -- ranges:: received:: recovery:: stream:: --skip connection::
