#!/bin/bash
# All that continuous integration runs, on a clone of what is committed, while the machine has other things
# to do: nothing that lies about here helps it, and nothing may hang on how fast the machine is.
# Usage: scripts/test-fresh.sh     RUNS: how many times, each on a clone of its own; 2 unless it is set
set -euo pipefail
cd "$(dirname "$0")/.."

runs=${RUNS:-2}
case $runs in
'' | *[!0-9]* | 0)
	echo "test-fresh: RUNS is a number from 1 up, not '$runs'" >&2
	exit 2
	;;
esac
changed=$(git status --porcelain)
[ -z "$changed" ] || printf 'test-fresh: not committed, so not tested:\n%s\n' "$changed" >&2

folder=$(mktemp -d "${TMPDIR:-/tmp}/equic-fresh.XXXXXX")
logs=$PWD/out/test-fresh
rm -rf "$logs"
mkdir -p "$logs"
load=
clean() {
	[ -z "$load" ] || kill "$load" 2>/dev/null || true
	chmod -R u+w "$folder"
	rm -rf "$folder"
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# It goes with this script, however that ends.
setpriv --pdeathsig TERM stress-ng --cpu 4 --quiet &
load=$!

results=()
failed=
for run in $(seq "$runs"); do
	git clone --quiet --no-hardlinks "$PWD" "$folder/tree"
	commit=$(git -C "$folder/tree" log -1 --format=%h)
	echo "== run $run of $runs: $commit, beside stress-ng --cpu 4"
	begun=$SECONDS
	code=0
	# As from a shell: make tells its children of itself, and how it was called.
	env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u MAKEOVERRIDES -u CARGO_TARGET_DIR \
		"$folder/tree/.ci/run" 2>&1 | tee "$logs/$run.log" || code=$?
	took=$(awk -v seconds=$((SECONDS - begun)) 'BEGIN { printf "%.1f minutes", seconds / 60 }')
	# Without it the run was an easier one.
	kill -0 "$load" 2>/dev/null || { echo "test-fresh: stress-ng did not last" >&2; code=1; }
	if [ "$code" = 0 ]; then
		results+=("run $run: ok, $took")
	else
		results+=("run $run: FAILED, $took ($logs/$run.log)")
		failed=yes
	fi
	chmod -R u+w "$folder/tree"
	rm -rf "$folder/tree"
done

echo
echo "== $commit, from a clone, with empty caches, beside stress-ng --cpu 4"
printf '   %s\n' "${results[@]}"
[ -z "$failed" ]
