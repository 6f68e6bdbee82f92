#!/bin/sh
# Runs cargo for the crates of simulations, with unprotected connections (docs/transport.md). No
# shipped package has this feature, so these crates are compiled separately.
# Usage: scripts/null-crypto.sh test|clippy|build [argument of cargo ...]
#   test   selects the libraries and their tests
set -eu
cd "$(dirname "$0")/.."

command=$1
shift
targets=
if [ "$command" = test ]; then
	targets="--lib"
	for test in applications memory null_peer paths play plugins quic read tcp tls traces windows; do
		targets="$targets --test $test"
	done
fi
# equic-lab-cli has no library and no test of this kind, so no test of it runs. It is named because
# cargo then selects the same features of rustls, tokio, quinn and 50 more crates as for the
# workspace. So these are not compiled again.
features=equic-lab-cli/boringssl,equic-lab-cli/png,equic-wire/null-crypto,equic-transport/null-crypto
features=$features,equic-sim/quic,equic-sim/tcp,equic-scenario/tls,equic-scenario/plugins
# shellcheck disable=SC2086 # a list of words
exec cargo "$command" --release --locked -p equic-wire -p equic-transport -p equic-sim -p equic-scenario -p equic-lab-cli \
	$targets --features "$features" "$@"
