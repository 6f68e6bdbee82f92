#!/bin/sh
# Installs into a new folder, and builds the listing against it with only pkg-config.
# Usage: install.sh FOLDER
set -u
folder=$1
compiler=${EQUIC_TEST_CC:-cc}
cd "$(dirname "$0")/../.." || exit 1
rm -rf "$folder"
log=$folder.log

check() {
	name=$1
	shift
	if "$@" >"$log" 2>&1; then
		echo "ok install.$name"
	else
		echo "FAILED install.$name: $*"
		cat "$log"
	fi
}

compile() {
	# shellcheck disable=SC2046 # flags are words
	"$compiler" -std=c11 -Wall -Wextra -Werror -Wno-unused-parameter "$@"
}

shared() {
	# shellcheck disable=SC2046
	compile examples/c/paper.c $(pkg-config --cflags --libs equic) -o "$folder/paper"
}

# A program that links only the static library must find all symbols in it.
static() {
	# shellcheck disable=SC2046
	compile examples/c/quota.c $(pkg-config --cflags equic) "$folder/lib/libequic.a" \
		$(pkg-config --static --libs-only-l equic | sed 's/-lequic//g') -o "$folder/quota" &&
		! readelf -d "$folder/quota" | grep libequic
}

complete() {
	for file in lib/libequic.so lib/libequic.a lib/equic_kern.o lib/pkgconfig/equic.pc include/equic.h include/equic_proof.h; do
		test -s "$folder/$file" || { echo "no $file"; return 1; }
	done
	pkg-config --exists 'equic >= 0.1'
}

# An installed program must not refer to the build folder.
no_build_paths() {
	! readelf -d "$folder/lib/libequic.so" | grep -E 'RPATH|RUNPATH'
}

check install make --no-print-directory install PREFIX="$folder" DESTDIR=
export PKG_CONFIG_PATH="$folder/lib/pkgconfig"
check complete complete
check shared shared
check static static
check no_build_paths no_build_paths
# Generate the pkg-config file in the build folder again, without this test's PREFIX.
make --no-print-directory pc >/dev/null
