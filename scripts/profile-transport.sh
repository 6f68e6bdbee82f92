#!/bin/bash
# What `make profile-transport` runs: the instructions that a packet costs the sender and the receiver of a stream, by
# function, counted by valgrind. They do not depend on what else the machine does. Usage:
# scripts/profile-transport.sh [FUNCTIONS]; FUNCTIONS: how many of the dearest are listed (default 25).
# NULL_ONLY=1 leaves out the part with packet protection.
set -euo pipefail
cd "$(dirname "$0")/.."
functions=${1:-25}
out=out/profile-transport
mkdir -p "$out"
cargo build --quiet --release -p equic-transport --features null-crypto --example packets
program=target/release/examples/packets

# Prints the report of one end: `name`, `turn`, and which word of the program's line says how many packets count.
report() {
	local name=$1 turn=$2 protection=$3
	local file=$out/$turn.$name
	# Both ends are counted by the packets of the sender: what one of them costs the other end.
	valgrind --tool=callgrind --quiet --callgrind-out-file="$file" "--toggle-collect=*packets::$turn*" \
		"$program" $protection > "$out/$turn.$name.txt"
	local packets
	packets=$(awk '{ print $2 }' "$out/$turn.$name.txt")
	callgrind_annotate --threshold=100 "$file" | awk -v packets="$packets" -v most="$functions" -v what="$turn, $name" '
		/PROGRAM TOTALS/ {
			gsub(/,/, "", $1)
			printf "\n%s: %d packets of the sender, %d instructions for each\n", what, packets, $1 / packets
			next
		}
		/^ *[0-9,]+ \(/ && shown < most {
			count = $1
			gsub(/,/, "", count)
			sub(/^ *[0-9,]+ \( *[0-9.]+%\) */, "")
			sub(/^.*\/registry\/src\/[^\/]*\//, "")
			printf "%8.1f  %s\n", count / packets, $0
			shown++
		}'
}
for turn in send_turn receive_turn; do
	report "null" "$turn" --null
	[ -n "${NULL_ONLY:-}" ] || report "tls" "$turn" ""
done
