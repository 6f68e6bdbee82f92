#!/bin/bash
# Makes out/equic_VERSION_ARCH.deb of what is built: `make install` into a folder, stripped and
# described. Usage: packaging/deb.sh   (PROFILE, CARGO_TARGET_DIR and COMMAND, the file that becomes /usr/bin/equic, as for
# make; EQUIC_DEB_COMPRESSION from 0, fast, to 9, small)
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
architecture=$(dpkg --print-architecture)
libdir=/usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
maintainer=${EQUIC_MAINTAINER:-eQUIC authors <equic@users.noreply.github.com>}
# The same tree gives the same package.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
make --no-print-directory --silent install DESTDIR="$root" PREFIX=/usr LIBDIR="$libdir" \
	ZSHDIR=/usr/share/zsh/vendor-completions PROFILE="${PROFILE:-release}" >/dev/null

strip --remove-section=.comment "$root"/usr/bin/*
strip --strip-unneeded --remove-section=.comment "$root$libdir/libequic.so.$version"
strip --strip-debug --enable-deterministic-archives "$root$libdir/libequic.a"
gzip -9n "$root"/usr/share/man/man1/*.1 "$root/usr/share/doc/equic/CHANGELOG.md"

install -D -m 644 packaging/debian/lintian-overrides "$root/usr/share/lintian/overrides/equic"

# Debian's copyright file says what the licences' files do.
doc=$root/usr/share/doc/equic
rm "$doc"/LICENSE*
cp packaging/copyright "$doc/copyright"
cat >"$work/changelog" <<END
equic ($version) unstable; urgency=medium

  * What changed: CHANGELOG.md.gz beside this file.

 -- $maintainer  $(date -uRd "@$SOURCE_DATE_EPOCH")
END
gzip -9nc "$work/changelog" >"$doc/changelog.gz"

# Which packages its libraries are in.
mkdir "$work/debian"
printf 'Source: equic\nPackage: equic\nArchitecture: any\n' >"$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O root/usr/bin/* "root$libdir/libequic.so.$version" 2>"$work/shlibdeps.log" |
	sed -n 's/^shlibs:Depends=//p') || true
[ -n "$depends" ] || { cat "$work/shlibdeps.log" >&2; echo "deb: which libraries does it need?" >&2; exit 1; }

control=$root/DEBIAN
mkdir "$control"
cat >"$control/control" <<END
Package: equic
Version: $version
Architecture: $architecture
Maintainer: $maintainer
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f 1)
Depends: $depends
Suggests: clang (>= 1:16), libelf-dev, zlib1g-dev
Section: net
Priority: optional
Homepage: https://github.com/equic/equic
Description: XDP gateway for QUIC servers
 eQUIC drops abusive traffic to QUIC servers in the kernel, before the network
 stack sees it: quotas of simultaneous connections, rates of new connections,
 packets and bytes, lists with expiry, bans.
 .
 This package has the command equic with its simulator equic-sim, the C
 library libequic with its header, plugins for QUIC connections in C with the
 header that they are compiled with (by clang, with equic plugin build), man
 pages, and the service equic-gateway, which is not enabled before /etc/equic/equic.toml names an interface and you
 enable it.
END
echo /etc/equic/equic.toml >"$control/conffiles"
soname=$(readelf -d "$root$libdir/libequic.so" | sed -n 's/.*(SONAME).*\[libequic\.so\.\(.*\)\]$/\1/p')
echo "libequic $soname equic (>= $version)" >"$control/shlibs"
echo "activate-noawait ldconfig" >"$control/triggers"
install -m 755 packaging/debian/postinst packaging/debian/prerm packaging/debian/postrm "$control/"
(cd "$root" && find . -type f ! -path './DEBIAN/*' ! -path './etc/*' -printf '%P\0' | sort -z |
	xargs -0 md5sum) >"$control/md5sums"

mkdir -p out
package=out/equic_${version}_$architecture.deb
dpkg-deb -z"${EQUIC_DEB_COMPRESSION:-6}" --build --root-owner-group "$root" "$package" >/dev/null
echo "$package"
