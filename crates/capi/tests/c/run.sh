#!/bin/sh
# Runs test programs and counts their result lines. Usage: run.sh OUT "LABEL|COMMAND" ...
# A command has failed if its output contains "FAILED", or if its exit status is not 0.
set -u
results=$1
shift
passed=0
failed=0
skipped=0
: >"$results"
for entry in "$@"; do
	label=${entry%%|*}
	command=${entry#*|}
	log=$results.$label
	# shellcheck disable=SC2086 # a command and its arguments
	$command >"$log" 2>&1
	status=$?
	ok=$(grep -c '^ok ' "$log")
	bad=$(grep -c '^FAILED ' "$log")
	skip=$(grep -c '^SKIPPED ' "$log")
	# The program crashed, found a leak, or ran no test.
	if [ "$bad" = 0 ] && { [ $status != 0 ] || [ $((ok + skip)) = 0 ]; }; then
		bad=1
		echo "FAILED $label: ended with status $status" >>"$log"
	fi
	if [ "$bad" != 0 ]; then
		echo "-- $label --"
		cat "$log"
	fi
	[ "$skip" = 0 ] || grep '^SKIPPED ' "$log" | sed "s/^/$label: /"
	echo "$label: $ok passed, $bad failed, $skip skipped"
	cat "$log" >>"$results"
	passed=$((passed + ok))
	failed=$((failed + bad))
	skipped=$((skipped + skip))
done
[ $skipped = 0 ] || echo "WARNING: $skipped tests were SKIPPED for want of root or a tool: nothing is known about them"
echo "$passed passed, $failed failed"
[ $failed = 0 ]
