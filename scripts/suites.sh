#!/bin/bash
# Runs suites one after the other, each whatever became of those before it, and says at the end how each
# went and how long it took. Fails if one of them failed.
# Usage: scripts/suites.sh NAME COMMAND [NAME COMMAND ...]     COMMAND: for a shell with -euo pipefail
set -uo pipefail

if [ $# = 0 ] || [ $(($# % 2)) != 0 ]; then
	echo "suites: a name and a command for each, not $# arguments" >&2
	exit 2
fi

suites=$(($# / 2))
lines=()
failed=()
# How long something took, in minutes.
minutes() { awk -v seconds="$1" 'BEGIN { printf "%5.1f min", seconds / 60 }'; }
# CPU time of all children that have ended, in seconds: of a busy machine it says more than how long they took.
# It goes by way of a file: a shell in a pipe would say its own.
used=$(mktemp)
trap 'rm -f "$used"' EXIT
cpu_seconds() {
	awk 'NR == 2 { split($1 " " $2, t, /[ms ]+/); print int(t[1] * 60 + t[2] + t[3] * 60 + t[4]) }' "$used"
}

summary() {
	echo
	echo "== summary: ${#lines[@]} of $suites suites in $(minutes "$SECONDS" | sed 's/^ *//')"
	[ ${#lines[@]} = 0 ] || printf '   %s\n' "${lines[@]}"
	[ ${#failed[@]} = 0 ] || echo "== FAILED: ${failed[*]}"
}

# What is interrupted ends, and with it all: not one suite after the other.
interrupted=
trap 'interrupted=yes' INT TERM HUP

while [ $# != 0 ]; do
	name=$1 command=$2
	shift 2
	echo
	echo "== $name"
	begun=$SECONDS
	times >"$used"
	cpu=$(cpu_seconds)
	# A shell of its own: in a function whose status is looked at, -e would mean nothing.
	code=0
	bash -euo pipefail -c "$command" || code=$?
	times >"$used"
	took="$(minutes $((SECONDS - begun))), CPU $(minutes $(($(cpu_seconds) - cpu)))"
	if [ -n "$interrupted" ]; then
		lines+=("stopped $took  $name")
		failed+=("$name")
		break
	elif [ "$code" = 0 ]; then
		lines+=("ok      $took  $name")
	else
		lines+=("FAILED  $took  $name (status $code)")
		failed+=("$name")
		echo "== FAILED: $name" >&2
	fi
done

summary
[ -z "$interrupted" ] || exit 130
[ ${#failed[@]} = 0 ]
