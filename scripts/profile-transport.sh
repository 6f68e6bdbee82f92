#!/bin/bash
# Runs `make profile-transport`: counts with valgrind the instructions that a packet costs the
# sender and the receiver of a stream, by function. The counts do not depend on other load on the
# machine.
# Usage: scripts/profile-transport.sh [FUNCTIONS [OPTION...]]
#   FUNCTIONS    number of functions to list, the most expensive first (default 25)
#   OPTION       option of the program, such as --max-paths 2 or --paths 2
#   NULL_ONLY=1  leaves out the part with packet protection
set -euo pipefail
cd "$(dirname "$0")/.."
functions=${1:-25}
shift || true
options=("$@")
out=out/profile-transport
mkdir -p "$out"
cargo build --quiet --release -p equic-transport --features null-crypto --example packets
program=target/release/examples/packets

# glibc copies large blocks with one instruction, which valgrind counts once for each byte. With
# these settings, it copies in loops, whose count is closer to the real cost.
export GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=1000000000:glibc.cpu.x86_rep_stosb_threshold=1000000000

# Counts the instructions of one end, and prints them for each packet that the sender sent. The
# number of packets is the same for both ends.
report() {
	local name=$1 turn=$2 protection=$3
	local file=$out/$turn.$name
	valgrind --tool=callgrind --quiet --callgrind-out-file="$file" "--toggle-collect=*packets::$turn*" \
		"$program" $protection "${options[@]}" > "$file.txt"
	local packets
	packets=$(awk '{ print $2 }' "$file.txt")
	# A function has lines in several files if other functions are inlined into it. These lines are
	# added up.
	callgrind_annotate --threshold=100 --auto=no --show-percs=no "$file" 2> "$file.warnings" | awk -v packets="$packets" '
		/PROGRAM TOTALS/ { gsub(/,/, "", $1); print $1 / packets "\tall"; next }
		/^ *[0-9][0-9,]*  / {
			count = $1
			gsub(/,/, "", count)
			sub(/^ *[0-9,]+ */, "")
			sub(/ \[[^]]*\]$/, "")
			sub(/^[^:]*:/, "")
			sum[$0] += count
		}
		END { for (name in sum) if (name !~ "^PROGRAM") print sum[name] / packets "\t" name }' | sort -gr > "$file.functions"
	printf '\n%s, %s: instructions for each of %d packets\n' "$turn" "$name" "$packets"
	head -n "$functions" "$file.functions" | awk -F '\t' '{ printf "%8.1f  %s\n", $1, $2 }'
}
for turn in send_turn receive_turn; do
	report "null" "$turn" --null
	[ -n "${NULL_ONLY:-}" ] || report "tls" "$turn" ""
done
