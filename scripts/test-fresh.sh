#!/bin/bash
# All that continuous integration runs, on a clone of what is committed and with caches that are empty, and then
# again while the machine has other things to do: nothing that lies about here helps it, and nothing may hang on how
# fast the machine is. What is compiled is compiled in the first run, before the load: a compiler is not what is tested.
# Usage: scripts/test-fresh.sh     RUNS: how many times beside the load; 2 unless it is set
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

results=()
failed=
# $1: name of the run
ci() {
	local name=$1 code=0 begun=$SECONDS took
	# As from a shell: make tells its children of itself, and how it was called.
	env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u MAKEOVERRIDES -u CARGO_TARGET_DIR CI_CACHES="$folder/caches" \
		"$folder/tree/.ci/run" 2>&1 | tee "$logs/$name.log" || code=$?
	took=$(awk -v seconds=$((SECONDS - begun)) 'BEGIN { printf "%.1f minutes", seconds / 60 }')
	# Without it the run was an easier one.
	[ -z "$load" ] || kill -0 "$load" 2>/dev/null || { echo "test-fresh: stress-ng did not last" >&2; code=1; }
	if [ "$code" = 0 ]; then
		results+=("$name: ok, $took")
	else
		results+=("$name: FAILED, $took ($logs/$name.log)")
		failed=yes
	fi
}

git clone --quiet --no-hardlinks "$PWD" "$folder/tree"
commit=$(git -C "$folder/tree" log -1 --format=%h)
echo "== $commit, with all compiling"
ci alone
# It goes with this script, however that ends.
setpriv --pdeathsig TERM stress-ng --cpu 4 --quiet &
load=$!
for run in $(seq "$runs"); do
	echo "== $commit, run $run of $runs beside stress-ng --cpu 4"
	ci "loaded-$run"
done

echo
echo "== $commit, from a clone, with caches that were empty; loaded: beside stress-ng --cpu 4"
printf '   %s\n' "${results[@]}"
[ -z "$failed" ]
