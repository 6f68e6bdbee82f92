#!/bin/sh
# Stands in for tests that need a tool which is not installed: skipped, or failed where CI is set.
case ${CI:-} in
'' | 0 | false) echo "SKIPPED $1: it is not installed" ;;
*)
	echo "FAILED $1: it is not installed, and with CI set nothing may be skipped"
	exit 1
	;;
esac
