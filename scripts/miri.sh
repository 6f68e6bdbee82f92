#!/bin/sh
# Unit tests of the wire format, and of those parts of the transport that need no cryptography (Miri runs no C), under
# Miri, which finds undefined behaviour and reads of what was never written.
set -eu
cd "$(dirname "$0")/.."

if ! cargo +nightly miri --version >/dev/null 2>&1; then
	echo "miri: this needs a nightly toolchain with Miri and the source of the standard library:" >&2
	echo "miri:     rustup toolchain install nightly --component miri,rust-src" >&2
	exit 1
fi
# proptest reads its environment and the time; a few cases of each property, as Miri is some hundred times slower.
export MIRIFLAGS="-Zmiri-disable-isolation ${MIRIFLAGS:-}"
export PROPTEST_CASES="${PROPTEST_CASES:-4}"
cargo +nightly miri test -p equic-wire --lib
# Connections have TLS.
cargo +nightly miri test -p equic-transport --lib -- ranges:: received:: recovery:: stream:: --skip connection::
