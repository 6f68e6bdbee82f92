#!/bin/bash
# Fails if what the suites share was compiled without overflow checks. Code with them, and nothing else, has the message that is
# looked for; an archive has it anyway, since Rust's own library lies in it.
# Usage: scripts/assertions.sh [FILE ...]     by default what `make build` builds
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
