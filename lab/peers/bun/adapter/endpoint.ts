// bun's HTTP/3 server (lsquic on BoringSSL) for `equic-lab bench` (docs/bench-contract.md). Bun.serve
// has no options for QUIC, and reports none of its settings. This is not a client: a client must verify
// the server, but bun's fetch over HTTP/3 accepts neither our certificate authority nor another server
// name than that of the URL.
import { readFileSync, writeSync } from "node:fs";

const UNSUPPORTED = 127;
const SMALL_BODY = 1024;
// Period of the pattern, in bytes.
const PERIOD = 65521;
// Size of a chunk of a response, in bytes. It is a multiple of the period, so that each chunk begins
// with the pattern.
const CHUNK = 16 * PERIOD;

const pattern = Buffer.alloc(CHUNK + PERIOD);
for (let at = 0, state = 1; at < pattern.length; at++) {
  if (at < PERIOD) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    pattern[at] = state >>> 24;
  } else {
    pattern[at] = pattern[at - PERIOD];
  }
}

function unsupported(what: string): never {
  writeSync(2, `unsupported: ${what}\n`);
  process.exit(UNSUPPORTED);
}

const [role, ...words] = process.argv.slice(2);
const options = new Map<string, string>();
for (let at = 0; at < words.length; at += 2) {
  options.set(words[at], words[at + 1]);
}
if (role !== "server") unsupported("the role of a client");
for (const word of options.keys()) {
  if (!["--listen", "--cert", "--key"].includes(word)) unsupported(word);
}

function option(name: string): string {
  const value = options.get(name);
  if (value === undefined) throw new Error(name);
  return value;
}

function effective() {
  return {
    implementation: `bun ${Bun.version}`,
    io: "native",
    receive_buffer: null,
    send_buffer: null,
    stream_window: null,
    connection_window: null,
    congestion: null,
    cipher: null,
    max_payload: null,
    gso: null,
    gro: null,
    crypto: "boringssl",
  };
}

/** Returns the number of bytes that a path requests, or undefined if the path is unknown. */
function size(path: string): number | undefined {
  if (path === "/1k") return SMALL_BODY;
  return /^\/\d+$/.test(path) ? Number(path.slice(1)) : undefined;
}

/** Returns a response body of this number of bytes of the pattern. */
function body(wanted: number): Uint8Array | ReadableStream {
  if (wanted <= CHUNK) return pattern.subarray(0, wanted);
  let sent = 0;
  return new ReadableStream({
    type: "bytes",
    pull(to) {
      const count = Math.min(CHUNK, wanted - sent);
      sent += count;
      to.enqueue(new Uint8Array(pattern.subarray(0, count)));
      if (sent === wanted) to.close();
    },
  });
}

const [, host, port] = /^(.*):(\d+)$/.exec(option("--listen"))!;
const server = Bun.serve({
  hostname: host.replace(/^\[|\]$/g, ""),
  port: Number(port),
  tls: { cert: readFileSync(option("--cert")), key: readFileSync(option("--key")) },
  http3: true,
  http1: false,
  idleTimeout: 255,
  fetch(request) {
    const wanted = size(new URL(request.url).pathname);
    if (wanted === undefined) return new Response(null, { status: 404 });
    return new Response(body(wanted));
  },
});
writeSync(1, `ready ${host}:${server.port}\neffective ${JSON.stringify(effective())}\n`);
