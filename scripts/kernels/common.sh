# Debian's kernels, for what runs in virtual machines: sourced by scripts/kernels.sh and sim/oracle/linux.sh, from the
# tree's root. `fail` and `root`, the folder that becomes the initramfs, are theirs. Kernels are kept in target/kernels.
cache=target/kernels
# Modules that are kept of each kernel.
modules=(veth sch_netem sch_tbf tcp_bbr)

# The package with the image, as the meta-package says today: prints its name and version.
image_of() {
	local image depends="apt-cache depends --important $1"
	# On a machine that has all packages nobody may have asked what Debian has.
	$depends >/dev/null 2>&1 || apt-get update -qq >&2
	image=$($depends | sed -n 's/^ *Depends: \(linux-image-[^ ]*\)$/\1/p' | head -n 1)
	[ -n "$image" ] || fail "Debian has no package $1: run 'apt-get update'"
	echo "$image"
}

# Downloads and unpacks a kernel once: prints the folder with vmlinuz and the modules.
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
			# From 6.6 on Debian's modules are compressed.
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

# Copies a program and the libraries it is linked to into the initramfs.
with_libraries() {
	local library
	install -D -m 755 "$1" "$2"
	{ ldd "$1" 2>/dev/null || true; } | grep -o '/[^ ]*' | while read -r library; do
		[ -e "$root$library" ] || install -D "$library" "$root$library"
	done
}
