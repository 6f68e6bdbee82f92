#!/bin/bash
# Tests the installation: the files of `make install` and `make uninstall`, a C program built
# against them, the Debian packages, the systemd unit and its restrictions. Needs a build, and root
# for the packages and the restrictions.
# Usage: scripts/packaging.sh
#   PROFILE=debug  tests the build in target/debug instead of target/release
set -euo pipefail
cd "$(dirname "$0")/.."
export PROFILE=${PROFILE:-release}
# These tests check where files go, not how they are compiled. So they may use the build with
# assertions, which `make test` has made for all suites.
export EQUIC_ASSERTIONS=1

# Highest exposure of the service that is allowed, in tenths, as `systemd-analyze security` computes
# it.
most_exposed=25

work=$(mktemp -d)
namespace=equic-packaging-$$
clean() {
	[ ! -e "$work/pid" ] || kill "$(cat "$work/pid")" 2>/dev/null || true
	ip netns delete "$namespace" 2>/dev/null || true
	rm -rf "$work"
}
trap clean EXIT
trap 'exit 1' INT TERM

ok() { echo "ok packaging.$1"; }
fail() {
	echo "FAILED packaging.$1: $2" >&2
	exit 1
}
quiet_make() { make --no-print-directory --silent "$@" >"$work/make.log" 2>&1 || { cat "$work/make.log"; return 1; }; }

# Packages for x86-64 protect packets with BoringSSL.
is_our_version() { # PROGRAM
	local libraries=AWS-LC
	[ "$(uname -m)" != x86_64 ] || libraries="AWS-LC, packets: BoringSSL"
	grep -qxF "$1 $version ($libraries)"
}

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)

