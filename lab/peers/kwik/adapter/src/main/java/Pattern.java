import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.util.Arrays;

/** Sends the pattern, and compares received bytes with it. */
final class Pattern {
    static final int CHUNK = 64 << 10;
    /** Period of the pattern, in bytes. */
    private static final int PERIOD = 65521;
    /** Size of a compared block. In each 64 KiB, one block is compared, at a rotating position. */
    private static final int BLOCK = 4096;
    private static final byte[] BYTES = make();

    private Pattern() {}

    private static byte[] make() {
        byte[] bytes = new byte[PERIOD + CHUNK];
        int state = 1;
        for (int at = 0; at < bytes.length; at++) {
            if (at < PERIOD) {
                state = state * 1664525 + 1013904223;
                bytes[at] = (byte) (state >>> 24);
            } else {
                bytes[at] = bytes[at - PERIOD];
            }
        }
        return bytes;
    }

    static void write(OutputStream to, long count) throws IOException {
        for (long at = 0; at < count; ) {
            int part = (int) Math.min(CHUNK, count - at);
            to.write(BYTES, (int) (at % PERIOD), part);
            at += part;
        }
    }

    /** Reads to the end of the stream and compares the bytes. Returns their number. */
    static long check(InputStream from) throws IOException {
        byte[] buffer = new byte[CHUNK];
        long at = 0;
        for (int count; (count = from.read(buffer)) >= 0; ) {
            for (int place = 0; place < count; ) {
                long block = at / BLOCK;
                int part = (int) Math.min(BLOCK - at % BLOCK, count - place);
                int start = (int) (at % PERIOD);
                if (block / 16 % 16 == block % 16
                        && !Arrays.equals(buffer, place, place + part, BYTES, start, start + part)) {
                    System.err.println("corrupted: not what was sent, at byte " + at);
                    System.err.flush();
                    Runtime.getRuntime().halt(Options.CORRUPTED);
                }
                place += part;
                at += part;
            }
        }
        return at;
    }

    /** Reads to the end of the stream. Returns the number of bytes. */
    static long drain(InputStream from) throws IOException {
        byte[] buffer = new byte[CHUNK];
        long total = 0;
        for (int count; (count = from.read(buffer)) >= 0; total += count) {}
        return total;
    }
}
