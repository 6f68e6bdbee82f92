import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Parses the command line of docs/bench-contract.md. */
final class Options {
    static final int UNSUPPORTED = 127;
    static final int CORRUPTED = 3;
    private static final List<String> KNOWN =
            List.of(
                    "listen", "connect", "cert", "key", "name", "ca", "protocol", "keylog", "rcvbuf", "sndbuf",
                    "gso", "congestion", "cipher", "download", "upload", "handshakes", "ttfb", "streams",
                    "connections", "parallel");

    final boolean serves;
    private final Map<String, String> values = new HashMap<>();

    Options(String[] words) {
        if (words.length == 0 || !List.of("server", "client").contains(words[0])) {
            throw new IllegalArgumentException("the first argument must be server or client");
        }
        serves = words[0].equals("server");
        for (int at = 1; at < words.length; at += 2) {
            String name = words[at].replaceFirst("^--", "");
            if (!KNOWN.contains(name)) {
                unsupported(words[at]);
            }
            if (at + 1 == words.length) {
                throw new IllegalArgumentException(words[at] + " needs a value");
            }
            values.put(name, words[at + 1]);
        }
        if (!get("protocol", "perf").equals("perf")) {
            unsupported("this protocol");
        }
        if (!get("congestion", "newreno").equals("newreno")) {
            unsupported("a congestion control other than newreno");
        }
        if (get("gso", "off").equals("on")) {
            unsupported("segmentation offload");
        }
        if (!List.of("aes128", "chacha20").contains(cipher()) || (serves && has("cipher"))) {
            unsupported("this cipher suite");
        }
    }

    static void unsupported(String what) {
        System.err.println("unsupported: " + what);
        System.err.flush();
        Runtime.getRuntime().halt(UNSUPPORTED);
    }

    boolean has(String name) {
        return values.containsKey(name);
    }

    String get(String name, String otherwise) {
        return values.getOrDefault(name, otherwise);
    }

    String get(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException("--" + name);
        }
        return value;
    }

    long number(String name, long otherwise) {
        return has(name) ? Long.parseLong(get(name)) : otherwise;
    }

    String cipher() {
        return get("cipher", "aes128");
    }

    String suite() {
        return cipher().equals("aes128") ? "TLS_AES_128_GCM_SHA256" : "TLS_CHACHA20_POLY1305_SHA256";
    }

    /** Returns the host and the port of an address. */
    static String[] split(String address) {
        int colon = address.lastIndexOf(':');
        String host = address.substring(0, colon).replaceAll("[\\[\\]]", "");
        return new String[] {host, address.substring(colon + 1)};
    }
}
