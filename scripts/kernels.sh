#!/bin/bash
# Runs the gateway's tests on Debian's kernels in QEMU, in software emulation. They check that each
# kernel's verifier accepts the program, and that its verdicts agree with the packet tables and the
# reference model.
# Usage: scripts/kernels.sh [--debug] [META-PACKAGE ...]
#   default: the kernels of Debian's cloud images, 6.1 and 6.12
# The virtual machine boots from an initramfs with the test programs and their libraries. Nothing is
# installed on this machine. The kernels and the output of the tests are kept in target/kernels.
set -euo pipefail
cd "$(dirname "$0")/.."

profile=--release
if [ "${1:-}" = --debug ]; then
	profile=
	shift
fi
kernels=("$@")
[ ${#kernels[@]} -gt 0 ] || kernels=(linux-image-cloud-amd64 linux-image-6.12-cloud-amd64)
tests=(tables differential fuzzed live)
# The test program that contains each group of tests.
declare -A programs=([tables]=data_plane [differential]=data_plane [fuzzed]=data_plane [live]=live)
# Number of cases of the randomised tests, and the tests to run (all whose names contain one of
# these strings). Only some tests run, because the emulated verifier takes several seconds for each
# load.
declare -A cases=([tables]=0 [differential]=60 [fuzzed]=5000 [live]=0)
declare -A filters=(
	[tables]=tables_agree_with_the_program
	[differential]=program_and_model_agree
	[fuzzed]=mutated_inputs_lead_to_the_same_verdicts
	[live]='attach_is_native quota_follows_the_ledger gateway_that_is_killed object_of_another_abi child capture_has_as_many_bytes'
)
# Time limits in seconds, for one group of tests and for a machine. Even on a machine with other
# load, only a test that hangs reaches them.
limit=400
deadline=900

fail() {
	echo "kernels: $*" >&2
	exit 1
}

[ "$(uname -m)" = x86_64 ] || fail "the kernels need x86-64, but this machine is $(uname -m)"

# shellcheck source=scripts/kernels/common.sh
. scripts/kernels/common.sh
mkdir -p "$cache"

echo "kernels: building the tests"
# shellcheck disable=SC2086 # no profile is no argument
built=$(cargo test $profile --workspace --features boringssl,png --test=data_plane --test=live --no-run 2>&1) || fail "$built"
root=$(mktemp -d "$cache/root.XXXXXX")
trap 'rm -rf "$root"' EXIT
mkdir -p "$root"/{bin,sbin,tests}
install -m 755 scripts/kernels/init "$root/init"
install -m 755 "$(command -v busybox)" "$root/bin/busybox"
if ldd "$root/bin/busybox" >/dev/null 2>&1; then
	fail "busybox is not static: run 'make setup'"
fi
with_libraries "$(command -v ip)" "$root/sbin/ip"
for program in data_plane live; do
	binary=$(sed -En "s#.*Executable tests/$program(/main)?\.rs \((.*)\)#\2#p" <<<"$built")
	[ -x "$binary" ] || fail "cannot find the test program $program in: $built"
	with_libraries "$binary" "$root/tests/$program"
	strip "$root/tests/$program"
done
for name in "${tests[@]}"; do
	echo "$name ${programs[$name]} ${cases[$name]} ${filters[$name]}"
done >"$root/tests/list"
printf 'LIMIT=%s\nexport EQUIC_SEED=%s\n' "$limit" "${EQUIC_SEED:-$RANDOM}" >"$root/tests/environment"

# Boots a kernel and checks the output of its tests. The check is strict: each result must be
# present, because a machine that crashes prints nothing.
run_on() {
	local folder=$1 said=$1/tests.log console=$1/console.log name line wrong=
	# The initrd consists of two archives, one after the other. The kernel reads both.
	{
		(cd "$root" && find . | cpio --quiet -o -H newc)
		(cd "$folder" && echo veth.ko | cpio --quiet -o -H newc)
	} >"$folder/initrd"
	: >"$said"
	: >"$console"
	timeout -s KILL "$deadline" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 1024 \
		-display none -monitor none -nic none -no-reboot \
		-serial "file:$console" -serial "file:$said" \
		-kernel "$folder/vmlinuz" -initrd "$folder/initrd" \
		-append 'console=ttyS0 quiet panic=-1 rdinit=/init' </dev/null ||
		wrong="the machine did not shut down within $deadline s"
	rm -f "$folder/initrd"
	for name in "${tests[@]}"; do
		line=$(sed -n "/^@@ start $name\r*$/,/^@@ ended $name /p" "$said" | tr -d '\r')
		grep -q "^@@ ended $name 0 " <<<"$line" || wrong="${wrong:-$name failed, or never ended}"
		grep -Eq '^test result: ok\. [1-9][0-9]* passed; 0 failed; 0 ignored' <<<"$line" ||
			wrong="${wrong:-$name has no passing result}"
		grep -q 'SKIPPED' <<<"$line" && wrong="${wrong:-$name skipped a test}"
	done
	[ "$(tail -n 1 "$said" | tr -d '\r')" = '@@ end' ] || wrong="${wrong:-the tests did not end}"
	grep -q '@@ no-module' "$said" && wrong="${wrong:-a module cannot be loaded}"
	# A test can pass although the kernel has reported an error.
	grep -Eq 'BUG:|Oops|WARNING:|Call Trace|Kernel panic' "$console" && wrong="${wrong:-the kernel reported an error}"
	if [ -n "$wrong" ]; then
		echo "--- last lines of the tests' output ($said)" >&2
		tail -n 60 "$said" >&2
		echo "--- last lines of the console ($console)" >&2
		tail -n 40 "$console" >&2
		fail "Linux $(sed -n 's/^@@ begin //p' "$said" | tr -d '\r') ($folder): $wrong"
	fi
	echo "kernels: Linux $(sed -n 's/^@@ begin //p' "$said" | tr -d '\r'):" \
		"$(sed -n 's/^@@ ended \([a-z]*\) 0 \([0-9]*\).*/\1 (\2 s)/p' "$said" | tr '\n\r' '  ')"
}

folders=()
for kernel in "${kernels[@]}"; do
	folders+=("$(kernel_of "$kernel")")
done
# Each virtual machine keeps one CPU busy, so they run in parallel.
machines=()
for folder in "${folders[@]}"; do
	run_on "$folder" &
	machines+=($!)
done
failed=
for machine in "${machines[@]}"; do
	wait "$machine" || failed=yes
done
[ -z "$failed" ] || fail "not all kernels pass"
echo "kernels: all tests pass on ${#folders[@]} kernels"
