#!/bin/bash
# Runs `make bench-guard`: compares this tree with an earlier commit. Each tree is measured against
# itself, interleaved in one run. The verdict compares pairs of rounds.
# Usage: scripts/bench-guard.sh COMMIT [options of `equic-lab bench run`]
#   COMMIT  if it is empty, the last tag
# Exit status: 0 if nothing is worse, 1 if something is worse or could not be measured.
set -euo pipefail
cd "$(dirname "$0")/.."

base=${1:-$(git describe --tags --abbrev=0 2>/dev/null || true)}
[ $# = 0 ] || shift
if [ -z "$base" ]; then
	echo "bench-guard: the repository has no tag; name a commit to compare with: make bench-guard BASE=COMMIT" >&2
	exit 2
fi
if ! commit=$(git rev-parse --verify --quiet "$base^{commit}"); then
	echo "bench-guard: there is no commit $base" >&2
	exit 2
fi
guard=$PWD/out/guard
old=$guard/equic-$commit
mkdir -p "$guard"

# Prints the options that select the features of packages. Older trees enable BoringSSL and PNG by
# default, and do not have these features.
features() { [ ! -d lab/cli ] || echo '--features boringssl,png'; }

if [ ! -x "$old" ]; then
	echo "building $base"
	tree=$guard/tree-$commit
	trap 'git worktree remove --force "$tree" 2>/dev/null || true' EXIT
	git worktree add --quiet --force --detach "$tree" "$commit"
	# Older commits have a single command, `equic`, for everything.
	package=equic-lab-cli program=equic-lab
	[ -d "$tree/lab/cli" ] || package=equic-cli program=equic
	(cd "$tree" && CARGO_TARGET_DIR=$guard/target cargo build --quiet --release --locked $(features) -p "$package")
	cp "$guard/target/release/$program" "$old"
	git worktree remove --force "$tree"
	trap - EXIT
fi
echo "building this tree"
# shellcheck disable=SC2046 # words
cargo build --quiet --release --locked $(features) -p equic-lab-cli
# The measured program is copied, so that a build cannot replace it meanwhile.
cp target/release/equic-lab "$guard/equic-tree"

cat >"$guard/implementations.json" <<END
{
  "base": { "url": "https://github.com/equic/equic", "tier": 1, "io": "native",
    "command": ["$old", "bench", "endpoint"], "speaks": ["perf", "h3"] },
  "tree": { "url": "https://github.com/equic/equic", "tier": 1, "io": "native",
    "command": ["$guard/equic-tree", "bench", "endpoint"], "speaks": ["perf", "h3"] }
}
END
out=$guard/$(date +%Y%m%d-%H%M%S)
"$guard/equic-tree" bench run --implementations-file "$guard/implementations.json" --impl base,tree --self \
	--workload download,streams,upload,handshakes,resumed,requests,idle --out "$out" "$@"
"$guard/equic-tree" bench compare "$out" "$out" --rename base=tree
