#!/bin/sh
# Checks the citations of RFCs, and prints how many sentences have code and a test. With a folder of
# the RFCs' sources as argument, writes duvet's report into out/compliance, which shows the text of
# each sentence with its citations. The first such run compiles duvet for about two minutes.
set -eu
cd "$(dirname "$0")/.."

DUVET=0.4.3

scripts/compliance.py --table
scripts/compliance.py --check
if [ -z "${1:-}" ]; then
	echo "For duvet's report, run 'make compliance SPECS=FOLDER' (docs/compliance/README.md)"
	exit 0
fi
root=$PWD/target/duvet
if ! grep -qs "^\"duvet $DUVET " "$root/.crates.toml"; then
	RUSTUP_TOOLCHAIN=$(scripts/toolchain.sh) cargo install --quiet --locked --root "$root" --version "$DUVET" duvet
fi
scripts/compliance.py --duvet "$1"
cd out/compliance
"$root/bin/duvet" report
echo "out/compliance/report.html"
