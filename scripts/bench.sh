#!/bin/bash
# The implementations that `equic-lab bench` measures (docs/bench-contract.md): ours, and the adapters in bench/
# with the versions of its lock files. What is built lies in target/servers.
# Usage: scripts/bench.sh build [tier1|tier2|NAME...]   tier1, which is usual, has to build; of tier2 what
#                                                       this host cannot build is said and left out
#        scripts/bench.sh try [NAME...]                 each against itself and against ours, on loopback
set -euo pipefail
cd "$(dirname "$0")/.."

out=$PWD/target/servers
tier1="equic quinn quiche s2n-quic tquic quic-go tcp sendfile"
tier2="tcp-boringssl quinn-aws-lc noq msquic x-net-quic aioquic aiopquic pycurl bun kwik"
# Where Go's own packages put it; sudo may not look there.
case :$PATH: in *:/usr/local/go/bin:*) ;; *) PATH=$PATH:/usr/local/go/bin ;; esac

# Prints why an implementation cannot be built here, if so.
missing() {
	case $1 in
	quic-go | x-net-quic) command -v go >/dev/null || echo "Go 1.26 or newer is not installed" ;;
	aioquic | pycurl) python3 -c 'import venv, ensurepip' 2>/dev/null || echo "Python 3 with venv is not installed" ;;
	aiopquic) python313 >/dev/null || echo "CPython 3.13, for which it is pinned, is not installed" ;;
	msquic) command -v cmake >/dev/null || echo "cmake is not installed" ;;
	bun) command -v npm >/dev/null || echo "npm is not installed" ;;
	kwik) { command -v java && command -v mvn; } >/dev/null || echo "Java 17 and Maven are not installed" ;;
	esac
}

# The path of a CPython 3.13.
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

# A virtual environment with what a file lists; made again when that changes.
environment() {
	local python=$1 requirements=$2 venv=$out/$3 wanted
	wanted=$(sha256sum <"$requirements")
	if [ "$(cat "$venv/made-of" 2>/dev/null)" != "$wanted" ]; then
		rm -rf "$venv"
		"$python" -m venv "$venv"
		# An environment without its packages must not look built.
		"$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "$requirements" || {
			rm -rf "$venv"
			return 1
		}
		echo "$wanted" >"$venv/made-of"
	fi
}

go_program() {
	(cd bench/go && go build -mod=readonly -o "$out/bench-$1" "./$1")
}

build() {
	case $1 in
	equic | tcp) cargo build --release --workspace --features boringssl,png --bin equic-lab ;;
	quinn | quinn-aws-lc) crates+=(-p bench-quinn) ;;
	tcp-boringssl | sendfile) crates+=(-p bench-tcp) ;;
	quiche | s2n-quic | tquic | noq | msquic) crates+=(-p "bench-$1") ;;
	quic-go | x-net-quic) go_program "$1" ;;
	aioquic | pycurl) environment python3 bench/python/requirements.txt bench-python ;;
	aiopquic) environment "$(python313)" bench/python/requirements-aiopquic.txt bench-aiopquic ;;
	bun)
		mkdir -p "$out/bench-bun"
		cp bench/bun/package.json bench/bun/package-lock.json "$out/bench-bun/"
		(cd "$out/bench-bun" && npm ci --silent --no-audit --no-fund)
		;;
	kwik)
		mkdir -p "$out/bench-kwik"
		mvn --quiet --batch-mode --file bench/kwik/pom.xml "-Dout=$out/bench-kwik" package
		;;
	*)
		echo "bench: no implementation $1: there are $tier1 $tier2" >&2
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
			echo "bench: without $name: $why" >&2
		else
			echo "bench: cannot build $name: $why" >&2
			exit 1
		fi
	done
	# All at once, so that what they share is built once. Its own workspace, and its target folder by
	# bench/.cargo/config.toml.
	if [ ${#crates[@]} != 0 ]; then
		(cd bench && cargo build --release --locked "${crates[@]}")
	fi
	# Beside the program, which looks for it there; of the last build if there were several.
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
try) exec python3 bench/try.py "$@" ;;
*)
	echo "bench: build or try, not $what" >&2
	exit 2
	;;
esac
