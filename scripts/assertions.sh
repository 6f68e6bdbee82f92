#!/bin/bash
# Fails if a program or library that the suites share was compiled without overflow checks. The
# script looks for a message that exists only in code with these checks. Do not pass archives: they
# always contain the message, because they contain Rust's own library.
# Usage: scripts/assertions.sh [FILE ...]
#   FILE  default: the programs and shared libraries that `make build` builds
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# = 0 ]; then
	built=${CARGO_TARGET_DIR:-target}/release
	set -- "$built"/{equic,equic-lab,equic-sim,libequic.so,libequic_vm.so}
fi
for file in "$@"; do
	grep -q 'attempt to add with overflow' "$file" || {
		echo "assertions: $file was compiled without overflow checks" >&2
		exit 1
	}
done
