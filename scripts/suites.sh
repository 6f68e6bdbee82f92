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
	# A shell of its own: in a function whose status is looked at, -e would mean nothing.
	code=0
	bash -euo pipefail -c "$command" || code=$?
	took=$((SECONDS - begun))
	if [ -n "$interrupted" ]; then
		lines+=("stopped $(minutes "$took")  $name")
		failed+=("$name")
		break
	elif [ "$code" = 0 ]; then
		lines+=("ok      $(minutes "$took")  $name")
	else
		lines+=("FAILED  $(minutes "$took")  $name (status $code)")
		failed+=("$name")
		echo "== FAILED: $name" >&2
	fi
done

summary
[ -z "$interrupted" ] || exit 130
[ ${#failed[@]} = 0 ]