installs_what_it_says() {
	(umask 077 && quiet_make install DESTDIR="$work/tree") || fail install "make install"
	[ -z "$(find "$work/tree" ! -perm -o=r)" ] || fail install "with umask 077, other users cannot read $(find "$work/tree" ! -perm -o=r)"
	(cd "$work/tree" && find . ! -type d -printf '%P\n' | grep -v -e '/man1/' -e '^usr/local/share/doc/' | LC_ALL=C sort) >"$work/files"
	local so=${version%.*}
	[ "${version%%.*}" = 0 ] || so=${version%%.*}
	local built=${CARGO_TARGET_DIR:-target}/$PROFILE plugin
	{
		# equic-prove is installed only if it was built.
		[ ! -e "$built/equic-prove" ] || echo usr/local/bin/equic-prove
		for plugin in plugins/*/plugin.toml; do
			plugin=$(basename "$(dirname "$plugin")")
			echo "usr/local/share/equic/plugins/$plugin/$plugin.c"
			echo "usr/local/share/equic/plugins/$plugin/plugin.toml"
		done
		cat <<-END
		etc/equic/equic.toml
		usr/local/bin/equic
		usr/local/include/equic.h
		usr/local/include/equic_proof.h
		usr/local/lib/equic_kern.o
		usr/local/lib/libequic.a
		usr/local/lib/libequic.so
		usr/local/lib/libequic.so.$so
		usr/local/lib/libequic.so.$version
		usr/local/lib/pkgconfig/equic.pc
		usr/local/lib/systemd/system/equic-gateway.service
		usr/local/share/bash-completion/completions/equic
		usr/local/share/equic/prefixes-of
		usr/local/share/fish/vendor_completions.d/equic.fish
		usr/local/share/zsh/site-functions/_equic
		usr/local/include/equic_operations.h
		usr/local/include/equic_plugin.h
		END
	} | LC_ALL=C sort >"$work/wanted"
	diff "$work/wanted" "$work/files" || fail install "the installed files differ from the expected ones (<)"
	for file in man/man1/equic.1 man/man1/equic-gateway-run.1 doc/equic/equic.example.toml doc/equic/guide.md; do
		test -s "$work/tree/usr/local/share/$file" || fail install "$file is missing"
	done
	"$work/tree/usr/local/bin/equic" --version | is_our_version equic || fail install "--version"
	ok install
}

# Installs the laboratory in addition to the product. It must have its own files, and must not
# change any file of the product.
installs_the_laboratory() {
	local bin=$work/tree/usr/local/bin man=$work/tree/usr/local/share/man/man1 code=0
	(cd "$work/tree" && find . ! -type d | LC_ALL=C sort) >"$work/before"
	(cd "$work/tree" && find . -type f -exec sha256sum {} +) >"$work/sums"
	! "$bin/equic" demo 2>"$work/moved" || fail lab "equic demo"
	grep -q 'now `equic-lab demo`, in the Debian package equic-lab' "$work/moved" || { cat "$work/moved"; fail lab "the message does not name the package"; }
	quiet_make install-lab DESTDIR="$work/tree" || fail lab "make install-lab"
	(cd "$work/tree" && sha256sum --quiet --check "$work/sums") || fail lab "files of the product have changed"
	(cd "$work/tree" && find . ! -type d -printf '%P\n' | LC_ALL=C sort | comm -13 <(sed 's|^\./||' "$work/before") - |
		grep -v '/man1/equic-lab') >"$work/files"
	cat >"$work/wanted" <<-END
		usr/local/bin/equic-lab
		usr/local/bin/equic-sim
		usr/local/share/bash-completion/completions/equic-lab
		usr/local/share/fish/vendor_completions.d/equic-lab.fish
		usr/local/share/zsh/site-functions/_equic-lab
	END
	diff "$work/wanted" "$work/files" || fail lab "the installed files differ from the expected ones (<)"
	[ -s "$man/equic-lab.1" ] && [ -s "$man/equic-lab-bench-run.1" ] || fail lab "man pages are missing"
	"$bin/equic-lab" --version | is_our_version equic-lab || fail lab "--version"
	"$bin/equic-lab" sim run simple --seeds 1 --json | grep -q '"equic.sim.run/1"' || fail lab "equic-lab sim"
	"$bin/equic" demo 2>"$work/moved" || code=$?
	[ "$code $(cat "$work/moved")" = '2 equic: this command is now `equic-lab demo`' ] || { cat "$work/moved"; fail lab "wrong message for the old name of the command"; }
	quiet_make uninstall-lab DESTDIR="$work/tree" || fail lab "make uninstall-lab"
	(cd "$work/tree" && find . ! -type d | LC_ALL=C sort) | diff "$work/before" - || fail lab "make uninstall-lab"
	ok lab
}

# `make install` must refuse a build with assertions.
ships_no_assertions() {
	local built=${CARGO_TARGET_DIR:-target}/$PROFILE
	if scripts/assertions.sh "$built/equic" 2>/dev/null; then
		! make --no-print-directory install DESTDIR="$work/refused" EQUIC_ASSERTIONS= >"$work/make.log" 2>&1 ||
			fail assertions "make install accepts a build with assertions"
		grep -q "run 'make build' first" "$work/make.log" || { cat "$work/make.log"; fail assertions "wrong error message"; }
		[ ! -e "$work/refused" ] || fail assertions "make install has installed files of a refused build"
	fi
	ok assertions
}

# Builds plugins with the installed command and files, and with clang. Nothing of this tree is used.
builds_plugins() {
	local equic=$work/tree/usr/local/bin/equic share=$work/tree/usr/local/share/equic/plugins
	(cd / && "$equic" plugin new "$work/seldom" && "$equic" plugin build "$work/seldom" &&
		"$equic" plugin check "$work/seldom/seldom.qplug") >"$work/plugin" 2>&1 ||
		{ cat "$work/plugin"; fail plugins "plugin new, build or check"; }
	grep -q "would run as a local plugin" "$work/plugin" || { cat "$work/plugin"; fail plugins "output of plugin check"; }
	if [ -e "$work/tree/usr/local/bin/equic-prove" ]; then
		grep -q 'proved to stay within its memory' "$work/plugin" || { cat "$work/plugin"; fail plugins "plugin check has no proof"; }
	fi
	for plugin in "$share"/*; do
		(cd / && "$equic" plugin build "$plugin" -o "$work/one.qplug") >"$work/plugin" 2>&1 ||
			{ cat "$work/plugin"; fail plugins "$(basename "$plugin")"; }
	done
	# The installed header must be sufficient without the command.
	"${CLANG:-$(command -v clang-19 clang | head -n 1)}" -target bpf -O2 -mcpu=v3 -I "$work/tree/usr/local/include" \
		-c "$share/reno/reno.c" -o "$work/reno.o" || fail plugins "compiling with the installed header"
	ok plugins
}

# A program that is built with the flags of pkg-config only must refer to the library by its SONAME,
# and must find it.
builds_a_c_program() {
	cat >"$work/version.c" <<-'END'
		#include <equic.h>
		#include <stdio.h>
		#include <string.h>
		int main(void)
		{
			puts(equic_version());
			return strcmp(equic_version(), EQUIC_VERSION) != 0;
		}
	END
	local tree=$work/tree
	export PKG_CONFIG_PATH=$tree/usr/local/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$tree
	for source in "$work/version.c" crates/capi/examples/c/paper.c crates/capi/examples/c/quota.c; do
		# shellcheck disable=SC2046 # flags are words
		cc -std=c11 -Wall -Werror -Wno-unused-parameter "$source" $(pkg-config --cflags --libs equic) \
			-o "$work/$(basename "$source" .c)" || fail pkg-config "$source"
	done
	unset PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR
	readelf -d "$work/version" | grep -q 'NEEDED.*\[libequic\.so\.[0-9]' || fail soname "NEEDED has no version of the library"
	[ "$(LD_LIBRARY_PATH=$tree/usr/local/lib "$work/version")" = "$version" ] || fail pkg-config "the program does not run"
	ok c_program
}

uninstalls_all() {
	echo "# mine" >>"$work/tree/etc/equic/equic.toml"
	quiet_make install DESTDIR="$work/tree"
	grep -qx '# mine' "$work/tree/etc/equic/equic.toml" || fail install "make install overwrites the configuration"
	quiet_make install-lab DESTDIR="$work/tree"
	local foreign=$work/tree/usr/local/share/doc/equic/foreign
	echo "not from this package" >"$foreign"
	quiet_make uninstall DESTDIR="$work/tree"
	[ -s "$foreign" ] || fail uninstall "make uninstall removes files that it has not installed"
	rm "$foreign"
	[ -x "$work/tree/usr/local/bin/equic-lab" ] && [ -s "$work/tree/usr/local/share/man/man1/equic-lab-demo.1" ] ||
		fail uninstall "make uninstall removes the laboratory"
	quiet_make uninstall-lab DESTDIR="$work/tree"
	rmdir "$work/tree/usr/local/share/doc/equic" || fail uninstall "make uninstall leaves files of the documentation"
	[ "$(find "$work/tree" ! -type d)" = "$work/tree/etc/equic/equic.toml" ] ||
		fail uninstall "make uninstall leaves $(find "$work/tree" ! -type d)"
	ok uninstall
}

makes_packages() {
	EQUIC_DEB_COMPRESSION=0 packaging/deb.sh >"$work/debs" || fail deb "packaging/deb.sh"
	{ read -r deb; read -r lab_deb; } <"$work/debs"
	[ "$(dpkg-deb -f "$deb" Version)" = "$version" ] || fail deb "wrong version"
	dpkg-deb -f "$deb" Depends | grep -q 'libelf1' || fail deb "wrong dependencies"
	dpkg-deb -c "$deb" >"$work/contents"
	grep -q ' root/root .* ./usr/bin/equic$' "$work/contents" || fail deb "/usr/bin/equic is missing or does not belong to root"
	dpkg-deb -f "$lab_deb" Depends | grep -q "^equic (= $version), " || fail deb "wrong dependencies of the laboratory"
	dpkg-deb -c "$lab_deb" >"$work/lab-contents"
	grep -q ' root/root .* ./usr/bin/equic-lab$' "$work/lab-contents" || fail deb "/usr/bin/equic-lab is missing or does not belong to root"
	# Both packages can be installed together, because no file is in both.
	local both
	both=$(cat "$work/contents" "$work/lab-contents" | sed -n 's/^[^d].* \(\.\/[^ ]*\).*/\1/p' | LC_ALL=C sort | uniq -d)
	[ -z "$both" ] || fail deb "these files are in both packages: $both"
	for package in "$deb" "$lab_deb"; do
		lintian --fail-on error "$package" >"$work/lintian" 2>&1 ||
			{ cat "$work/lintian"; fail deb "lintian $package"; }
	done
	ok deb
}

# Installs the packages into an empty system of their own. Then changes the configuration, upgrades,
# removes and purges.
package_lives_and_goes() {
	local root=$work/system
	mkdir -p "$root"/var/lib/dpkg/{info,updates,triggers} "$root/etc"
	touch "$root"/var/lib/dpkg/{status,available}
	dpkg() {
		command dpkg --root="$root" --force-depends --force-script-chrootless --force-confold "$@" >"$work/dpkg" 2>&1 ||
			{ cat "$work/dpkg"; fail dpkg "$*"; }
	}
	dpkg --install "$deb"
	"$root/usr/bin/equic" --version | is_our_version equic || fail dpkg "--version"
	[ ! -e "$root/etc/systemd/system/multi-user.target.wants" ] || fail dpkg "the service is enabled"
	dpkg --install "$lab_deb"
	"$root/usr/bin/equic-lab" --version | is_our_version equic-lab || fail dpkg "equic-lab --version"
	dpkg --remove equic-lab
	[ ! -e "$root/usr/bin/equic-lab" ] && [ -x "$root/usr/bin/equic" ] || fail dpkg "removing equic-lab"
	echo "# mine" >>"$root/etc/equic/equic.toml"
	dpkg --install "$deb"
	dpkg --remove equic
	grep -qx '# mine' "$root/etc/equic/equic.toml" || fail dpkg "the configuration was not kept"
	[ ! -e "$root/usr/bin/equic" ] || fail dpkg "the command was not removed"
	dpkg --purge equic
	[ ! -e "$root/etc/equic" ] || fail dpkg "the configuration was not purged"
	unset -f dpkg
	ok dpkg
}

unit_is_good() {
	dpkg-deb -x "$deb" "$work/unpacked"
	local equic=$work/unpacked/usr/bin/equic
	# systemd takes the name of the unit from the name of the file.
	unit=$work/equic-gateway.service
	sed "s|^\(Exec[A-Za-z]*\)=/usr/bin/equic|\1=$equic|" "$work"/unpacked/usr/lib/systemd/system/equic-gateway.service >"$unit"
	! grep -q '@[A-Z]*@' "$unit" || fail unit "a placeholder was not replaced"
	systemd-analyze verify --man=no "$unit" >"$work/verify" 2>&1 || true
	# Messages about other units of the machine do not matter.
	! grep equic "$work/verify" || fail unit "systemd-analyze verify"
	# Starting or reloading the service must wait until the configuration is in force. There must be no
	# limit on restarts.
	[ "$(setting Type)" = "notify " ] || fail unit "Type is not notify"
	sed -n '/^\[Unit\]/,/^\[Service\]/p' "$unit" | grep -qx 'StartLimitIntervalSec=0' || fail unit "the number of starts is limited"
	[ "$(setting RestartForceExitStatus)" = "SIGHUP " ] || fail unit "the service is not restarted after SIGHUP"
	systemd-analyze security --offline=true --no-pager --threshold="$most_exposed" "$unit" >"$work/security" 2>&1 ||
		{ cat "$work/security"; fail unit "the exposure is higher than $most_exposed tenths"; }
	[ "$(setting LimitCORE)" = "0 " ] || fail unit "core dumps are enabled and would contain keys"
	echo "ok packaging.unit ($(tail -n 1 "$work/security" | sed 's/[^ -~]*//g; s/^ *//; s/ *$//'))"

	# The packaged configuration lacks only an interface, and the error must say so.
	local code=0
	"$equic" gateway run --config "$work/unpacked/etc/equic/equic.toml" >"$work/run" 2>&1 || code=$?
	[ "$code" = 2 ] && grep -q interface "$work/run" || { cat "$work/run"; fail unit "wrong error for the packaged configuration"; }
	ok configuration
}

# Prints the values of a setting in all lines of the unit.
setting() { sed -n "s/^$1=//p" "$unit" | tr '\n' ' '; }

# Prints the names of the system calls in an argument of SystemCallFilter=, which can have names and
# sets.
calls_of() {
	local one
	for one in "$@"; do
		case $one in
		@*)
			local members
			members=$(systemd-analyze syscall-filter --no-pager "$one" | sed -n 's/^ \+\([@a-z0-9_-]\+\)$/\1/p')
			# shellcheck disable=SC2086 # a list of words
			calls_of $members
			;;
		*) echo "$one" ;;
		esac
	done
}

