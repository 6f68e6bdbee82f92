#!/bin/bash
# Runs suites, each whatever became of those before it, and says at the end how each went and how long it took. Fails
# if one of them failed.
# Usage: scripts/suites.sh NAME COMMAND [NAME COMMAND ...]     COMMAND: for a shell with -euo pipefail
#   NAME          one after the other, what it prints as it comes
#   first:NAME    before all others
#   beside:NAME   one after the other, but beside those without a mark: what one lane's tests wait for leaves the CPU
#                 to the other's compilers. What it prints comes when both lanes are done.
#   after:NAME    when both lanes are done
set -uo pipefail

if [ $# = 0 ] || [ $(($# % 2)) != 0 ]; then
	echo "suites: a name and a command for each, not $# arguments" >&2
	exit 2
fi

suites=$(($# / 2))
first=() plain=() beside=() after=()
while [ $# != 0 ]; do
	case $1 in
	first:*) first+=("${1#*:}" "$2") ;;
	beside:*) beside+=("${1#*:}" "$2") ;;
	after:*) after+=("${1#*:}" "$2") ;;
	*) plain+=("$1" "$2") ;;
	esac
	shift 2
done

# By way of files, since a lane is a process of its own: a line for each suite that ended, the names of those that
# failed, what the lane beside printed.
state=$(mktemp -d)
: >"$state/lines"
: >"$state/failed"
trap 'rm -rf "$state"' EXIT

# How long something took, in minutes.
minutes() { awk -v seconds="$1" 'BEGIN { printf "%5.1f min", seconds / 60 }'; }
# CPU time in what a suite's shell has written of its children as it ended, in seconds: of a busy machine it says more than
# how long they took. Nothing was written where the shell was killed.
cpu_seconds() {
	[ ! -s "$1" ] || awk 'NR == 2 { split($1 " " $2, t, /[ms ]+/); print int(t[1] * 60 + t[2] + t[3] * 60 + t[4]) }' "$1"
}

# What is interrupted ends, and with it all: not one suite after the other. The lane beside has a process group of its
# own, which no key of the terminal reaches.
side=
# By the shell's own list: the number may be another process's as soon as it has ended.
is_beside() { [ -n "$(jobs -pr)" ]; }
interrupt() {
	: >"$state/interrupted"
	! is_beside || kill -TERM -- "-$side" 2>/dev/null
}
trap interrupt INT TERM HUP

# $1: a file that takes what is printed, or nothing. Then a name and a command for each suite.
lane() {
	local into=$1 used=$state/times.$BASHPID name command begun code took
	shift
	while [ $# != 0 ] && [ ! -e "$state/interrupted" ]; do
		name=$1
		# A shell of its own: in a function whose status is looked at, -e would mean nothing. And it knows what its
		# children used, while this one's are also those of the other lane.
		command="trap 'times >\"\$0\"' EXIT"$'\n'$2
		shift 2
		begun=$SECONDS
		code=0
		: >"$used"
		if [ -n "$into" ]; then
			printf '\n== %s begins, beside the others; what it prints comes after them\n' "$name"
			printf '\n== %s\n' "$name" >>"$into"
			bash -euo pipefail -c "$command" "$used" >>"$into" 2>&1 || code=$?
		else
			printf '\n== %s\n' "$name"
			bash -euo pipefail -c "$command" "$used" || code=$?
		fi
		took="$(minutes $((SECONDS - begun))), CPU $(minutes "$(cpu_seconds "$used")")"
		if [ -e "$state/interrupted" ]; then
			echo "stopped $took  $name" >>"$state/lines"
			echo "$name" >>"$state/failed"
		elif [ "$code" = 0 ]; then
			echo "ok      $took  $name" >>"$state/lines"
			[ -z "$into" ] || printf '\n== %s is done\n' "$name"
		else
			echo "FAILED  $took  $name (status $code)" >>"$state/lines"
			echo "$name" >>"$state/failed"
			echo "== FAILED: $name" >&2
		fi
	done
}

lane '' "${first[@]}"
if [ ${#beside[@]} != 0 ]; then
	set -m
	lane "$state/beside" "${beside[@]}" &
	side=$!
	set +m
fi
lane '' "${plain[@]}"
# A signal ends waiting, and not what is waited for.
while is_beside; do wait "$side"; done
[ ! -e "$state/beside" ] || cat "$state/beside"
lane '' "${after[@]}"

echo
echo "== summary: $(wc -l <"$state/lines") of $suites suites in $(minutes "$SECONDS" | sed 's/^ *//')"
sed 's/^/   /' "$state/lines"
[ ! -s "$state/failed" ] || echo "== FAILED: $(paste -s -d ' ' "$state/failed")"
[ ! -e "$state/interrupted" ] || exit 130
[ ! -s "$state/failed" ]
