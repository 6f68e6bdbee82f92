#!/bin/bash
# Builds picoquic, its demo program and picotls, which Debian does not have. Their sources are part
# of the Python package aiopquic. Nothing else of it is used, so the Python version does not matter.
# The script builds in target/servers/picoquic, and again if its inputs change. scripts/examples.sh
# and scripts/interop.sh call it.
# Usage: scripts/picoquic.sh PIP
#   PIP  the program pip, of any Python
set -euo pipefail
cd "$(dirname "$0")/.."

pip=$1
picoquic=$PWD/target/servers/picoquic
wanted=$(cat examples/picoquic/requirements.txt scripts/picoquic.sh | sha256sum)
[ "$(cat "$picoquic/made-of" 2>/dev/null)" != "$wanted" ] || exit 0

rm -rf "$picoquic"
mkdir -p "$picoquic"
"$pip" download --quiet --disable-pip-version-check --no-deps --no-binary aiopquic --ignore-requires-python \
	--dest "$picoquic" -r examples/picoquic/requirements.txt
tar -xzf "$picoquic"/aiopquic-*.tar.gz -C "$picoquic" --strip-components 1
third=$picoquic/third_party
ptls=$picoquic/ptls
cmake -S "$third/picotls" -B "$ptls" -Wno-dev -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS=-w >"$picoquic/log"
cmake --build "$ptls" -j 2 --target picotls-core picotls-openssl picotls-minicrypto >>"$picoquic/log"
cmake -S "$third/picoquic" -B "$picoquic/core" -Wno-dev -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS=-w \
	-Dpicoquic_BUILD_TESTS=OFF -DBUILD_DEMO=ON -DBUILD_HTTP=ON -DBUILD_LOGLIB=ON -DBUILD_PQBENCH=OFF \
	-DBUILD_LOGREADER=OFF -DBUILD_PICO_SIM=OFF -DPTLS_INCLUDE_DIR="$third/picotls/include" \
	-DPTLS_CORE_LIBRARY="$ptls/libpicotls-core.a" -DPTLS_OPENSSL_LIBRARY="$ptls/libpicotls-openssl.a" \
	-DPTLS_MINICRYPTO_LIBRARY="$ptls/libpicotls-minicrypto.a" >>"$picoquic/log"
cmake --build "$picoquic/core" -j 2 --target picoquic-core picoquicdemo >>"$picoquic/log"
echo "$wanted" >"$picoquic/made-of"
