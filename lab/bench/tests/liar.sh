#!/bin/bash
# A misbehaving implementation. Usage: liar.sh HOW server|client ARGUMENTS
# It writes its files into the folder of the attempt, which it finds next to the certificate in its
# arguments.
how=$1 role=$2
while [ $# -gt 1 ]; do
	case $1 in
	--ca | --cert) folder=$(dirname "$2") ;;
	--rcvbuf | --gso | --congestion) echo "told $1 $2" >&2 ;;
	--download) bytes=$2 ;;
	--hold) connections=$2 ;;
	esac
	shift
done
echo $$ >"$folder/$role.pid"

answer() { # BYTES COUNT [SECONDS]
	local begun=${EPOCHREALTIME/[.,]/}
	# Sends these bytes through the kernel, because the runner compares them with the kernel's
	# counters.
	for ((sent = 0; sent < $1; sent += 60000)); do
		# Each dd sends one datagram. No process listens on the port, so a second datagram from the same
		# socket would be refused.
		dd if=/dev/zero bs=60000 count=1 status=none >/dev/udp/127.0.0.1/9
	done
	# Sending many bytes takes longer than the default of 10 ms, and the runner would notice the
	# difference.
	if [ $# -lt 3 ] && [ "$1" -gt 1000000 ]; then
		local took=$((${EPOCHREALTIME/[.,]/} - begun))
		set -- "$1" "$2" "$(printf '%d.%06d' $((took / 1000000)) $((took % 1000000)))"
	fi
	say "$@"
}

say() {
	sleep 0.02
	echo "{\"bytes\":$1,\"count\":$2,\"seconds\":${3:-0.01},\"handshake_seconds\":0.01,\"unknown\":1," \
		'"effective":{"implementation":"liar 1","io":"native","receive_buffer":1,"send_buffer":1,' \
		'"stream_window":1,"connection_window":1,"congestion":"cubic","cipher":null,' \
		'"max_payload":1452,"gso":true,"gro":false}}'
}

# Uses a fixed amount of CPU time, which does not depend on the load of the machine.
compute() { # TURNS
	for ((i = 0; i < $1; i++)); do :; done
}

forever() { while :; do sleep 60; done; }

[ "$how" = elaborate ] && compute 100000

if [ "$role" = server ]; then
	case $how in
	unsupported-server) exit 127 ;;
	never-ready) echo "in a minute" && forever ;;
	esac
	echo "ready 127.0.0.1:9"
	echo 'effective {"implementation":"liar 1","io":"native","receive_buffer":7,"send_buffer":1,'\
'"stream_window":1,"connection_window":1,"congestion":"cubic","cipher":null,'\
'"max_payload":1452,"gso":true,"gro":false}'
	case $how in
	learns)
		# Reports the settings that a server knows only after its first connection.
		for payload in 1200 1440; do
			echo "effective {\"implementation\":\"liar 1\",\"io\":\"native\",\"max_payload\":$payload,\"cipher\":null}"
		done
		echo "effective it is not"
		;;
	deaf) trap '' TERM ;;
	restless) while :; do :; done ;;
	dying-server)
		until [ -e "$folder/client.pid" ]; do sleep 0.01; done
		echo "out of electricity" >&2
		exit 3
		;;
	holds)
		# Allocates ten million bytes for the connections. The memory cannot be shared with other
		# processes.
		until [ -e "$folder/client.pid" ]; do sleep 0.01; done
		memory=$(head -c 10000000 /dev/zero | tr '\0' x)
		echo "${#memory}" >"$folder/grown"
		;;
	esac
	forever
fi

case $how in
honest | deaf | restless | elaborate | learns) answer "$bytes" 1 ;;
# These clients report less time than their work took: `hastens` by a second, `computes` less than
# its CPU time.
hastens)
	[ "$bytes" = 1 ] || sleep 1
	answer "$bytes" 1
	;;
computes)
	[ "$bytes" = 1 ] || compute 400000
	answer "$bytes" 1
	;;
# This client fails if it must fetch one byte.
clumsy)
	[ "$bytes" = 1 ] && exit 1
	answer "$bytes" 1
	;;
# This client reports handshakes that did not happen.
counts)
	sleep 0.5
	say 8000000000000 1000000000000 0.5
	;;
# This client reports bytes that were never received.
boasts) say "$bytes" 1 ;;
# This client reports more time than its process lived.
dawdles) answer "$bytes" 1 5 ;;
corrupts)
	echo "corrupted at byte 7 of stream 0" >&2
	exit 3
	;;
leaves)
	sleep 300 &
	echo $! >"$folder/child.pid"
	answer "$bytes" 1
	;;
unplugs)
	echo "this wants a cipher I do not have" >&2
	exit 127
	;;
late)
	# Prints the answer after the client has ended, as can happen on a busy machine.
	{ sleep 1 && answer "$bytes" 1; } &
	sleep 0.1
	;;
truncates) answer $((bytes - 1)) 1 ;;
garbage) echo "a million bytes, really" ;;
silent) ;;
endless) yes ;;
crashes) kill -SEGV $$ ;;
fails)
	answer "$bytes" 1
	echo "it was a lie" >&2
	exit 1
	;;
unsupported) exit 127 ;;
shouts)
	# The output contains control sequences that would clear the screen, reverse the line and ring the
	# bell.
	printf '\033[2J\342\200\256all is well\a\n' >&2
	exit 1
	;;
hangs)
	# This child process would outlive the program that started it.
	sleep 300 &
	echo $! >"$folder/child.pid"
	forever
	;;
holds)
	until [ -s "$folder/grown" ]; do sleep 0.01; done
	echo held
	cat >/dev/null
	answer 0 "$connections"
	;;
*) forever ;;
esac
