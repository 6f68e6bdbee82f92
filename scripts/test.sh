#!/bin/bash
# What `make test` runs, in order; each suite prints its own closing lines.
set -euo pipefail
cd "$(dirname "$0")/.."

echo "== lint"
scripts/lint.sh
echo "== Rust: unit, packet tables, differential, end to end"
# One test at a time where network namespaces and XDP programs are shared by the machine; the
# suites that need it say so themselves by a lock, so cargo's default threads are fine.
# All of it even when some of it fails: one run says everything that is wrong.
cargo test --release --workspace --quiet --no-fail-fast
# Not of the workspace's build, which is what is shipped (docs/transport.md).
echo "== Rust: connections without protection, for simulations"
cargo test --release --quiet -p equic-wire --features null-crypto --lib
cargo test --release --quiet -p equic-transport --features null-crypto --lib null
cargo test --release --quiet -p equic-transport --features null-crypto --test null_peer
echo "== C library: example, tests, ASan, valgrind"
make --no-print-directory -C crates/capi test
echo "== packaging: install, Debian package, service"
scripts/packaging.sh
echo "== Debian's kernels"
scripts/kernels.sh
echo "== other people's servers: quinn, s2n-quic, quiche, quic-go, aioquic, ngtcp2"
scripts/examples.sh test
echo "== interoperability: quinn, quic-go, aioquic, as clients and as servers"
scripts/interop.sh quick
echo "== done"
