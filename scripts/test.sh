#!/bin/bash
# Runs `make test`: all suites, whether or not earlier ones have failed. Prints the result of each
# suite at the end.
# Usage: scripts/test.sh [SUITE ...]     SUITE: name of a suite; without names, all suites run
set -euo pipefail
cd "$(dirname "$0")/.."

# All suites run with the assertions and overflow checks of a debug build. The build of `make build`
# has none, so the code is compiled again. If EQUIC_ASSERTIONS is set, some tests fail if they were
# compiled without these checks.
export CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true
export CARGO_PROFILE_DEV_DEBUG_ASSERTIONS=true CARGO_PROFILE_DEV_OVERFLOW_CHECKS=true
export EQUIC_ASSERTIONS=1

# Compiling takes longer than the tests, so only code that computes much is optimized
# (.ci/cargo.toml). OPTIMIZED=1 optimizes as `make build` does. Cargo reads a machine's profiles
# only from its home folder. So this folder has the content of the user's, and these profiles.
own=$(realpath -m "${CARGO_HOME:-$HOME/.cargo}")
home=$PWD/target/cargo-home
# If a test runs this script, CARGO_HOME is already this folder.
if [ -z "${OPTIMIZED:-}" ] && ! [ "$own" -ef "$home" ]; then
	mkdir -p "$own"/registry "$own"/git "$home"
	# Both folders must share the lock for downloads, so it must be the same file.
	touch "$own/.package-cache"
	for file in "$own"/* "$own"/.[!.]*; do
		case ${file##*/} in
		config | config.toml) ;;
		*) [ ! -e "$file" ] || ln -sfn "$file" "$home/" ;;
		esac
	done
	# If there are two configuration files, cargo uses the one without an extension.
	machines=$own/config
	[ -f "$machines" ] || machines+=.toml
	# The machine's configuration can contain tokens, so only this user may read the copy (mktemp). A
	# link with the copy's name is replaced, not followed (mv).
	copy=$(mktemp "$home/config.XXXXXX")
	{
		[ ! -f "$machines" ] || cat "$machines"
		echo
		# If the machine's configuration has profiles of its own, they are kept.
		grep -q '^\[profile\.' "$machines" 2>/dev/null || cat .ci/cargo.toml
	} >"$copy"
	mv -fT "$copy" "$home/config.toml"
	export CARGO_HOME=$home
fi

# Name and command of each suite. scripts/suites.sh explains the prefixes. The rust suite mostly
# waits, while the suites in the second lane mostly compile. Each suite needs only the first build,
# except for those at the end.
suites=(
	# Unit tests, packet tables, differential tests and end-to-end tests. The machine has only one set
	# of network namespaces and XDP programs, so tests that need them exclusively take a lock. All
	# tests run, even if some fail.
	rust 'cargo test --release --workspace --features boringssl,png --no-fail-fast -- --quiet'
	# Some of these tests twice at the same time, next to foreign gateways and namespaces.
	apart scripts/test-apart.sh
	# The installed files, the Debian packages, and the systemd unit.
	packaging scripts/packaging.sh
	# The other QUIC stacks that the suites examples and interop need. They have a target folder of
	# their own, so this suite waits for no other build.
	beside:peers 'scripts/examples.sh check'
	beside:lint scripts/lint.sh
	# The documentation as a book, with checks of the links in its sources and pages.
	beside:book 'make --no-print-directory book'
	# Unprotected connections, for simulations. The build of the workspace, which is shipped, does not
	# have this feature (docs/transport.md).
	beside:null-crypto 'scripts/null-crypto.sh test --no-fail-fast -- --quiet'
	# Connections over sockets with the other crypto provider, and with compressed certificates.
	beside:ring 'cargo test --release -p equic-quic --no-default-features --features ring,qlog,platform-roots,cert-compression \
		--test ring --test examples --test quic -- --quiet'
	# The simulator. It is a workspace of its own, because it needs the same feature.
	beside:sim 'cd lab/sim-cli && cargo test --release --locked --features png -- --quiet'
	# Proofs for plugin authors with PREVAIL. This is a workspace of its own, so that nothing else is
	# built with it.
	beside:prove 'cd prove && cargo test --release --locked -- --quiet'
	# Each example once. Those that a user starts with run with `cargo run` in a debug build.
	beside:cargo-run scripts/cargo-run.sh
	# Bytecode that is compiled for AArch64, under QEMU.
	beside:aarch64 scripts/aarch64.sh
	# The XDP program on Debian's kernels in QEMU.
	beside:kernels scripts/kernels.sh
	# The C libraries: examples, tests, AddressSanitizer and valgrind.
	beside:c-library 'make --no-print-directory -C crates/capi test
		make --no-print-directory -C crates/vm-capi test'
	# Servers with a quota on other QUIC stacks: quinn, s2n-quic, quiche, quic-go, aioquic, ngtcp2,
	# picoquic.
	after:examples 'scripts/examples.sh test'
	# Our clients and servers with quinn, quic-go and aioquic, and with multipath also with noq and
	# picoquic.
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
	[ -n "$found" ] || { echo "test: there is no suite with the name $name" >&2; exit 2; }
	wanted+=("${suites[@]:found:2}")
done
# All commands, including those of the suites, use the same toolchain.
RUSTUP_TOOLCHAIN=$(scripts/toolchain.sh)
export RUSTUP_TOOLCHAIN
exec scripts/suites.sh first:build 'make --no-print-directory build
	scripts/assertions.sh' "${wanted[@]}"
