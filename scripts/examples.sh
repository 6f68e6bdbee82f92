#!/bin/bash
# Builds servers with other QUIC stacks (docs/servers.md) and the bindings, and tests them with real
# clients. The programs go to target/servers.
# Usage: scripts/examples.sh [build|check|lint|test] [PROFILE]
#   build    only builds
#   check    builds, and checks the formatting
#   lint     builds, checks the formatting, and runs clippy on the Rust servers
#   test     builds, checks the formatting, and runs the tests (default)
#   PROFILE  profile for the crates of the project's own workspace, by default release
set -euo pipefail
cd "$(dirname "$0")/.."

what=${1:-test}
profile=${2:-release}
folder=$profile
[ "$profile" != dev ] || folder=debug
out=$PWD/target/servers
prefix=$out/prefix
mkdir -p "$out"
# Go's own packages install into this folder, which may be missing from the PATH of sudo.
case :$PATH: in *:/usr/local/go/bin:*) ;; *) PATH=$PATH:/usr/local/go/bin ;; esac

# examples/ is a workspace of its own, together with the endpoints of lab/peers/. Its target folder
# is set in examples/.cargo/config.toml. All targets of all members are always built, because
# another selection would have other features, and AWS-LC would be compiled again.
(cd examples && cargo build --locked --all-targets)

# The features are those of the build of the whole workspace, so nothing is compiled again.
cargo build --profile "$profile" --workspace --features boringssl,png --lib --example quinn
make --no-print-directory --silent -C crates/capi install PREFIX="$prefix" lib="$PWD/target/$folder" >/dev/null

export CGO_LDFLAGS="-Wl,-rpath,$prefix/lib"
# Go's build cache does not notice changes of headers, but it does notice changes of flags. So the
# flags contain a hash of the headers. The first two flags are Go's defaults.
CGO_CFLAGS="-g -O2 -DEQUIC_HEADERS=0x$(cat "$prefix"/include/equic*.h | sha256sum | cut -c 1-16)"
export CGO_CFLAGS
export EQUIC_LIBRARY=$prefix/lib/libequic.so
EQUIC_COMMAND=$(realpath "${CARGO_TARGET_DIR:-target}/$folder/equic")
export EQUIC_COMMAND
# Runs a command with the variable that lets pkg-config find libequic. The variable is not set for
# the whole script, because AWS-LC's build script reads it: cargo would compile AWS-LC and
# everything based on it again.
libequic() { PKG_CONFIG_PATH=$prefix/lib/pkgconfig "$@"; }
(cd bindings/go && libequic go vet ./...)
(cd examples/quic-go && libequic go vet ./... && libequic go build -o "$out/serve-quic-go" .)

words=$(libequic pkg-config --cflags --libs equic libngtcp2 libngtcp2_crypto_gnutls gnutls)
for api in handles paper; do
	program=$out/serve-ngtcp2
	[ $api = handles ] || program=$program-$api
	# shellcheck disable=SC2086 # a list of words
	cc -std=c11 -O2 -g -Wall -Wextra -Werror examples/ngtcp2/server.c examples/ngtcp2/$api.c \
		-o "$program" $words -Wl,-rpath,"$prefix/lib"
done

# Creates a certificate for the servers that need a file.
if [ ! -e "$out/certificate.pem" ]; then
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj /CN=localhost \
		-keyout "$out/key.pem" -out "$out/certificate.pem.new" 2>/dev/null
	mv "$out/certificate.pem.new" "$out/certificate.pem"
fi

# The virtual environment is recreated if its inputs have changed.
venv=$out/venv
wanted=$(cat examples/aioquic/requirements.txt bindings/python/pyproject.toml bindings/python/equic/*.py | sha256sum)
if [ "$(cat "$venv/made-of" 2>/dev/null)" != "$wanted" ]; then
	rm -rf "$venv"
	python3 -m venv "$venv"
	"$venv/bin/pip" install --quiet --disable-pip-version-check -r examples/aioquic/requirements.txt
	before=$(find bindings/python | sort)
	"$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps bindings/python
	diff <(echo "$before") <(find bindings/python | sort) || {
		echo "examples: pip install bindings/python writes into the source tree" >&2
		exit 1
	}
	echo "$wanted" >"$venv/made-of"
fi
scripts/picoquic.sh "$venv/bin/pip"
picoquic=$out/picoquic
# shellcheck disable=SC2046 # a list of words
cc -std=c11 -O2 -g -Wall -Wextra -Werror examples/picoquic/server.c -o "$out/serve-picoquic" \
	-isystem "$picoquic/third_party/picoquic/picoquic" -isystem "$picoquic/third_party/picotls/include" \
	"$picoquic/core/libpicoquic-core.a" "$picoquic"/ptls/libpicotls-{openssl,core,minicrypto}.a \
	$(libequic pkg-config --cflags --libs equic) -lssl -lcrypto -lpthread -lm -Wl,-rpath,"$prefix/lib"
[ "$what" != build ] || exit 0

unformatted=$(gofmt -l bindings/go examples/quic-go)
[ -z "$unformatted" ] || { echo "examples: format these files with gofmt -w: $unformatted" >&2; exit 1; }
(cd examples && cargo fmt --all --check)
# Clippy compiles all other stacks once more, so `make test` does not run it.
[ "$what" != lint ] || (cd examples && cargo clippy --locked --all-targets -- -D warnings)
[ "$what" = test ] || exit 0

# Installs pandas and matplotlib, which the Python code in docs/notebook/bench-output.md needs.
plots=$out/plots
if ! cmp -s examples/samples/requirements.txt "$plots/made-of"; then
	rm -rf "$plots"
	python3 -m venv "$plots"
	"$plots/bin/pip" install --quiet --disable-pip-version-check -r examples/samples/requirements.txt
	cp examples/samples/requirements.txt "$plots/made-of"
fi

# Tests the bindings, each in its own network namespace, which ends with the test.
echo "examples: Go binding"
(cd bindings/go && libequic unshare --net sh -c 'ip link set lo up && exec go test -count=1 ./...')
echo "examples: commands of docs/servers.md"
# The page's commands set the flags of cgo themselves.
env -u CGO_CFLAGS scripts/test-servers-page.sh "$prefix" "${CARGO_TARGET_DIR:-target}/$folder/equic"
echo "examples: Python binding"
(cd bindings/python/tests && unshare --net sh -c 'ip link set lo up && exec "$0" -m unittest --quiet' "$venv/bin/python")
# Runs the same bytecode as quinn's congestion controller. This needs only loopback.
echo "examples: plugins in quinn"
(cd examples && cargo test --locked --all-targets -- --quiet)
echo "examples: servers against clients"
# Only two tests run at a time. The servers share two cores with their clients, so more tests would
# only wait for each other.
cargo test --profile "$profile" --workspace --features boringssl,png --test servers -- --quiet --test-threads 2