# Runs the service's command as systemd would start it, as far as this is possible without systemd.
# The kernel enforces the capabilities, no-new-privileges and the read-only file system. System
# calls and address families are checked afterwards in a trace of the process and all its threads.
works_under_its_restrictions() {
	local equic=$work/unpacked/usr/bin/equic bounding filter refused arguments
	bounding=$(setting CapabilityBoundingSet | tr 'A-Z' 'a-z' | sed 's/cap_/+/g; s/ \+$//; s/ /,/g')
	# Enables everything that the packaged configuration offers, in folders of this test.
	sed -e 's/^# interfaces.*/interfaces = ["packaging0"]/' -e 's/^# \(metrics\|pin\|path\|\[gateway\)/\1/' \
		-e "s|/sys/fs/bpf/|$work/bpf/|; s|/run/equic/|$work/sockets/|" packaging/equic.toml >"$work/equic.toml"
	mkdir "$work/bpf" "$work/sockets"
	arguments=$(setting ExecStart | sed "s|^[^ ]* ||; s|/etc/equic/equic.toml|$work/equic.toml|")
	ip netns add "$namespace"
	ip -n "$namespace" link add packaging0 type veth peer name packaging1
	ip -n "$namespace" link set packaging0 up
	: >"$work/err"
	# The pins end with this mount, and the mount ends with the process.
	local begin='mount --make-rprivate / && mount -t bpf -o mode=0700 bpf "$0/bpf" && mount -t tmpfs tmpfs "$0/sockets" &&
		mount -o bind,remount,ro / && echo $$ >&3 && exec "$@" 3>&-'
	# shellcheck disable=SC2086 # arguments are words
	nsenter --net="/run/netns/$namespace" unshare --mount sh -c "$begin" "$work" \
		strace -D -f -qq -o /dev/fd/4 \
		setpriv --bounding-set "-all,$bounding" --inh-caps -all --no-new-privs \
		"$equic" $arguments 3>"$work/pid" 4>"$work/trace" >"$work/out" 2>"$work/err" &
	local job=$! deadline=$((SECONDS + 30))
	until grep -q '"ready"' "$work/err"; do
		[ "$SECONDS" -lt "$deadline" ] && kill -0 "$job" 2>/dev/null || { cat "$work/err" "$work/out"; fail restrictions "the service does not start"; }
		sleep 0.1
	done
	# With `wait`, the gateway attaches only after it has reported that it is ready.
	until nsenter --net="/run/netns/$namespace" "$equic" gateway status --json >"$work/status" &&
		grep -q '"packaging0"' "$work/status"; do
		[ "$SECONDS" -lt "$deadline" ] || { cat "$work/err" "$work/status"; fail restrictions "the gateway is not attached"; }
		sleep 0.1
	done
	grep -q "\"$work/bpf/equic\"" "$work/err" || { cat "$work/err"; fail restrictions "the gateway is not pinned"; }
	[ -S "/proc/$(cat "$work/pid")/root$work/sockets/equic.sock" ] || fail restrictions "the socket is missing"
	kill -HUP "$(cat "$work/pid")"
	until grep -q '"reload"' "$work/err"; do
		[ "$SECONDS" -lt "$deadline" ] || { cat "$work/err"; fail restrictions "the service does not reload"; }
		sleep 0.1
	done
	# Reloads in the same way as systemd, and waits for the result.
	local reload
	reload=$(setting ExecReload | sed "s|^[^ ]*|$equic|; s|[$]MAINPID|$(cat "$work/pid")|")
	# shellcheck disable=SC2086 # a command and its arguments
	nsenter --net="/run/netns/$namespace" $reload >"$work/reload" 2>&1 && grep -q 'is in force' "$work/reload" ||
		{ cat "$work/reload" "$work/err"; fail restrictions "ExecReload: $reload"; }
	kill -TERM "$(cat "$work/pid")"
	wait "$job" || { cat "$work/err"; fail restrictions "the service ends with status $?"; }
	rm "$work/pid"

	filter=$(sed -n 's/^SystemCallFilter=\([^~].*\)/\1/p' "$unit" | tr '\n' ' ')
	# shellcheck disable=SC2046,SC2086 # lists of words
	calls_of $filter | sort -u >"$work/allowed"
	refused=$(sed -n 's/^SystemCallFilter=~//p' "$unit")
	# shellcheck disable=SC2046,SC2086
	calls_of $refused | sort -u >"$work/refused"
	# The trace is used from the last execve of setpriv on.
	sed -n '/execve(.*bin\/equic"/,$p' "$work/trace" >"$work/own"
	sed -n 's/^[0-9]* \+\(<\.\.\. \)\?\([a-z0-9_]\+\)[( ].*/\2/p' "$work/own" | sort -u >"$work/used"
	[ "$(wc -l <"$work/used")" -gt 20 ] && grep -qx bpf "$work/used" || fail restrictions "the trace is incomplete"
	# Signals must be blocked before the first file is opened and the first thread starts. Otherwise, a
	# signal at the start would end the process.
	local blocked first
	blocked=$(grep -n 'rt_sigprocmask(SIG_BLOCK, \[HUP INT TERM\]' "$work/own" | head -n 1 | cut -d: -f1)
	first=$(grep -n -e '/equic\.toml' -e ' clone3\?(' "$work/own" | sed -n '2p' | cut -d: -f1)
	[ -n "$blocked" ] && [ -n "$first" ] && [ "$blocked" -lt "$first" ] || fail restrictions "signals are not blocked at the start"
	local outside
	outside=$( (comm -23 "$work/used" "$work/allowed"; comm -12 "$work/used" "$work/refused") | tr '\n' ' ')
	[ -z "$outside" ] || fail restrictions "SystemCallFilter lacks $outside"
	for family in $(sed -n 's/.*[ (]socket(\(AF_[A-Z0-9]*\).*/\1/p' "$work/own" | sort -u); do
		case " $(setting RestrictAddressFamilies) " in
		*" $family "*) ;;
		*) fail restrictions "RestrictAddressFamilies lacks $family" ;;
		esac
	done
	! grep -E 'm(map|protect)\(.*PROT_WRITE\|PROT_EXEC' "$work/own" || fail restrictions "memory is writable and executable, against MemoryDenyWriteExecute"
	ok restrictions
}

ships_no_assertions
installs_what_it_says
installs_the_laboratory
builds_a_c_program
builds_plugins
uninstalls_all
makes_packages
package_lives_and_goes
unit_is_good
works_under_its_restrictions
