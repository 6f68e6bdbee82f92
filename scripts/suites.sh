#!/bin/bash
# Runs suites of tests. Each suite runs whether or not earlier ones have failed. At the end, prints
# the result and the time of each. Fails if a suite failed.
# Usage: scripts/suites.sh NAME COMMAND [NAME COMMAND ...]
#   COMMAND      text for a shell with -euo pipefail
#   NAME         suites in the main lane run one after the other, and print their output at once
#   first:NAME   runs before all others
#   beside:NAME  runs in a second lane, in parallel with the main lane. While tests of one lane
#   wait, the other lane can compile. The output is printed when both lanes are done.
#   after:NAME   runs when both lanes are done
set -uo pipefail

if [ $# = 0 ] || [ $(($# % 2)) != 0 ]; then
	echo "suites: each suite needs a name and a command, but there are $# arguments" >&2
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

# The lanes are separate processes, so they exchange results through files: `lines` has a line for
# each suite that has ended, `failed` has the names of suites that failed, and `beside` has the
# output of the second lane.
state=$(mktemp -d)
: >"$state/lines"
: >"$state/failed"
trap 'rm -rf "$state"' EXIT

# Converts seconds to text in minutes.
minutes() { awk -v seconds="$1" 'BEGIN { printf "%5.1f min", seconds / 60 }'; }
# Prints a CPU time in seconds, from the file that the shell of a suite wrote about its children
# when it ended. On a busy machine, it says more than the elapsed time. The file is empty if the
# shell was killed.
cpu_seconds() {
	[ ! -s "$1" ] || awk 'NR == 2 { split($1 " " $2, t, /[ms ]+/); print int(t[1] * 60 + t[2] + t[3] * 60 + t[4]) }' "$1"
}

# A signal ends the running suites and all further ones. The second lane has its own process group,
# so signals of the terminal do not reach it.
side=
# The shell's list of jobs is used, because the process ID can belong to another process as soon as
# the lane has ended.
is_beside() { [ -n "$(jobs -pr)" ]; }
interrupt() {
	: >"$state/interrupted"
	! is_beside || kill -TERM -- "-$side" 2>/dev/null
}
trap interrupt INT TERM HUP

# lane FILE [NAME COMMAND]...: runs the suites. If FILE is not empty, their output goes to this
# file.
lane() {
	local into=$1 used=$state/times.$BASHPID name command begun code took
	shift
	while [ $# != 0 ] && [ ! -e "$state/interrupted" ]; do
		name=$1
		# Each command runs in a shell of its own. In a function whose status is tested, -e would have no
		# effect. Also, that shell knows the CPU time of its own children, but this shell also has those
		# of the other lane.
		command="trap 'times >\"\$0\"' EXIT"$'\n'$2
		shift 2
		begun=$SECONDS
		code=0
		: >"$used"
		if [ -n "$into" ]; then
			printf '\n== %s begins in the second lane; its output follows at the end\n' "$name"
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
# A signal ends `wait`, but not the lane that it waits for, so it is repeated.
while is_beside; do wait "$side"; done
[ ! -e "$state/beside" ] || cat "$state/beside"
lane '' "${after[@]}"

echo
echo "== summary: $(wc -l <"$state/lines") of $suites suites in $(minutes "$SECONDS" | sed 's/^ *//')"
sed 's/^/   /' "$state/lines"
[ ! -s "$state/failed" ] || echo "== FAILED: $(paste -s -d ' ' "$state/failed")"
[ ! -e "$state/interrupted" ] || exit 130
[ ! -s "$state/failed" ]
