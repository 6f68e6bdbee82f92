# Functions for Debian's kernels in virtual machines. scripts/kernels.sh, scripts/bench-netem.sh and
# lab/sim-cli/oracle/linux.sh source this file in the top folder of the tree. The caller must define
# `fail` and `root`, the folder that becomes the initramfs. Kernels are kept in target/kernels.
cache=target/kernels
# Modules of each kernel that are kept.
modules=(veth sch_netem sch_tbf tcp_bbr)

# Prints the name and version of the package with the kernel image that a meta-package currently
# depends on.
image_of() {
	local image depends="apt-cache depends --important $1"
	# The package lists may be missing on a machine that already has all packages, so they may have to
	# be updated.
	$depends >/dev/null 2>&1 || apt-get update -qq >&2
	image=$($depends | sed -n 's/^ *Depends: \(linux-image-[^ ]*\)$/\1/p' | head -n 1)
	[ -n "$image" ] || fail "Debian has no package $1: run 'apt-get update'"
	echo "$image"
}

# Downloads and unpacks a kernel, once. Prints the folder with vmlinuz and the modules.
kernel_of() {
	local image folder unpacked module path
	image=$(image_of "$1")
	folder=$cache/$image
	if [ ! -e "$folder/complete" ] || [ "$(cat "$folder/complete")" != "${modules[*]}" ]; then
		rm -rf "$folder"
		mkdir -p "$folder"
		unpacked=$(mktemp -d "$cache/unpack.XXXXXX")
		(cd "$unpacked" && apt-get -qq -o APT::Sandbox::User=root download "$image" >&2 && dpkg-deb -x ./*.deb .) ||
			fail "cannot download $image"
		cp "$unpacked"/boot/vmlinuz-* "$folder/vmlinuz"
		for module in "${modules[@]}"; do
			path=$(find "$unpacked/lib/modules" -name "$module.ko*")
			# Debian compresses modules from Linux 6.6 on.
			case "$path" in
			*.ko) cp "$path" "$folder/$module.ko" ;;
			*.ko.xz) xz -dc "$path" >"$folder/$module.ko" ;;
			*) fail "$image has no module $module" ;;
			esac
		done
		rm -rf "$unpacked"
		echo "${modules[*]}" >"$folder/complete"
	fi
	echo "$folder"
}

# Copies a program and the libraries that it is linked with into the initramfs.
with_libraries() {
	local library
	install -D -m 755 "$1" "$2"
	{ ldd "$1" 2>/dev/null || true; } | grep -o '/[^ ]*' | while read -r library; do
		[ -e "$root$library" ] || install -D "$library" "$root$library"
	done
}
