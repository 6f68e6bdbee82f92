#!/bin/bash
# Types the commands of docs/servers.md for Python and Go in an empty folder, and fetches a page from
# the server that they start. scripts/examples.sh runs this script after it has installed libequic.
# Usage: scripts/test-servers-page.sh PREFIX EQUIC
#   PREFIX  folder in which libequic is installed
#   EQUIC   path of the command
set -euo pipefail
cd "$(dirname "$0")/.."

export EQUIC=$PWD PKG_CONFIG_PATH=$1/lib/pkgconfig EQUIC_LIBRARY=$1/lib/libequic.so
export CGO_LDFLAGS="-Wl,-rpath,$1/lib"
command=$2
namespace=equic-servers-page-$$
work=$(mktemp -d)
running=()
clean() {
	[ ${#running[@]} = 0 ] || kill "${running[@]}" 2>/dev/null || true
	wait
	ip netns delete "$namespace" 2>/dev/null || true
	rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM

# Prints the commands of a block of the page. The block begins with $1.
block() {
	awk -v first="    $1" 'index($0, first) == 1 { found = 1 } found && !/^    / { exit } found' docs/servers.md |
		sed -e 's/^    //' -e 's/  *# .*//' -e 's/^sudo //'
}
# Runs a command of the page, and prints its output if it fails.
types() {
	echo "servers-page: $1"
	(cd "$work" && bash -euc "$1") >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; return 1; }
}
# Starts a command of the page in the network namespace, and waits for a line that begins with $2.
starts() {
	echo "servers-page: $1"
	local log=$work/log.${#running[@]}
	: >"$log"
	(cd "$work" && PATH=$work/bin:$PATH && exec ip netns exec "$namespace" bash -euc "exec $1") >"$log" 2>&1 &
	running+=($!)
	grep -q -m 1 "^$2" < <(timeout 60 tail --quiet --lines=+1 --follow --pid=$! "$log") || { tail -n 20 "$log" >&2; return 1; }
}

mkdir "$work/bin"
ln -s "$(realpath "$command")" "$work/bin/equic"
ip netns add "$namespace"
ip -n "$namespace" link add eth0 type veth peer name peer
for interface in lo eth0 peer; do ip -n "$namespace" link set "$interface" up; done

mapfile -t python < <(block 'python3 -m venv')
[ ${#python[@]} = 4 ] || { echo "servers-page: the block for Python has ${#python[@]} commands instead of 4" >&2; exit 1; }
types "${python[0]}"
types "${python[1]}"
starts "${python[2]}" 'gateway `'
starts "${python[3]}" 'listening on '
page=$(ip netns exec "$namespace" "$command" get --insecure https://127.0.0.1/)
[ "$page" = "hello from aioquic" ] || { echo "servers-page: the server sent '$page'" >&2; exit 1; }

mapfile -t go < <(block 'go mod edit')
[ ${#go[@]} = 3 ] || { echo "servers-page: the block for Go has ${#go[@]} commands instead of 3" >&2; exit 1; }
(cd "$work" && go mod init example.org/server) 2>/dev/null
cat >"$work/main.go" <<-'END'
	package main

	import (
		"fmt"

		equic "github.com/equic/equic/bindings/go"
	)

	func main() { fmt.Println(equic.Version()) }
END
for line in "${go[@]}"; do types "$line"; done
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
[ "$("$work/server")" = "$version" ] || { echo "servers-page: the Go program does not run" >&2; exit 1; }
