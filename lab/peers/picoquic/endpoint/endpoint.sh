#!/bin/sh
# picoquic's demo program as an endpoint of `equic-lab interop`. This script converts the
# environment of the contract to its arguments.
# Usage: endpoint.sh PICOQUICDEMO
set -eu

demo=$1
case $TESTCASE in
handshake | transfer) set -- ;;
# The client's second path uses another port of the same address.
multipath) set -- -M ;;
*) exit 127 ;;
esac
# With -8, picoquicdemo writes the key log to SSLKEYLOGFILE.
if [ "$ROLE" = server ]; then
	exec "$demo" "$@" -8 -p "$PORT" -c "$CERTS/cert.pem" -k "$CERTS/priv.key" -w "$WWW"
fi
[ "$TESTCASE" != multipath ] || set -- "$@" -A 0.0.0.0/0
files=
for url in $REQUESTS; do
	rest=${url#https://}
	server=${rest%%/*}
	files="$files/${rest#*/};"
done
exec "$demo" "$@" -8 -a hq-interop -n localhost -t "$CERTS/ca.pem" -o "$DOWNLOADS" "${server%:*}" "${server##*:}" "$files"
