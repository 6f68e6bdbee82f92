#!/bin/sh
# Prints the name of an installed toolchain whose version is exactly the rust-version of Cargo.toml,
# for RUSTUP_TOOLCHAIN. So the checks run with the oldest Rust version that the project claims to
# support. If the `cargo` of this folder already has that version, prints an empty line. Installs
# nothing.
set -eu
cd "$(dirname "$0")/.."

wanted=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
[ -n "$wanted" ] || { echo "toolchain: Cargo.toml has no rust-version" >&2; exit 1; }

# suits NAME: succeeds if a toolchain has that version, and the components that the checks call. An
# empty NAME means the default toolchain.
suits() {
	case "$(rustc ${1:++"$1"} --version 2>/dev/null)" in
	"rustc $wanted."*) cargo ${1:++"$1"} clippy --version >/dev/null 2>&1 && cargo ${1:++"$1"} fmt --version >/dev/null 2>&1 ;;
	*) return 1 ;;
	esac
}

if suits ''; then
	echo "${RUSTUP_TOOLCHAIN:-}"
	exit 0
fi
for name in $(rustup toolchain list --quiet 2>/dev/null); do
	if suits "$name"; then
		echo "$name"
		exit 0
	fi
done
echo "toolchain: the checks need exactly Rust $wanted, the oldest that Cargo.toml allows, with clippy and rustfmt." >&2
echo "toolchain: Installed: $(rustc --version 2>/dev/null || echo none). This adds the toolchain without changing it:" >&2
echo "toolchain:     rustup toolchain install $wanted --profile minimal --component clippy,rustfmt" >&2
exit 1
