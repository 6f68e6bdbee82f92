#!/bin/bash
# Goodput of QUIC implementations by congestion control over Linux' own netem, which loses and delays packets, in a virtual
# machine with one of Debian's kernels: what `equic-lab bench run --path relay:...` has its own relay for.
# Usage: scripts/bench-netem.sh [--rounds N] [NAME...]      default: 5 rounds of equic, quinn, quiche and s2n-quic
# The machine's clock is this machine's and its processors are emulated: rates are low, and it does not like to be
# disturbed. Needs `make build bench-deps`. What the machine said is in target/kernels.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
	echo "bench-netem: $*" >&2
	exit 1
}

rounds=5
if [ "${1:-}" = --rounds ]; then
	rounds=${2:-}
	[[ $rounds =~ ^[1-9][0-9]*$ ]] || fail "--rounds takes a number, not '$rounds'"
	shift 2
fi
[ $# -gt 0 ] || set -- equic quinn quiche s2n-quic
# Seconds for a download, and for all of them, on a computer that has other things to do.
limit=90 deadline=3600
[ "$(uname -m)" = x86_64 ] || fail "the kernels are for x86-64, and this machine is $(uname -m)"

# shellcheck source=scripts/kernels/common.sh
. scripts/kernels/common.sh
mkdir -p "$cache"
folder=$(kernel_of linux-image-6.12-cloud-amd64)
root=$(mktemp -d "$cache/netem.XXXXXX")
trap 'rm -rf "$root" "$cache/netem.initrd"' EXIT
mkdir -p "$root"/{bin,sbin}
install -m 755 bench/netem/init "$root/init"
cp scripts/kernels/guest scripts/kernels/routers "$root/"
install -m 755 "$(command -v busybox)" "$root/bin/busybox"
with_libraries "$(command -v ip)" "$root/sbin/ip"
with_libraries "$(command -v tc)" "$root/sbin/tc"
for module in "${modules[@]}"; do
	cp "$folder/$module.ko" "$root/"
done
# Programs with debugging information would not fit into the machine's memory.
bench/netem/programs.py "$root" "$@" | while read -r name program; do
	with_libraries "$program" "$root/bin/bench-$name"
	strip "$root/bin/bench-$name"
done
# Name, congestion control, bit/s, ms one way, percent lost each way, packets of queue, bytes.
cat >"$root/points" <<-POINTS
	newreno newreno 1000000000 20 1 1000 5000000
	cubic cubic 1000000000 20 1 1000 5000000
	bbr bbr 10000000 20 1 35 10000000
POINTS
printf 'ROUNDS=%s\nLIMIT=%s\nNAMES="%s"\n' "$rounds" "$limit" "$*" >"$root/environment"
(cd "$root" && find . | cpio --quiet -o -H newc) >"$cache/netem.initrd"

said=$folder/netem.log console=$folder/netem.console.log
: >"$said"
: >"$console"
echo "bench-netem: $rounds rounds of $(wc -l <"$root/points") downloads with each of: $*" >&2
timeout -s KILL "$deadline" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 2048 \
	-display none -monitor none -nic none -no-reboot \
	-serial "file:$console" -serial "file:$said" \
	-kernel "$folder/vmlinuz" -initrd "$cache/netem.initrd" \
	-append 'console=ttyS0 quiet panic=-1 rdinit=/init' </dev/null &
machine=$!
# Each download as it ends: point, implementation, bytes, seconds or why there are none.
tail -n +1 -f --pid="$machine" "$said" | sed -un 's/^@@ run /bench-netem: /p' >&2
wait "$machine" || true
grep -q '^@@ no-module' "$said" && fail "a module cannot be loaded ($said)"
grep '^@@ refused' "$said" >&2 && fail "the network cannot be set up ($said)"
bench/netem/table.py "$said"
tr -d '\r' <"$said" | grep -q '^@@ end$' || fail "the downloads did not come to their end ($said, $console)"
