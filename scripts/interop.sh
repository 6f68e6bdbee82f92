#!/bin/bash
# Runs the test cases of the QUIC Interop Runner between implementations (docs/interop.md): builds
# the endpoints in lab/peers/, and runs cells of the matrix. The programs go to target/servers.
# Usage: scripts/interop.sh [build|quick|full] [arguments of equic-lab interop]
#   build  only builds the endpoints
#   quick  a few test cases against quinn, quic-go and aioquic, and multipath against noq and
#   picoquic. `make test` runs this.
#   full   all test cases between all implementations (default)
set -euo pipefail
cd "$(dirname "$0")/.."

what=${1:-full}
[ $# = 0 ] || shift
out=$PWD/target/servers
mkdir -p "$out"
# Go's own packages install into this folder, which may be missing from the PATH of sudo.
case :$PATH: in *:/usr/local/go/bin:*) ;; *) PATH=$PATH:/usr/local/go/bin ;; esac

cargo build --release --workspace --features boringssl,png --bin equic-lab

# The endpoints share a workspace with the servers of examples/. The selection of targets is the
# same as in scripts/examples.sh, so each script builds for both.
(cd examples && cargo build --locked --all-targets)
(cd lab/peers/quic-go/endpoint && go vet ./... && go build -o "$out/interop-quic-go" .)

# The virtual environment is shared with scripts/examples.sh, which has the same requirements. It is
# recreated if they change.
cmp -s lab/peers/aioquic/endpoint/requirements.txt examples/aioquic/requirements.txt || {
	echo "interop: the requirements of lab/peers/aioquic/endpoint and examples/aioquic differ: they share an environment" >&2
	exit 1
}
venv=$out/venv
wanted=$(sha256sum <lab/peers/aioquic/endpoint/requirements.txt)
if [ ! -e "$venv/made-of" ] && [ "$(cat "$venv/interop-made-of" 2>/dev/null)" != "$wanted" ]; then
	rm -rf "$venv"
	python3 -m venv "$venv"
	# The environment is removed if a package cannot be installed. Otherwise, it would look complete.
	"$venv/bin/pip" install --quiet --disable-pip-version-check -r lab/peers/aioquic/endpoint/requirements.txt || {
		rm -rf "$venv"
		exit 1
	}
	echo "$wanted" >"$venv/interop-made-of"
fi

scripts/picoquic.sh "$venv/bin/pip"

case $what in
build) ;;
quick)
	unformatted=$(gofmt -l lab/peers/quic-go/endpoint)
	[ -z "$unformatted" ] || { echo "interop: format these files with gofmt -w: $unformatted" >&2; exit 1; }
	target/release/equic-lab interop --impl equic,quinn,quic-go,aioquic --with equic --strict \
		--only handshake,transfer,retry,resumption,http3,ipv6 --out out/interop-quick "$@"
	target/release/equic-lab interop --impl equic,noq,picoquic --with equic --strict --only multipath \
		--out out/interop-quick/multipath "$@"
	;;
full)
	target/release/equic-lab interop "$@"
	;;
*)
	echo "interop: unknown command '$what': use build, quick or full" >&2
	exit 2
	;;
esac
