#!/bin/bash
# The server on lsquic (examples/lsquic) behind a gateway, against aioquic's client: builds lsquic and the server by the
# commands that docs/servers.md prints, and tests what the other servers are tested for. No part of `make test`, as no package
# has lsquic. What is built lies in target/lsquic; lsquic itself in $LSQUIC/build.
# Usage: LSQUIC=FOLDER SSL=FOLDER scripts/test-lsquic.sh [CHECK ...]
#   LSQUIC: lsquic's repository with its submodules     SSL: BoringSSL, with its build in build/
set -euo pipefail
cd "$(dirname "$0")/.."

for name in LSQUIC SSL; do
	[ -d "${!name:-}" ] || { echo "test-lsquic: \$$name has to be a folder: see docs/servers.md, lsquic" >&2; exit 2; }
done
LSQUIC=$(realpath "$LSQUIC")
SSL=$(realpath "$SSL")
export LSQUIC SSL CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-2}
built=$(realpath "${CARGO_TARGET_DIR:-target}")/release
out=$PWD/target/lsquic
mkdir -p "$out"

make --no-print-directory --silent -C crates/capi install PREFIX="$out/prefix" lib="$built" >/dev/null
export PKG_CONFIG_PATH=$out/prefix/lib/pkgconfig

# The commands of the page, in a folder where they find the example.
ln -sfn ../../examples "$out/examples"
awk '/^    cmake -S "\$LSQUIC"/ { found = 1 } found && !/^    / { exit } found' docs/servers.md >"$out/commands"
[ -s "$out/commands" ] || { echo "test-lsquic: docs/servers.md has no commands that begin with cmake" >&2; exit 1; }
(cd "$out" && bash -eux commands) >"$out/log" 2>&1 || { tail -n 40 "$out/log" >&2; exit 1; }

if [ ! -e "$out/certificate.pem" ]; then
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj /CN=localhost \
		-keyout "$out/key.pem" -out "$out/certificate.pem.new" 2>/dev/null
	mv "$out/certificate.pem.new" "$out/certificate.pem"
fi
# aioquic, made again when another version is wanted.
if ! cmp -s examples/aioquic/requirements.txt "$out/venv/made-of"; then
	rm -rf "$out/venv"
	python3 -m venv "$out/venv"
	"$out/venv/bin/pip" install --quiet --disable-pip-version-check -r examples/aioquic/requirements.txt
	cp examples/aioquic/requirements.txt "$out/venv/made-of"
fi
export LD_LIBRARY_PATH=$out/prefix/lib
exec "$out/venv/bin/python" scripts/test-lsquic.py "$built/equic" "$out" "$@"
