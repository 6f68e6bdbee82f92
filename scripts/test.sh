#!/bin/bash
# What `make test` runs: every suite, whatever becomes of those before it, and how each went at the end.
# Usage: scripts/test.sh [SUITE ...]     by name; all of them unless some are named
set -euo pipefail
cd "$(dirname "$0")/.."

# All suites run with the assertions and overflow checks of a debug build. What `make build` builds has none, and is compiled
# again. Tests that see EQUIC_ASSERTIONS fail where they were compiled without.
export CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true
export CARGO_PROFILE_DEV_DEBUG_ASSERTIONS=true CARGO_PROFILE_DEV_OVERFLOW_CHECKS=true
export EQUIC_ASSERTIONS=1

# Compiling takes longer than the tests, so only what computes much is optimized (.ci/cargo.toml). OPTIMIZED=1 optimizes as
# `make build` does. Cargo reads profiles of a machine from its own folder only: this one is the user's, with these profiles.
own=${CARGO_HOME:-$HOME/.cargo}
home=$PWD/target/cargo-home
# A test that runs this script has the folder already.
if [ -z "${OPTIMIZED:-}" ] && ! [ "$own" -ef "$home" ]; then
	mkdir -p "$own"/registry "$own"/git "$home"
	# The lock of what is downloaded has to be the same file.
	touch "$own/.package-cache"
	for file in "$own"/* "$own"/.[!.]*; do
		case ${file##*/} in
		config | config.toml) ;;
		*) [ ! -e "$file" ] || ln -sfn "$file" "$home/" ;;
		esac
	done
	# Cargo prefers the name without an ending.
	machines=$own/config
	[ -f "$machines" ] || machines+=.toml
	{
		[ ! -f "$machines" ] || cat "$machines"
		echo
		# A machine with profiles of its own keeps them.
		grep -q '^\[profile\.' "$machines" 2>/dev/null || cat .ci/cargo.toml
	} >"$home/config.toml"
	export CARGO_HOME=$home
fi

# A name and a command for each, with marks that scripts/suites.sh explains. Most of the rust suite's time is waiting,
# and much of what lies beside it is compiling. Each of them needs no more than is built first, but for those at the end.
suites=(
	# Unit tests, packet tables, differential, end to end. Network namespaces and XDP programs are shared by
	# the machine: tests that need them for themselves have a lock. All of it even when some of it fails.
	rust 'cargo test --release --workspace --features boringssl,png --no-fail-fast -- --quiet'
	# Some of them twice at once, beside gateways and namespaces that are not theirs.
	apart scripts/test-apart.sh
	# What is installed, the Debian package, the service.
	packaging scripts/packaging.sh
	# What examples and interop need: other people's stacks, in a target folder of their own, so that it waits for
	# no other build.
	beside:peers 'scripts/examples.sh check'
	beside:lint scripts/lint.sh
	# The documentation as a book: its links, as sources and as pages.
	beside:book 'make --no-print-directory book'
	# Connections without protection, for simulations. Not of the workspace's build, which is what is shipped
	# (docs/transport.md).
	beside:null-crypto 'scripts/null-crypto.sh test --no-fail-fast -- --quiet'
	# Over sockets with the other crypto provider, and with compressed certificates.
	beside:ring 'cargo test --release -p equic-quic --no-default-features --features ring,qlog,platform-roots,cert-compression \
		--test ring --test examples --test quic -- --quiet'
	# The simulator, a workspace of its own for the same reason.
	beside:sim 'cd sim && cargo test --release --locked --features png -- --quiet'
	# Proofs for authors of plugins, by PREVAIL: a workspace of its own, which nothing else is built with.
	beside:prove 'cd prove && cargo test --release --locked -- --quiet'
	# The examples, once, by `cargo run` and in a debug build where a user begins.
	beside:cargo-run scripts/cargo-run.sh
	# Bytecode compiled for AArch64, under QEMU.
	beside:aarch64 scripts/aarch64.sh
	# The program on Debian's kernels in QEMU.
	beside:kernels scripts/kernels.sh
	# Example, tests, ASan, valgrind.
	beside:c-library 'make --no-print-directory -C crates/capi test
		make --no-print-directory -C crates/vm-capi test'
	# Other people's servers with a quota: quinn, s2n-quic, quiche, quic-go, aioquic, ngtcp2, picoquic.
	after:examples 'scripts/examples.sh test'
	# Ours with quinn, quic-go and aioquic, and over several paths with noq and picoquic, as clients and as servers.
	after:interop 'scripts/interop.sh quick'
)

wanted=()
if [ $# = 0 ]; then
	wanted=("${suites[@]}")
fi
for name in "$@"; do
	found=
	for ((at = 0; at < ${#suites[@]}; at += 2)); do
		[ "${suites[at]#*:}" != "$name" ] || found=$at
	done
	[ -n "$found" ] || { echo "test: no suite is called $name" >&2; exit 2; }
	wanted+=("${suites[@]:found:2}")
done
# Everything on one toolchain, what the suites run included.
RUSTUP_TOOLCHAIN=$(scripts/toolchain.sh)
export RUSTUP_TOOLCHAIN
exec scripts/suites.sh first:build 'make --no-print-directory build
	scripts/assertions.sh' "${wanted[@]}"
