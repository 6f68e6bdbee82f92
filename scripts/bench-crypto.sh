#!/bin/bash
# What `make bench-crypto` runs: this tree with BoringSSL's AES-GCM for packets, and without it (the feature `boringssl`),
# each with itself, interleaved in one run. A verdict by pairs of rounds: ratios with intervals.
# Usage: scripts/bench-crypto.sh [options of `equic-lab bench run`]. Exit status: 0 without BoringSSL nothing is worse, 1 something is
# worse or could not be measured.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$PWD/out/crypto
mkdir -p "$folder"
for features in png boringssl,png; do
	echo "building with the features $features"
	cargo build --quiet --release --locked --features "$features" -p equic-lab-cli
	# A copy, because a later build replaces the file.
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
