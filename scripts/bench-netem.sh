#!/bin/bash
# Measures the goodput of QUIC implementations for each congestion controller over Linux's netem,
# which drops and delays packets. The programs run in a virtual machine with one of Debian's
# kernels. `equic-lab bench run --path relay:...` measures the same with a relay of its own instead
# of netem.
# Usage: scripts/bench-netem.sh [--rounds N] [NAME...]
#   default: 5 rounds of equic, quinn, quiche and s2n-quic
# The virtual machine's processors are emulated, but its clock is that of this machine. So rates are
# low, and other load on this machine disturbs the results. The script needs `make build
# bench-deps`. The output of the virtual machine is kept in target/kernels.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
	echo "bench-netem: $*" >&2
	exit 1
}

rounds=5
if [ "${1:-}" = --rounds ]; then
	rounds=${2:-}
	[[ $rounds =~ ^[1-9][0-9]*$ ]] || fail "--rounds needs a number, not '$rounds'"
	shift 2
fi
[ $# -gt 0 ] || set -- equic quinn quiche s2n-quic
# Time limits in seconds for one download and for all downloads, on a computer with other load.
limit=90 deadline=3600
[ "$(uname -m)" = x86_64 ] || fail "the kernels need x86-64, but this machine is $(uname -m)"

# shellcheck source=scripts/kernels/common.sh
. scripts/kernels/common.sh
mkdir -p "$cache"
folder=$(kernel_of linux-image-6.12-cloud-amd64)
root=$(mktemp -d "$cache/netem.XXXXXX")
trap 'rm -rf "$root" "$cache/netem.initrd"' EXIT
mkdir -p "$root"/{bin,sbin}
install -m 755 lab/peers/netem/init "$root/init"
cp scripts/kernels/guest scripts/kernels/routers "$root/"
install -m 755 "$(command -v busybox)" "$root/bin/busybox"
with_libraries "$(command -v ip)" "$root/sbin/ip"
with_libraries "$(command -v tc)" "$root/sbin/tc"
for module in "${modules[@]}"; do
	cp "$folder/$module.ko" "$root/"
done
# The programs are stripped, because with debugging information they would not fit into the virtual
# machine's memory.
lab/peers/netem/programs.py "$root" "$@" | while read -r name program; do
	with_libraries "$program" "$root/bin/bench-$name"
	strip "$root/bin/bench-$name"
done
# Columns: name, congestion control, bit/s, delay one way in ms, loss each way in percent, queue in
# packets, bytes.
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
# Prints each download when it ends: point, implementation, bytes, seconds or the reason for a
# failure.
tail -n +1 -f --pid="$machine" "$said" | sed -un 's/^@@ run /bench-netem: /p' >&2
wait "$machine" || true
grep -q '^@@ no-module' "$said" && fail "a module cannot be loaded ($said)"
grep '^@@ refused' "$said" >&2 && fail "the network cannot be set up ($said)"
lab/peers/netem/table.py "$said"
tr -d '\r' <"$said" | grep -q '^@@ end$' || fail "the downloads did not end ($said, $console)"
