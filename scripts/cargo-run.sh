#!/bin/bash
# Runs the examples of the crates once and checks their output. The examples of equic-quic run with
# `cargo run --example` in a debug build, as the documentation tells users. All others run as the
# tests have built them.
# Usage: scripts/cargo-run.sh
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
child=
clean() {
	[ -z "$child" ] || kill "$child" 2>/dev/null || true
	rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM

declare -A known=()
fail() {
	echo "FAILED cargo-run.$1: $2" >&2
	exit 1
}
# run CRATE/EXAMPLE PATTERN COMMAND...: runs the command, and checks that a line of its output
# matches the pattern.
run() {
	local name=$1 wanted=$2 code=0
	shift 2
	known[$name]=run
	timeout 600 "$@" >"$work/out" 2>"$work/err" || code=$?
	[ "$code" = 0 ] || { cat "$work/out" "$work/err"; fail "$name" "exit status $code"; }
	[ -z "$wanted" ] || grep -qE -- "$wanted" "$work/out" ||
		{ cat "$work/out" "$work/err"; fail "$name" "no line of the output matches $wanted"; }
	! grep -q 'panicked at' "$work/err" || { cat "$work/err"; fail "$name" "it panics"; }
	echo "ok cargo-run.$name"
}
# Marks an example that another suite runs.
elsewhere() { known[$1]=elsewhere; }

# The first command in docs/quic.md, and the other examples of that crate.
cargo build --quiet --locked -p equic-quic --examples
for one in 'echo:^Is anybody there' 'datagrams:^\[1, 4, 9, ' 'migrate:^the server saw the client at' 'hooked:[0-9]'; do
	name=${one%%:*}
	run "quic/$name" "${one#*:}" cargo run --quiet --locked -p equic-quic --example "$name"
done

# The features are those with which the rust suite has built the examples: the features of the whole
# workspace. The examples of simulations have the features of the null-crypto suite. So nothing is
# compiled again.
cargo build --quiet --release --locked --workspace --features boringssl,png --examples
scripts/null-crypto.sh build --quiet --example bulk --example tcp_bulk --example packets
built=${CARGO_TARGET_DIR:-target}/release/examples

run http3/axum '^200 OK Hello, world!' "$built/axum"
run transport/in_memory . "$built/in_memory"
run transport/hook '[0-9]' "$built/hook"
run transport/handshakes . "$built/handshakes" --count 2
run transport/handshakes . "$built/handshakes" --count 2 --resumed
run transport/packets . "$built/packets" --bytes 200000
run transport/packets . "$built/packets" --bytes 200000 --null --max-paths 2 --paths 2
run sim/bulk '^1 MB' "$built/bulk" 1 1
run sim/events . "$built/events" 1
run sim/tcp_bulk '^1 MB' "$built/tcp_bulk" 1 1
run scenario/keys '\|' "$built/keys"
mkdir "$work/vectors"
printf -- '-- asm\nmov %%r0, 7\nexit\n-- result\n0x7\n' >"$work/vectors/seven.data"
run vm/conformance '1 passed, 0 refused, 0 failed' "$built/conformance" "$work/vectors"
run vm-capi/equic_vm_header 'equic_vm_run' "$built/equic_vm_header"
mkdir "$work/gallery" "$work/fixture" "$work/headers"
# writes CRATE/EXAMPLE FILE COMMAND...: runs the command, and checks that it writes the file.
writes() {
	local name=$1 file=$2
	shift 2
	run "$name" '' "$@"
	[ -s "$file" ] || fail "$name" "it does not write $file"
}
writes report/gallery "$work/gallery/ecdf.svg" "$built/gallery" "$work/gallery"
writes bench/fixture "$work/fixture/report.html" "$built/fixture" "$work/fixture"
writes plugin/plugin_headers "$work/headers/equic_plugin.h" "$built/plugin_headers" "$work/headers"

# The example prints a line for each datagram.
"$built/listen" 127.0.0.1:0 >"$work/listen" 2>&1 &
child=$!
until grep -q '^listening on' "$work/listen"; do
	kill -0 "$child" 2>/dev/null || { cat "$work/listen"; fail wire/listen "it does not listen"; }
	sleep 0.05
done
port=$(sed -n 's/^listening on .*://p' "$work/listen")
until [ "$(wc -l <"$work/listen")" -gt 1 ]; do
	kill -0 "$child" 2>/dev/null || { cat "$work/listen"; fail wire/listen "it has ended"; }
	printf '\x40\x01\x02\x03' >"/dev/udp/127.0.0.1/$port"
	sleep 0.05
done
kill "$child"
child=
known[wire/listen]=run
echo "ok cargo-run.wire/listen"

# Other suites run these: scripts/examples.sh runs the first with an interface.
# crates/quic/tests/retry_offload.rs and crates/token/tests/quinn.rs run the next two with a
# gateway's keys. crates/capi/tests/header.rs includes the last one, which writes into the source
# tree.
elsewhere gateway/quinn
elsewhere quic/retry_offload
elsewhere token/quinn_tokens
elsewhere capi/equic_header

for file in crates/*/examples/*.rs lab/*/examples/*.rs; do
	name=${file#*/}
	name=${name/examples\//}
	name=${name%.rs}
	[ -n "${known[$name]:-}" ] || fail "$name" "this script does not run it: add it above"
done
