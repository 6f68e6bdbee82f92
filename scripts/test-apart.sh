#!/bin/bash
# Tests that no test depends on other gateways, interfaces or namespaces of the machine, or changes
# them. Runs some tests of every kind twice at the same time. Meanwhile, there are foreign gateways,
# pins, a server, labs and namespaces.
# Usage: scripts/test-apart.sh     after a build, as root
set -euo pipefail
cd "$(dirname "$0")/.."

equic=$PWD/target/release/equic
lab=$PWD/target/release/equic-lab
[ -x "$equic" ] && [ -x "$lab" ] || { echo "apart: $equic or $lab is missing: run 'make build' first" >&2; exit 1; }
# All files, processes and namespaces of this test are removed with this folder.
work=$(mktemp -d)
foreign=equic-apart-$$
started=()
clean() {
	for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
	for pid in "${started[@]}"; do wait "$pid" 2>/dev/null || true; done
	"$equic" gateway detach --pin "$work/bpf/pinned" >/dev/null 2>&1 || true
	umount "$work/bpf" 2>/dev/null || true
	ip netns delete "$foreign" 2>/dev/null || true
	"$lab" net clean >/dev/null 2>&1 || true
	rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM HUP

fail() { echo "FAILED apart: $1" >&2; [ -z "${2:-}" ] || cat "$2" >&2; exit 1; }
# start FILE COMMAND...: runs the command in the background in the foreign namespace. Its output
# goes to the file.
start() {
	local file=$work/$1
	shift
	nsenter --net="/run/netns/$foreign" "$@" >"$file" 2>&1 &
	started+=($!)
}
# await FILE PATTERN: waits until the file has a line that matches.
await() {
	local deadline=$((SECONDS + 60))
	until grep -q -- "$2" "$work/$1"; do
		[ "$SECONDS" -lt "$deadline" ] || fail "timed out waiting for '$2'" "$work/$1"
		sleep 0.1
	done
}

# Creates interfaces with the names that tests use, and gateways with the names that those of the
# tests would have by default. One gateway is pinned and has no process. A server reports to the
# other one.
ip netns add "$foreign"
ip -n "$foreign" link set lo up
for name in eth0 veth0; do
	ip -n "$foreign" link add "$name" type veth peer name "peer-$name"
	ip -n "$foreign" link set "$name" up
done
mkdir "$work/bpf"
mount -t bpf -o mode=0700 bpf "$work/bpf"
start pinned "$equic" gateway run -i veth0 -p 4433 --name pinned --pin "$work/bpf/pinned"
await pinned 'status. shows the gateway.s counters'
kill -KILL "${started[-1]}"
wait "${started[-1]}" 2>/dev/null || true
start gateway "$equic" gateway run -i eth0 -p 443 --max-connections 1
await gateway 'status. shows the gateway.s counters'
start serve "$equic" serve --gateway equic --listen '[::]:443'
await serve 'reports its connections'
# Creates a lab whose process was killed, which a test may remove, and a lab that is alive.
for name in apart-dead apart-alive; do
	start "$name" "$lab" net up "$name" --clients 1
	await "$name" 'is running'
	[ "$name" = apart-alive ] || kill -KILL "${started[-1]}"
done
"$equic" gateway status --all >"$work/all"
grep -q '`equic`' "$work/all" && grep -q '`pinned`' "$work/all" || fail "the foreign gateways are not listed" "$work/all"

program() { nsenter --net="/run/netns/$foreign" "$equic" gateway status --json --gateway equic | grep -m 1 -o '"program_id": *[0-9]*'; }
before=$(program)

# The tests are built here, before two runs need the same folder. Usually, they are built already.
tests=(--test live --test pinned --test socket --test network --test command --test e2e)
cargo test --release --workspace --features boringssl,png "${tests[@]}" --no-run --quiet
only=(
	# Tests that find, control, kill, pin and join gateways.
	control_changes_the_gateway_of_another_process
	gateway_that_is_killed_leaves_nothing
	pinned_gateway_of_another_version_is_refused
	pinned_gateway_of_another_release_hides_no_other
	socket_server_without_privileges_counts_until_it_ends
	# Tests that list labs and remove dead ones.
	cleanup::sweep_removes_labs_of_the_dead_only
	cleanup::sweep_refuses_forged_records
	topology::labs_do_not_see_each_other
	# The command.
	interfaces::discovery_is_limited_to_this_network_namespace
	interfaces::interface_alternative_names_are_accepted
	interfaces::pinned_gateway_starts_again_after_its_interface_moved
	gateway::gateway_runs_is_changed_and_detached
	serve::serve_attaches_its_own_gateway
	usage::failure_names_its_cause
	usage::failure_names_its_cause_if_run_as_root
	watch::watch_waits_for_a_gateway_that_ended
	# Tests with servers and clients.
	wiring::foreign_program_on_the_interface_is_left_alone
	wiring::counts_of_two_servers_add_up_until_one_dies
)
round() { cargo test --release --workspace --features boringssl,png --no-fail-fast "${tests[@]}" -- --quiet --exact "${only[@]}" >"$work/round$1" 2>&1; }
round 1 &
side=$!
status=0
round 2 || status=$?
wait "$side" || status=$?
[ "$status" = 0 ] || fail "tests next to foreign gateways" "$work/round1" "$work/round2"
ran=$(sed -n 's/^test result: ok. \([0-9]*\) passed.*/\1/p' "$work/round1" | awk '{ sum += $1 } END { print sum + 0 }')
[ "$ran" -eq ${#only[@]} ] || fail "$ran tests ran instead of ${#only[@]}" "$work/round1"

# The tests must not have changed the foreign objects.
after=$(program)
[ "$before" = "$after" ] || fail "the foreign gateway was replaced"
[ -e "$work/bpf/pinned/program" ] || fail "the foreign pins are gone"
for pid in "${started[@]:1:2}"; do
	kill -0 "$pid" 2>/dev/null || fail "a foreign process was ended"
done
"$lab" net list | grep -q '^ *apart-alive-' || fail "the foreign lab is gone"
echo "ok apart: $ran tests, twice, next to foreign gateways, pins, servers, labs and namespaces"
