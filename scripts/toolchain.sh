#!/bin/sh
# Prints the name of an installed toolchain that is exactly the rust-version of Cargo.toml, for RUSTUP_TOOLCHAIN:
# checks run on the oldest Rust that the project says it builds with, so that what it says is true. It prints
# an empty line if the `cargo` of this folder is that anyway, and installs nothing.
set -eu
cd "$(dirname "$0")/.."

wanted=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
[ -n "$wanted" ] || { echo "toolchain: Cargo.toml has no rust-version" >&2; exit 1; }

# Whether a toolchain is that version, and has what the checks call; a toolchain's name, or nothing for the usual one.
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
echo "toolchain: this runs on Rust $wanted exactly, the oldest that Cargo.toml allows, with clippy and rustfmt;" >&2
echo "toolchain: installed is $(rustc --version 2>/dev/null || echo none). Beside it, and without changing it:" >&2
echo "toolchain:     rustup toolchain install $wanted --profile minimal --component clippy,rustfmt" >&2
exit 1
