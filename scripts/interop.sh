#!/bin/bash
# The QUIC Interop Runner's test cases between implementations (docs/interop.md): builds the endpoints
# in interop/, and runs cells of the matrix. What is built lies in target/servers.
# Usage: scripts/interop.sh [build|quick|full] [EQUIC-LAB INTEROP'S ARGUMENTS]
#   build  only that
#   quick  a handful of cases against quinn, quic-go and aioquic, and several paths against noq and picoquic: what
#          `make test` runs
#   full   everything against everything
set -euo pipefail
cd "$(dirname "$0")/.."

what=${1:-full}
[ $# = 0 ] || shift
out=$PWD/target/servers
mkdir -p "$out"
# Where Go's own packages put it; sudo may not look there.
case :$PATH: in *:/usr/local/go/bin:*) ;; *) PATH=$PATH:/usr/local/go/bin ;; esac

cargo build --release --workspace --features boringssl,png --bin equic-lab

# A workspace of its own, shared with the servers of examples/: whoever built those has built these, since the
# selection of targets is the same.
(cd examples && cargo build --locked --all-targets)
(cd interop/quic-go && go vet ./... && go build -o "$out/interop-quic-go" .)

# Shared with scripts/examples.sh, whose requirements are the same; made again when they change.
cmp -s interop/aioquic/requirements.txt examples/aioquic/requirements.txt || {
	echo "interop: interop/aioquic and examples/aioquic do not want the same packages" >&2
	exit 1
}
venv=$out/venv
wanted=$(sha256sum <interop/aioquic/requirements.txt)
if [ ! -e "$venv/made-of" ] && [ "$(cat "$venv/interop-made-of" 2>/dev/null)" != "$wanted" ]; then
	rm -rf "$venv"
	python3 -m venv "$venv"
	# An environment without its packages must not look built.
	"$venv/bin/pip" install --quiet --disable-pip-version-check -r interop/aioquic/requirements.txt || {
		rm -rf "$venv"
		exit 1
	}
	echo "$wanted" >"$venv/interop-made-of"
fi

scripts/picoquic.sh "$venv/bin/pip"

case $what in
build) ;;
quick)
	unformatted=$(gofmt -l interop/quic-go)
	[ -z "$unformatted" ] || { echo "interop: not formatted (gofmt -w): $unformatted" >&2; exit 1; }
	(cd examples && cargo fmt --all --check && cargo clippy --locked --all-targets -- -D warnings)
	target/release/equic-lab interop --impl equic,quinn,quic-go,aioquic --with equic --strict \
		--only handshake,transfer,retry,resumption,http3,ipv6 --out out/interop-quick "$@"
	target/release/equic-lab interop --impl equic,noq,picoquic --with equic --strict --only multipath \
		--out out/interop-quick/multipath "$@"
	;;
full)
	target/release/equic-lab interop "$@"
	;;
*)
	echo "interop: build, quick or full, not $what" >&2
	exit 2
	;;
esac
