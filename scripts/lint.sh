#!/bin/sh
# Checks formatting, lints, dependencies and prose. With --fix, the script formats the code instead.
set -eu
cd "$(dirname "$0")/.."

clang_format=
for name in clang-format-21 clang-format-20 clang-format-19 clang-format-18 clang-format-17 clang-format-16; do
	if command -v "$name" >/dev/null 2>&1; then
		clang_format=$name
		break
	fi
done
[ -n "$clang_format" ] || { echo "lint: clang-format 16 or newer is missing: run 'make setup'" >&2; exit 1; }

# Generated headers keep the format of their generator.
c_files=$(git ls-files --cached --others --exclude-standard '*.c' '*.h' ':!crates/*/include/*.h' ':!plugins/sdk/*.h')

if [ "${1:-}" = --fix ]; then
	cargo fmt --all
	(cd lab/sim-cli && cargo fmt --all)
	(cd prove && cargo fmt --all)
	# shellcheck disable=SC2086 # a list of files
	"$clang_format" -i $c_files
	exit 0
fi

RUSTUP_TOOLCHAIN=$(scripts/toolchain.sh)
export RUSTUP_TOOLCHAIN
# The other workspaces must have the same rust-version.
versions=$(git ls-files '*Cargo.toml' | xargs grep -h '^rust-version = ' | sort -u)
[ "$(echo "$versions" | wc -l)" = 1 ] || { printf 'lint: the manifests have different values of rust-version:\n%s\n' "$versions" >&2; exit 1; }
cargo fmt --all --check
(cd lab/sim-cli && cargo fmt --all --check)
(cd prove && cargo fmt --all --check)
# shellcheck disable=SC2086
"$clang_format" --dry-run --Werror $c_files
cargo clippy --release --workspace --features boringssl,png --all-targets -- -D warnings
# `--all-targets` leaves out tests with `test = false`.
cargo clippy --release --workspace --features boringssl,png --test servers -- -D warnings
scripts/null-crypto.sh clippy --all-targets -- -D warnings
# Without logs and without a crypto provider, as programs that bring their own provider use the
# crates.
cargo clippy --release -p equic-transport -p equic-quic --no-default-features --lib -- -D warnings
# With the crypto provider ring only. The suite `beside:ring` in scripts/test.sh runs this build.
cargo clippy --release -p equic-transport -p equic-quic --no-default-features --features \
	equic-transport/ring,equic-quic/ring --lib -- -D warnings
# The two commands as `make demo` builds them, without benchmarks and experiments.
cargo clippy --release -p equic-cli -p equic-lab-cli --no-default-features -- -D warnings
(cd lab/sim-cli && cargo clippy --release --locked --features png --all-targets -- -D warnings)
(cd prove && cargo clippy --release --locked --all-targets -- -D warnings)
# libequic_vm is left out, because its documentation is its header. Its page would also replace that
# of the crate equic-vm, which has the same name.
RUSTDOCFLAGS='-D warnings' cargo doc --release --workspace --features boringssl,png --exclude libequic_vm --lib --no-deps
# Crates for publication must be packable: all their dependencies need versions, and their
# readme must exist.
published=$(grep -L '^publish = false' crates/*/Cargo.toml lab/*/Cargo.toml | xargs sed -n 's/^name = "\(equic-[a-z-]*\)"$/-p \1/p')
# shellcheck disable=SC2086
cargo package $published --no-verify --allow-dirty --locked --quiet
scripts/deny.sh
for script in scripts/*.sh lab/peers/*/*/*.sh packaging/*.sh packaging/debian/p* .ci/run; do
	sh -n "$script" 2>/dev/null || bash -n "$script"
done
over=$(git ls-files '*.rs' '*.c' '*.h' '*.go' '*.py' | xargs wc -l | awk '$2 != "total" && $1 > 1000 { print $2 " has " $1 " lines: split it by what it does" }')
[ -z "$over" ] || { echo "$over" >&2; exit 1; }
# Markers of bad style in comments, pages and messages (docs/style.md).
(cd scripts && python3 -B -m unittest -q test_prefixes_of test_prose test_compliance)
scripts/prose.py
# Fails if a sentence of an RFC has lost or gained a citation (docs/compliance/README.md).
python3 -B scripts/compliance.py
# Checks the links of all pages, and the number of words of the product documentation. `make book`
# builds the pages.
scripts/book.py pages
scripts/book.py words
echo "lint: clean"
