#!/bin/sh
# With the plugin reno, the example must print the windows that follow from RFC 9002 s.7 for ten
# round trips. Usage: example.sh CONGESTION RENO.o EXPECTED
said=$("$1" "$2" on_acked on_event) || { echo "FAILED example: it ended with $?"; exit 1; }
if [ "$said" = "$(cat "$3")" ]; then
	echo "ok example"
else
	echo "FAILED example: it said"
	echo "$said"
	exit 1
fi
