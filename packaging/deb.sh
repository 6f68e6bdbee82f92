#!/bin/bash
# Makes out/equic_VERSION_ARCH.deb and out/equic-lab_VERSION_ARCH.deb from the built files. Installs
# each package into its own folder with `make install` and `make install-lab`, strips it, adds its
# control files, and prints the path of the package.
# Usage: packaging/deb.sh
# Variables, as for make:
#   PROFILE, CARGO_TARGET_DIR  where the built files are
#   COMMAND, LAB_COMMAND       files to install as /usr/bin/equic and /usr/bin/equic-lab
#   EQUIC_DEB_COMPRESSION      from 0 (fast) to 9 (small)
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
architecture=$(dpkg --print-architecture)
libdir=/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
maintainer=${EQUIC_MAINTAINER:-eQUIC authors <equic@users.noreply.github.com>}
# The same tree always gives the same package.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# install_into TARGET PACKAGE: runs `make TARGET`, which installs into the package's folder.
install_into() {
	make --no-print-directory --silent "$1" DESTDIR="$work/$2" PREFIX=/usr LIBDIR="$libdir" \
		ZSHDIR=/usr/share/zsh/vendor-completions PROFILE="${PROFILE:-release}" >/dev/null
	strip --remove-section=.comment "$work/$2"/usr/bin/*
	gzip -9n "$work/$2"/usr/share/man/man1/*.1
}

# document PACKAGE: adds the changelog, and replaces the licence files by Debian's copyright file.
document() {
	local doc=$work/$1/usr/share/doc/$1
	mkdir -p "$doc"
	rm -f "$doc"/LICENSE*
	cp packaging/copyright "$doc/copyright"
	cat >"$work/changelog" <<-END
	$1 ($version) unstable; urgency=medium

	  * What changed: CHANGELOG.md.gz in /usr/share/doc/equic.

	 -- $maintainer  $(date -uRd "@$SOURCE_DATE_EPOCH")
	END
	gzip -9nc "$work/changelog" >"$doc/changelog.gz"
}

# depends PACKAGE FILE...: prints the Debian packages with the libraries that these files need.
depends() {
	local package=$1 found
	shift
	mkdir -p "$work/debian"
	printf 'Source: equic\nPackage: %s\nArchitecture: any\n' "$package" >"$work/debian/control"
	found=$(cd "$work" && dpkg-shlibdeps -O "$@" 2>"$work/shlibdeps.log" | sed -n 's/^shlibs:Depends=//p') || true
	[ -n "$found" ] || { cat "$work/shlibdeps.log" >&2; echo "deb: cannot find the packages of the libraries that it needs (log above)" >&2; exit 1; }
	echo "$found"
}

# build PACKAGE: builds the package. Reads more fields of its control file from standard input.
build() {
	local root=$work/$1 package=out/$1_${version}_$architecture.deb
	mkdir -p "$root/DEBIAN"
	{
		cat <<-END
		Package: $1
		Version: $version
		Architecture: $architecture
		Maintainer: $maintainer
		Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f 1)
		Section: net
		Priority: optional
		Homepage: https://github.com/equic/equic
		END
		cat
	} >"$root/DEBIAN/control"
	(cd "$root" && find . -type f ! -path './DEBIAN/*' ! -path './etc/*' -printf '%P\0' | sort -z |
		xargs -0 md5sum) >"$root/DEBIAN/md5sums"
	mkdir -p out
	dpkg-deb -z"${EQUIC_DEB_COMPRESSION:-6}" --build --root-owner-group "$root" "$package" >/dev/null
	echo "$package"
}

install_into install equic
root=$work/equic
strip --strip-unneeded --remove-section=.comment "$root$libdir/libequic.so.$version"
strip --strip-debug --enable-deterministic-archives "$root$libdir/libequic.a"
gzip -9n "$root/usr/share/doc/equic/CHANGELOG.md"
install -D -m 644 packaging/debian/lintian-overrides "$root/usr/share/lintian/overrides/equic"
document equic
mkdir "$root/DEBIAN"
echo /etc/equic/equic.toml >"$root/DEBIAN/conffiles"
soname=$(readelf -d "$root$libdir/libequic.so" | sed -n 's/.*(SONAME).*\[libequic\.so\.\(.*\)\]$/\1/p')
echo "libequic $soname equic (>= $version)" >"$root/DEBIAN/shlibs"
echo "activate-noawait ldconfig" >"$root/DEBIAN/triggers"
install -m 755 packaging/debian/postinst packaging/debian/prerm packaging/debian/postrm "$root/DEBIAN/"
libraries=$(depends equic "$root"/usr/bin/* "$root$libdir/libequic.so.$version")
build equic <<END
Depends: $libraries
Suggests: equic-lab, clang (>= 1:16), libelf-dev, python3, zlib1g-dev
Description: XDP gateway for QUIC servers
 eQUIC drops abusive traffic to QUIC servers in the kernel, before the network
 stack sees it: quotas of simultaneous connections, rates of new connections,
 packets and bytes, lists with expiry, bans.
 .
 This package has the command equic, the C library libequic with its header,
 plugins for QUIC connections in C with the header that they are compiled with
 (by clang, with equic plugin build), man pages, and the service equic-gateway,
 which is not enabled before /etc/equic/equic.toml names an interface and you
 enable it.
END

install_into install-lab equic-lab
document equic-lab
libraries=$(depends equic-lab "$work"/equic-lab/usr/bin/*)
build equic-lab <<END
Depends: equic (= $version), $libraries
Suggests: clang (>= 1:16), iproute2
Description: demo, benchmarks and simulator for eQUIC
 The laboratory of eQUIC: attacks on a server in network namespaces, with and
 without the gateway; benchmarks and interoperability tests of QUIC
 implementations; the experiments of four papers; networks and QUIC connections
 in virtual time.
 .
 This package has the commands equic-lab and equic-sim, and their man pages.
END
