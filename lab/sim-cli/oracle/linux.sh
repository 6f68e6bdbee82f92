#!/bin/bash
# Compares the TCP of Linux with that of the simulator. It makes bulk transfers over netem and tbf
# in a virtual machine with one of Debian's kernels, and lets `equic-lab sim run` simulate the same
# transfers. It prints a table of both completion times, with their ratio.
#
# Usage: lab/sim-cli/oracle/linux.sh [--quick] [META-PACKAGE]        default: linux-image-6.12-cloud-amd64
#        CONTROLLERS=bbr lab/sim-cli/oracle/linux.sh                 only one congestion control
#
# Each congestion control has its own virtual machine, for at most half an hour, so that a slow one
# takes no time from the others. The clock of the virtual machine counts instructions (icount of
# QEMU) and skips idle time. So the results depend neither on the load of the host nor on the speed
# of QEMU.
#
# Needs `make setup`, and `equic-sim`, which `make build` builds. The output of the virtual machine
# is written to target/kernels.
set -euo pipefail
cd "$(dirname "$0")/../../.."

runs=5
# Time limit of each virtual machine, in seconds. It is generous, because the host may be busy with
# other work.
deadline=1700
if [ "${1:-}" = --quick ]; then
	runs=1
	deadline=850
	shift
fi
kernel=${1:-linux-image-6.12-cloud-amd64}
controllers=${CONTROLLERS:-cubic bbr}

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

# points CONTROLLER: prints the transfers to make with a congestion control. Each line has these
# fields: name, congestion control, bit/s, one-way delay in ms, percentage of data packets lost,
# queue length in packets, bytes, and number of runs. Without loss, all runs are alike, so one is
# enough. The time that QEMU needs grows with the number of packets. A virtual machine can transfer
# about 50 MB in total.
points() {
	echo "$1-0 $1 10000000 50 0 1000 4000000 1"
	for loss in 0.1 1; do
		echo "$1-$loss $1 10000000 50 $loss 1000 3000000 $runs"
	done
	# Queues for half and for twice the bytes that are in flight without a queue.
	for queue in 42 166; do
		echo "$1-queue-$queue $1 10000000 50 0 $queue 4000000 1"
	done
	echo "$1-fast $1 50000000 20 0 100 8000000 1"
}

install -m 755 lab/sim-cli/oracle/linux/init "$root/init"
cp scripts/kernels/guest scripts/kernels/routers "$root/"
install -m 755 "$(command -v busybox)" "$root/bin/busybox"
with_libraries "$(command -v ip)" "$root/sbin/ip"
with_libraries "$(command -v tc)" "$root/sbin/tc"
cc -O2 -Wall -Werror -static -o "$root/bin/bulk" lab/sim-cli/oracle/linux/bulk.c || fail "cannot compile the transfer"
for module in "${modules[@]}"; do
	cp "$folder/$module.ko" "$root/"
done
said=$folder/oracle.log
: >"$said"
: >"$cache/oracle.points"
late=
for controller in $controllers; do
	points "$controller" >"$root/points"
	cat "$root/points" >>"$cache/oracle.points"
	(cd "$root" && find . | cpio --quiet -o -H newc) >"$cache/oracle.initrd"
	own=$folder/oracle.$controller.log console=$folder/oracle.$controller.console.log
	: >"$own"
	: >"$console"
	echo "oracle-linux: $controller: $(wc -l <"$root/points") points, $runs runs of those with loss" >&2
	# If the virtual machine fails or exceeds its time limit, the transfers that it has completed still
	# count.
	timeout -s KILL "$deadline" qemu-system-x86_64 -accel tcg,thread=single -icount shift=1,sleep=off -cpu max -smp 1 \
		-m 512 -display none -monitor none -nic none -no-reboot \
		-serial "file:$console" -serial "file:$own" \
		-kernel "$folder/vmlinuz" -initrd "$cache/oracle.initrd" \
		-append 'console=ttyS0 quiet panic=-1 rdinit=/init' </dev/null || true
	rm -f "$cache/oracle.initrd"
	tr -d '\r' <"$own" >>"$said"
	grep -q '^@@ no-module' "$own" && fail "a module cannot be loaded ($own)"
	grep '^@@ refused' "$own" >&2 && fail "the network cannot be set up ($own)"
	tr -d '\r' <"$own" | grep -q '^@@ end$' || late="$late $controller"
done
lab/sim-cli/oracle/linux.py "$cache/oracle.points" "$said" "$sim"
[ -z "$late" ] || fail "the transfers of$late did not complete within $deadline s ($folder/oracle.*.log)"
