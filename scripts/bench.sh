#!/bin/bash
# Builds or tries the implementations that `equic-lab bench` measures (docs/bench-contract.md): our
# own, and the adapters in lab/peers/ with the versions in its lock files. The programs go to
# target/servers.
# Usage:
#   scripts/bench.sh build [tier1|tier2|NAME...]
#     builds implementations, by default tier1. All of tier1 must build. If an implementation of
#     tier2 cannot be built on this host, the script prints the reason and skips it.
#   scripts/bench.sh try [NAME...]
#     transfers between each implementation and itself, and between each and ours, on loopback
set -euo pipefail
cd "$(dirname "$0")/.."

out=$PWD/target/servers
tier1="equic quinn quiche s2n-quic tquic quic-go tcp sendfile"
tier2="tcp-boringssl quinn-aws-lc noq msquic x-net-quic aioquic aiopquic pycurl bun kwik"
# Go's own packages install into this folder, which may be missing from the PATH of sudo.
case :$PATH: in *:/usr/local/go/bin:*) ;; *) PATH=$PATH:/usr/local/go/bin ;; esac

# Prints the reason why an implementation cannot be built on this host, or nothing if it can.
missing() {
	case $1 in
	quic-go | x-net-quic) command -v go >/dev/null || echo "Go 1.26 or newer is not installed" ;;
	aioquic | pycurl) python3 -c 'import venv, ensurepip' 2>/dev/null || echo "Python 3 with venv is not installed" ;;
	aiopquic) python313 >/dev/null || echo "CPython 3.13 is not installed, which its pinned packages need" ;;
	msquic) command -v cmake >/dev/null || echo "cmake is not installed" ;;
	bun) command -v npm >/dev/null || echo "npm is not installed" ;;
	kwik) { command -v java && command -v mvn; } >/dev/null || echo "Java 17 and Maven are not installed" ;;
	esac
}

# Prints the path of a CPython 3.13.
python313() {
	local python
	for python in python3.13 "$HOME"/.pyenv/versions/3.13.*/bin/python3.13; do
		if "$python" -c 'import venv, ensurepip' 2>/dev/null; then
			command -v "$python"
			return
		fi
	done
	return 1
}

# Creates a virtual environment with the packages in a requirements file. Recreates it if the file
# has changed.
environment() {
	local python=$1 requirements=$2 venv=$out/$3 wanted
	wanted=$(sha256sum <"$requirements")
	if [ "$(cat "$venv/made-of" 2>/dev/null)" != "$wanted" ]; then
		rm -rf "$venv"
		"$python" -m venv "$venv"
		# The environment is removed if a package cannot be installed. Otherwise, it would look complete.
		"$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "$requirements" || {
			rm -rf "$venv"
			return 1
		}
		echo "$wanted" >"$venv/made-of"
	fi
}

go_program() {
	(cd lab/peers && go build -mod=readonly -o "$out/bench-$1" "./$1/adapter")
}

build() {
	case $1 in
	equic | tcp) cargo build --release --workspace --features boringssl,png --bin equic-lab ;;
	quinn | quinn-aws-lc) crates+=(-p bench-quinn) ;;
	tcp-boringssl | sendfile) crates+=(-p bench-tcp) ;;
	quiche | s2n-quic | tquic | noq | msquic) crates+=(-p "bench-$1") ;;
	quic-go | x-net-quic) go_program "$1" ;;
	aioquic | pycurl) environment python3 lab/peers/python-contract/requirements.txt bench-python ;;
	aiopquic) environment "$(python313)" lab/peers/aiopquic/adapter/requirements.txt bench-aiopquic ;;
	bun)
		mkdir -p "$out/bench-bun"
		cp lab/peers/bun/adapter/package.json lab/peers/bun/adapter/package-lock.json "$out/bench-bun/"
		(cd "$out/bench-bun" && npm ci --silent --no-audit --no-fund)
		;;
	kwik)
		mkdir -p "$out/bench-kwik"
		mvn --quiet --batch-mode --file lab/peers/kwik/adapter/pom.xml "-Dout=$out/bench-kwik" package
		;;
	*)
		echo "bench: unknown implementation $1: choose from $tier1 $tier2" >&2
		exit 2
		;;
	esac
}

build_all() {
	local name why place crates=()
	mkdir -p "$out"
	for name in "$@"; do
		why=$(missing "$name")
		if [ -z "$why" ]; then
			build "$name"
		elif [[ " $tier2 " == *" $name "* ]]; then
			echo "bench: skipping $name: $why" >&2
		else
			echo "bench: cannot build $name: $why" >&2
			exit 1
		fi
	done
	# All crates are built in one call, so that common dependencies are built once. They are in a
	# workspace of their own, whose target folder is set in lab/peers/.cargo/config.toml.
	if [ ${#crates[@]} != 0 ]; then
		(cd lab/peers && cargo build --release --locked "${crates[@]}")
	fi
	# The program looks for the library in its own folder. If there are several builds, the last one is
	# used.
	if [[ " ${crates[*]} " == *" bench-msquic "* ]]; then
		place=$(find "$out/release/build" -path '*/msquic-*/out/lib/libmsquic.so.2' -printf '%T@ %h\n' | sort -n | tail -1)
		cp -P "${place#* }"/libmsquic.so* "$out/release/"
	fi
}

what=${1:-build}
[ $# = 0 ] || shift
case $what in
build)
	wanted=()
	for name in "${@:-tier1}"; do
		case $name in
		# shellcheck disable=SC2206 # lists of words
		tier1) wanted+=($tier1) ;;
		# shellcheck disable=SC2206
		tier2) wanted+=($tier2) ;;
		*) wanted+=("$name") ;;
		esac
	done
	build_all "${wanted[@]}"
	;;
try) exec python3 lab/peers/try.py "$@" ;;
*)
	echo "bench: unknown command '$what': use build or try" >&2
	exit 2
	;;
esac
