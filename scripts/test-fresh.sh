#!/bin/bash
# Runs the tests of continuous integration on a clone of the last commit with empty caches, and then
# again while the machine is loaded. So files of this tree cannot help the tests, and no test may
# depend on the speed of the machine. The first run, before the load, compiles everything, because
# the compiler is not tested.
# Usage: scripts/test-fresh.sh
#   RUNS=2  number of runs under load (default 2)
set -euo pipefail
cd "$(dirname "$0")/.."

runs=${RUNS:-2}
case $runs in
'' | *[!0-9]* | 0)
	echo "test-fresh: RUNS must be a number of at least 1, not '$runs'" >&2
	exit 2
	;;
esac
changed=$(git status --porcelain)
[ -z "$changed" ] || printf 'test-fresh: these changes are not committed, so they are not tested:\n%s\n' "$changed" >&2

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
# ci NAME: runs the tests once. NAME is the name of the run.
ci() {
	local name=$1 code=0 begun=$SECONDS took
	# The run starts as from a shell. make would pass variables about itself and its options to its
	# children.
	env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL -u MAKEOVERRIDES -u CARGO_TARGET_DIR CI_CACHES="$folder/caches" \
		"$folder/tree/.ci/run" 2>&1 | tee "$logs/$name.log" || code=$?
	took=$(awk -v seconds=$((SECONDS - begun)) 'BEGIN { printf "%.1f minutes", seconds / 60 }')
	# If the load has ended early, the run was easier than intended and counts as failed.
	[ -z "$load" ] || kill -0 "$load" 2>/dev/null || { echo "test-fresh: stress-ng has ended too early" >&2; code=1; }
	if [ "$code" = 0 ]; then
		results+=("$name: ok, $took")
	else
		results+=("$name: FAILED, $took ($logs/$name.log)")
		failed=yes
	fi
}

git clone --quiet --no-hardlinks "$PWD" "$folder/tree"
commit=$(git -C "$folder/tree" log -1 --format=%h)
echo "== $commit, first run, which compiles everything"
ci alone
# The load ends with this script, however the script ends.
setpriv --pdeathsig TERM stress-ng --cpu 4 --quiet &
load=$!
for run in $(seq "$runs"); do
	echo "== $commit, run $run of $runs under load (stress-ng --cpu 4)"
	ci "loaded-$run"
done

echo
echo "== $commit, from a clone with empty caches; runs named loaded: under stress-ng --cpu 4"
printf '   %s\n' "${results[@]}"
[ -z "$failed" ]
