#!/bin/bash
# Linux' own TCP beside the simulator's: bulk transfers over netem and tbf in a virtual machine with one of Debian's
# kernels, the same in virtual time by `equic sim run`, and a table of both with their ratio.
# Usage: sim/oracle/linux.sh [--quick] [META-PACKAGE]        default: linux-image-6.12-cloud-amd64
# The machine's clock counts its instructions (QEMU's icount) and jumps over idle time: what it measures does not depend
# on how busy this machine is, nor on how fast QEMU emulates. Needs `make setup` and equic-sim, which `make build`
# builds. What the machine said is in target/kernels.
set -euo pipefail
cd "$(dirname "$0")/../.."

runs=10
if [ "${1:-}" = --quick ]; then
	runs=1
	shift
fi
kernel=${1:-linux-image-6.12-cloud-amd64}
# Seconds, on a machine that has other things to do: only what hangs reaches them.
deadline=$((600 + 600 * runs))

fail() {
	echo "oracle-linux: $*" >&2
	exit 1
}

[ "$(uname -m)" = x86_64 ] || fail "the kernels are for x86-64, and this machine is $(uname -m)"
sim=${EQUIC_SIM:-target/release/equic-sim}
[ -x "$sim" ] || fail "there is no $sim: run 'make build'"

# shellcheck source=scripts/kernels/common.sh
. scripts/kernels/common.sh
mkdir -p "$cache"
folder=$(kernel_of "$kernel")
root=$(mktemp -d "$cache/oracle.XXXXXX")
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{bin,sbin}

# Each: name, congestion control, bit/s, ms one way, percent lost on the way there, packets of queue, bytes, runs.
{
	for controller in cubic bbr; do
		for loss in 0 0.1 1; do
			echo "$controller-$loss $controller 10000000 50 $loss 1000 10000000 $runs"
		done
		# A queue of half and of twice what is under way.
		for queue in 42 166; do
			echo "$controller-queue-$queue $controller 10000000 50 0 $queue 10000000 $runs"
		done
		echo "$controller-fast $controller 50000000 20 0 100 25000000 $runs"
	done
} >"$root/points"

install -m 755 sim/oracle/linux/init "$root/init"
install -m 755 "$(command -v busybox)" "$root/bin/busybox"
with_libraries "$(command -v ip)" "$root/sbin/ip"
with_libraries "$(command -v tc)" "$root/sbin/tc"
cc -O2 -Wall -Werror -static -o "$root/bin/bulk" sim/oracle/linux/bulk.c || fail "cannot compile the transfer"
for module in "${modules[@]}"; do
	cp "$folder/$module.ko" "$root/"
done
(cd "$root" && find . | cpio --quiet -o -H newc) >"$root/../oracle.initrd"
said=$folder/oracle.log console=$folder/oracle.console.log
: >"$said"
: >"$console"
echo "oracle-linux: $(wc -l <"$root/points") points, $runs runs of each" >&2
timeout -s KILL "$deadline" qemu-system-x86_64 -accel tcg,thread=single -icount shift=1,sleep=off -cpu max -smp 1 -m 512 \
	-display none -monitor none -nic none -no-reboot \
	-serial "file:$console" -serial "file:$said" \
	-kernel "$folder/vmlinuz" -initrd "$cache/oracle.initrd" \
	-append 'console=ttyS0 quiet panic=-1 rdinit=/init' </dev/null ||
	fail "the machine did not end by itself within $deadline s ($said, $console)"
rm -f "$cache/oracle.initrd"
grep -q '^@@ no-module' "$said" && fail "a module cannot be loaded ($said)"
grep '^@@ refused' "$said" >&2 && fail "the network cannot be set up ($said)"
tr -d '\r' <"$said" | grep -q '^@@ end$' || fail "the transfers did not come to their end ($said)"
sim/oracle/linux.py "$root/points" "$said" "$sim"
