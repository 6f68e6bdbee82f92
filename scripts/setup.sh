#!/bin/sh
# Installs the Debian packages that the build, the tests and the demo need. Prints nothing if all
# are installed.
# Usage: scripts/setup.sh [build|all|examples|interop|fresh|book]
#   build     packages for `cargo build`
#   all       in addition, packages for the tests and the demo (default)
#   examples  in addition, packages for servers with other stacks. Go is not installed, only
#   checked.
#   interop   in addition, packages for `make interop`: a browser
#   fresh     in addition, packages for `make test-fresh`: a load generator
#   book      mdbook, in the version that builds the book, below target/tools
set -eu

what=${1:-all}

if ! command -v cargo >/dev/null 2>&1; then
	wanted=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$(dirname "$0")/../Cargo.toml")
	echo "setup: cargo not found: install Rust $wanted or newer first (https://rustup.rs)" >&2
	exit 1
fi
# Debian has no package of mdbook (docs/decisions/0068-book.md).
if [ "$what" = book ]; then
	root=$(cd "$(dirname "$0")/.." && pwd)
	wanted=0.5.4
	if [ "$("$root/target/tools/bin/mdbook" --version 2>/dev/null)" != "mdbook v$wanted" ]; then
		echo "setup: installing mdbook $wanted into target/tools (minutes)"
		cd /
		cargo install --quiet mdbook --version "$wanted" --locked --no-default-features --features search \
			--root "$root/target/tools" --force
	fi
	exit 0
fi
if ! command -v dpkg-query >/dev/null 2>&1; then
	echo "setup: not a Debian system: install clang >= 16, libclang, libbpf headers, libelf, zlib," >&2
	echo "setup: cmake, a C++ compiler, pkg-config and iproute2 with your package manager, then use cargo directly" >&2
	exit 1
fi

installed() {
	dpkg-query -W -f '${db:Status-Status}\n' "$1" 2>/dev/null | grep -qx installed
}

available() {
	apt-cache policy "$1" 2>/dev/null | grep -q 'Candidate: [0-9]'
}

# Selects the newest installed clang from version 16 on. If none is installed, selects the newest
# that Debian has.
clang=
for version in 21 20 19 18 17 16; do
	if installed "clang-$version"; then
		clang=$version
		break
	fi
done
need_update=yes
update() {
	if [ "$need_update" = yes ]; then
		apt-get update -qq
		need_update=no
	fi
}
must_be_root() {
	if [ "$(id -u)" != 0 ]; then
		echo "setup: these Debian packages are missing: $1" >&2
		echo "setup: run 'sudo make setup' once to install them" >&2
		exit 1
	fi
}
if [ -z "$clang" ]; then
	must_be_root "clang (16 or newer)"
	update
	for version in 19 18 17 16; do
		if available "clang-$version"; then
			clang=$version
			break
		fi
	done
	if [ -z "$clang" ]; then
		echo "setup: Debian offers no clang 16 or newer: use Debian bookworm or newer" >&2
		exit 1
	fi
fi

packages="clang-$clang libclang1-$clang libbpf-dev libelf-dev zlib1g-dev pkg-config gcc make linux-libc-dev"
# BoringSSL (crates/boringssl) needs these.
packages="$packages cmake g++"
if [ "$what" != build ]; then
	packages="$packages clang-format-$clang iproute2 nftables prometheus strace valgrind fonts-dejavu-core libc6-dbg bpftool"
	packages="$packages qemu-system-x86 qemu-user busybox-static cpio xz-utils binutils linux-perf"
	# The tests of the installation need these.
	packages="$packages groff bash zsh fish dpkg-dev lintian systemd"
fi
if [ "$what" = examples ] || [ "$what" = interop ]; then
	# aioquic needs a virtual environment. Debian has the module venv of its own Python in a separate
	# package.
	packages="$packages python3"
	# For examples/ngtcp2.
	packages="$packages libngtcp2-dev libngtcp2-crypto-gnutls-dev libgnutls28-dev"
	# examples/picoquic needs these, and certificates do, too.
	packages="$packages libssl-dev openssl"
	case "$(command -v python3 || echo /usr/bin/python3)" in
	/usr/bin/*) packages="$packages python3-venv" ;;
	esac
fi
if [ "$what" = interop ]; then
	packages="$packages chromium"
fi
if [ "$what" = fresh ]; then
	packages="$packages git stress-ng"
fi
missing=
for package in $packages; do
	installed "$package" || missing="$missing $package"
done
if [ -n "$missing" ]; then
	must_be_root "$missing"
	echo "setup: installing$missing"
	update
	# The tests need the programs of some packages (prometheus), but not their services. This policy
	# prevents these from starting now or at the next boot.
	policy=/usr/sbin/policy-rc.d
	if [ ! -e "$policy" ]; then
		trap 'rm -f "$policy"' EXIT
		trap 'exit 1' INT TERM
		printf '#!/bin/sh\nexit 101\n' >"$policy"
		chmod 755 "$policy"
	fi
	# shellcheck disable=SC2086 # a list of words
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
	case " $missing " in
	*" prometheus "*) systemctl disable --quiet prometheus >/dev/null 2>&1 || true ;;
	esac
fi

# examples/quic-go needs Go, and Debian's version is too old. From 1.21 on, Go itself downloads a
# newer version if needed.
if [ "$what" = examples ] || [ "$what" = interop ]; then
	PATH=$PATH:/usr/local/go/bin
	version=$(go env GOVERSION 2>/dev/null || true)
	case "$version" in
	go1.2[1-9]* | go1.[3-9][0-9]* | go[2-9]*) ;;
	"")
		echo "setup: go not found: install Go 1.26 or newer (https://go.dev/dl/), for examples/quic-go" >&2
		exit 1
		;;
	*)
		echo "setup: $version is too old: install Go 1.26 or newer (https://go.dev/dl/), for examples/quic-go" >&2
		exit 1
		;;
	esac
fi
