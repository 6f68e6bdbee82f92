#!/bin/bash
# Runs `make bench-crypto`: compares this tree with and without BoringSSL's AES-GCM for packets (the
# feature `boringssl`). Each build is measured against itself, interleaved in one run. The verdict
# compares pairs of rounds, and has ratios with intervals.
# Usage: scripts/bench-crypto.sh [options of `equic-lab bench run`]
# Exit status: 0 if nothing is worse without BoringSSL, 1 if something is worse or could not be
# measured.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$PWD/out/crypto
mkdir -p "$folder"
for features in png boringssl,png; do
	echo "building with the features $features"
	cargo build --quiet --release --locked --features "$features" -p equic-lab-cli
	# The program is copied, because a later build replaces the file.
	cp "${CARGO_TARGET_DIR:-target}/release/equic-lab" "$folder/equic-$features"
done

cat >"$folder/implementations.json" <<END
{
  "boringssl": { "url": "https://github.com/equic/equic", "tier": 1, "io": "native",
    "command": ["$folder/equic-boringssl,png", "bench", "endpoint"], "speaks": ["perf", "h3"] },
  "aws-lc": { "url": "https://github.com/equic/equic", "tier": 1, "io": "native",
    "command": ["$folder/equic-png", "bench", "endpoint"], "speaks": ["perf", "h3"] }
}
END
out=$folder/$(date +%Y%m%d-%H%M%S)
"$folder/equic-png" bench run --implementations-file "$folder/implementations.json" --impl boringssl,aws-lc --self \
	--workload download,upload --out "$out" "$@"
"$folder/equic-png" bench compare "$out" "$out" --rename boringssl=aws-lc
