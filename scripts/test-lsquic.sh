#!/bin/bash
# Tests the server with lsquic (examples/lsquic) behind a gateway, with aioquic's client. Builds
# lsquic and the server with the commands in examples/lsquic/README.md. The checks are the same as for the
# other servers. They are not part of `make test`, because no distribution has a package of lsquic.
# The server goes to target/lsquic, and lsquic itself to $LSQUIC/build.
# Usage: LSQUIC=FOLDER SSL=FOLDER scripts/test-lsquic.sh [CHECK ...]
#   LSQUIC  repository of lsquic with its submodules
#   SSL     repository of BoringSSL, with its build in build/
set -euo pipefail
cd "$(dirname "$0")/.."

for name in LSQUIC SSL; do
	[ -d "${!name:-}" ] || { echo "test-lsquic: \$$name must be a folder: see examples/lsquic/README.md" >&2; exit 2; }
done
LSQUIC=$(realpath "$LSQUIC")
SSL=$(realpath "$SSL")
export LSQUIC SSL CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-2}
built=$(realpath "${CARGO_TARGET_DIR:-target}")/release
out=$PWD/target/lsquic
mkdir -p "$out"

make --no-print-directory --silent -C crates/capi install PREFIX="$out/prefix" lib="$built" >/dev/null
export PKG_CONFIG_PATH=$out/prefix/lib/pkgconfig

# The commands of the page run in a folder where they find the example.
ln -sfn ../../examples "$out/examples"
awk '/^    cmake -S "\$LSQUIC"/ { found = 1 } found && !/^    / { exit } found' examples/lsquic/README.md >"$out/commands"
[ -s "$out/commands" ] || { echo "test-lsquic: found no commands that begin with cmake in examples/lsquic/README.md" >&2; exit 1; }
(cd "$out" && bash -eux commands) >"$out/log" 2>&1 || { tail -n 40 "$out/log" >&2; exit 1; }

if [ ! -e "$out/certificate.pem" ]; then
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj /CN=localhost \
		-keyout "$out/key.pem" -out "$out/certificate.pem.new" 2>/dev/null
	mv "$out/certificate.pem.new" "$out/certificate.pem"
fi
# Installs aioquic, again if another version is required.
if ! cmp -s examples/aioquic/requirements.txt "$out/venv/made-of"; then
	rm -rf "$out/venv"
	python3 -m venv "$out/venv"
	"$out/venv/bin/pip" install --quiet --disable-pip-version-check -r examples/aioquic/requirements.txt
	cp examples/aioquic/requirements.txt "$out/venv/made-of"
fi
export LD_LIBRARY_PATH=$out/prefix/lib
exec "$out/venv/bin/python" scripts/test-lsquic.py "$built/equic" "$out" "$@"
