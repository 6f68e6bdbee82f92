import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.DatagramSocket;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketException;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import tech.kwik.agent15.TlsConstants;
import tech.kwik.core.KwikVersion;
import tech.kwik.core.QuicClientConnection;
import tech.kwik.core.QuicConnection;
import tech.kwik.core.QuicStream;
import tech.kwik.core.log.NullLogger;
import tech.kwik.core.server.ApplicationProtocolConnection;
import tech.kwik.core.server.ApplicationProtocolConnectionFactory;
import tech.kwik.core.server.ServerConnectionConfig;
import tech.kwik.core.server.ServerConnector;

/**
 * kwik for `equic-lab bench` (docs/bench-contract.md). It is pure Java, sends one datagram per system
 * call, and supports only NewReno. Java cannot set socket buffers above net.core.rmem_max. Session
 * tickets are not measured.
 */
public final class Bench {
    private static final int STREAM_WINDOW = 16 << 20;
    private static final int CONNECTION_WINDOW = 32 << 20;
    private static final int STREAMS = 1024;
    private static final int BUFFER = 4 << 20;
    private static final int IDLE_SECONDS = 600;
    private static final int HEAD = 8;

    private final Options options;
    private final ExecutorService workers = Executors.newCachedThreadPool();
    private volatile String effective = "";

    private Bench(Options options) {
        this.options = options;
    }

    public static void main(String[] words) throws Exception {
        Options options = new Options(words);
        Bench bench = new Bench(options);
        if (options.serves) {
            bench.serve();
        } else {
            System.out.println(bench.work());
            System.out.flush();
            Runtime.getRuntime().halt(0);
        }
    }

    /** Sets a socket's buffers, and records the settings in force. */
    private DatagramSocket prepare(DatagramSocket socket) throws SocketException {
        socket.setReceiveBufferSize((int) options.number("rcvbuf", BUFFER));
        socket.setSendBufferSize((int) options.number("sndbuf", BUFFER));
        // Java returns half of the size that the kernel reports.
        int receive = 2 * socket.getReceiveBufferSize();
        int send = 2 * socket.getSendBufferSize();
        String cipher = options.serves ? "null" : "\"" + options.suite() + "\"";
        effective =
                "{\"implementation\":\"kwik " + KwikVersion.getVersion() + "\",\"io\":\"native\""
                        + ",\"receive_buffer\":" + receive + ",\"send_buffer\":" + send
                        + ",\"stream_window\":" + STREAM_WINDOW
                        + ",\"connection_window\":" + (options.serves ? "" + CONNECTION_WINDOW : "null")
                        + ",\"congestion\":\"newreno\",\"cipher\":" + cipher
                        + ",\"max_payload\":null,\"gso\":false,\"gro\":false,\"crypto\":\"java\"}";
        return socket;
    }

    private void serve() throws Exception {
        String[] at = Options.split(options.get("listen"));
        InetSocketAddress address = new InetSocketAddress(at[0], Integer.parseInt(at[1]));
        DatagramSocket socket = prepare(new DatagramSocket(address));
        ServerConnectionConfig config =
                ServerConnectionConfig.builder()
                        .maxIdleTimeoutInSeconds(IDLE_SECONDS)
                        .maxConnectionBufferSize(CONNECTION_WINDOW)
                        .maxBidirectionalStreamBufferSize(STREAM_WINDOW)
                        .maxUnidirectionalStreamBufferSize(STREAM_WINDOW)
                        .maxOpenPeerInitiatedBidirectionalStreams(STREAMS)
                        .maxOpenPeerInitiatedUnidirectionalStreams(STREAMS)
                        .build();
        ServerConnector connector =
                ServerConnector.builder()
                        .withSocket(socket)
                        .withKeyStore(identity(), "server", new char[0], "secp256r1")
                        .withConfiguration(config)
                        .withLogger(new NullLogger())
                        .build();
        connector.registerApplicationProtocol("perf", new Perf());
        connector.start();
        String host = at[0].contains(":") ? "[" + at[0] + "]" : at[0];
        System.out.println("ready " + host + ":" + socket.getLocalPort());
        System.out.println("effective " + effective);
        System.out.flush();
        Thread.currentThread().join();
    }

    /** Returns the certificate and its key. kwik itself can only read RSA keys from files. */
    private KeyStore identity() throws Exception {
        Certificate[] chain;
        try (InputStream cert = new FileInputStream(options.get("cert"))) {
            chain =
                    CertificateFactory.getInstance("X.509")
                            .generateCertificates(cert)
                            .toArray(new Certificate[0]);
        }
        String pem = Files.readString(Path.of(options.get("key")));
        byte[] key = Base64.getMimeDecoder().decode(pem.replaceAll("-----[A-Z ]+-----", ""));
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        store.setKeyEntry(
                "server",
                KeyFactory.getInstance("EC").generatePrivate(new PKCS8EncodedKeySpec(key)),
                new char[0],
                chain);
        return store;
    }

    private final class Perf implements ApplicationProtocolConnectionFactory {
        @Override
        public ApplicationProtocolConnection createConnection(String protocol, QuicConnection connection) {
            return new ApplicationProtocolConnection() {
                @Override
                public void acceptPeerInitiatedStream(QuicStream stream) {
                    workers.submit(() -> answer(stream));
                }
            };
        }

        @Override
        public int maxConcurrentPeerInitiatedBidirectionalStreams() {
            return STREAMS;
        }
    }

    private static void answer(QuicStream stream) {
        try {
            byte[] head = stream.getInputStream().readNBytes(HEAD);
            long payload = Pattern.drain(stream.getInputStream());
            long wanted = ByteBuffer.wrap(head).getLong();
            int first = (int) Math.min(wanted, HEAD);
            OutputStream to = stream.getOutputStream();
            to.write(ByteBuffer.allocate(HEAD).putLong(payload).array(), 0, first);
            Pattern.write(to, wanted - first);
            to.close();
        } catch (IOException | RuntimeException error) {
            System.err.println(error);
        }
    }

    private QuicClientConnection connect() throws Exception {
        String[] at = Options.split(options.get("connect"));
        KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
        trusted.load(null, null);
        try (InputStream ca = new FileInputStream(options.get("ca"))) {
            trusted.setCertificateEntry(
                    "ca", CertificateFactory.getInstance("X.509").generateCertificate(ca));
        }
        QuicClientConnection.Builder builder =
                QuicClientConnection.newBuilder()
                        // The URI has the name in the certificate. The packets go to the address below.
                        .uri(new URI("perf://" + options.get("name") + ":" + at[1]))
                        .proxy(at[0])
                        .applicationProtocol("perf")
                        .customTrustStore(trusted)
                        .cipherSuite(TlsConstants.CipherSuite.valueOf(options.suite()))
                        .maxIdleTimeout(Duration.ofSeconds(IDLE_SECONDS))
                        .defaultStreamReceiveBufferSize((long) STREAM_WINDOW)
                        .maxOpenPeerInitiatedBidirectionalStreams(STREAMS)
                        .maxOpenPeerInitiatedUnidirectionalStreams(STREAMS)
                        .socketFactory((InetAddress server) -> prepare(new DatagramSocket()))
                        .logger(new NullLogger());
        if (options.has("keylog")) {
            builder.secrets(Path.of(options.get("keylog")));
        }
        QuicClientConnection connection = builder.build();
        connection.connect();
        return connection;
    }

    /** Opens a stream and requests this number of bytes on it. */
    private static QuicStream ask(QuicClientConnection connection, long wanted) throws IOException {
        QuicStream stream = connection.createStream(true);
        OutputStream to = stream.getOutputStream();
        to.write(ByteBuffer.allocate(HEAD).putLong(wanted).array());
        to.close();
        return stream;
    }

    private static long fetch(QuicClientConnection connection, long wanted) throws IOException {
        InputStream from = ask(connection, wanted).getInputStream();
        int first = from.readNBytes((int) Math.min(wanted, HEAD)).length;
        return first + Pattern.check(from);
    }

    private static long share(long total, long count, long index) {
        return total / count + (index == 0 ? total % count : 0);
    }

    private static double since(long start) {
        return (System.nanoTime() - start) / 1e9;
    }

    private String work() throws Exception {
        if (options.has("download")) {
            return download(options.number("download", 0));
        } else if (options.has("upload")) {
            return upload(options.number("upload", 0));
        } else if (options.has("handshakes")) {
            return handshakes(Double.parseDouble(options.get("handshakes")));
        } else if (options.has("ttfb")) {
            return firstByte(Double.parseDouble(options.get("ttfb")));
        }
        throw new IllegalArgumentException("expected one of --download, --upload, --handshakes, --ttfb");
    }

    private String answer(long bytes, long count, double seconds, String more) {
        return "{\"bytes\":" + bytes + ",\"count\":" + count + ",\"seconds\":" + seconds + more
                + ",\"effective\":" + effective + "}";
    }

    private static long sum(List<Future<Long>> parts) throws Exception {
        long total = 0;
        for (Future<Long> part : parts) {
            total += part.get();
        }
        return total;
    }

    private String download(long bytes) throws Exception {
        long streams = options.number("streams", 1);
        long wide = options.number("connections", 1);
        long start = System.nanoTime();
        List<QuicClientConnection> connections = new ArrayList<>();
        for (long at = 0; at < wide; at++) {
            connections.add(connect());
        }
        String handshake = wide == 1 ? ",\"handshake_seconds\":" + since(start) : "";
        start = System.nanoTime();
        List<Future<Long>> parts = new ArrayList<>();
        for (int at = 0; at < wide; at++) {
            for (long stream = 0; stream < streams; stream++) {
                QuicClientConnection connection = connections.get(at);
                long wanted = share(share(bytes, wide, at), streams, stream);
                parts.add(workers.submit(() -> fetch(connection, wanted)));
            }
        }
        long got = sum(parts);
        double seconds = since(start);
        connections.forEach(QuicConnection::close);
        return answer(got, parts.size(), seconds, handshake);
    }

    private String upload(long bytes) throws Exception {
        long start = System.nanoTime();
        QuicClientConnection connection = connect();
        String handshake = ",\"handshake_seconds\":" + since(start);
        start = System.nanoTime();
        QuicStream stream = connection.createStream(true);
        OutputStream to = stream.getOutputStream();
        to.write(ByteBuffer.allocate(HEAD).putLong(HEAD).array());
        Pattern.write(to, bytes);
        to.close();
        long arrived = ByteBuffer.wrap(stream.getInputStream().readAllBytes()).getLong();
        double seconds = since(start);
        connection.close();
        return answer(arrived, 1, seconds, handshake);
    }

    private String handshakes(double limit) throws Exception {
        Callable<Long> one =
                () -> {
                    QuicClientConnection connection = connect();
                    long bytes = fetch(connection, HEAD);
                    connection.close();
                    return bytes;
                };
        one.call();
        long start = System.nanoTime();
        List<Future<Long>> parts = new ArrayList<>();
        for (long worker = 0; worker < options.number("parallel", 1); worker++) {
            Callable<Long> many =
                    () -> {
                        long bytes = 0;
                        while (since(start) < limit) {
                            bytes += one.call();
                        }
                        return bytes;
                    };
            parts.add(workers.submit(many));
        }
        long bytes = sum(parts);
        return answer(bytes, bytes / HEAD, since(start), ",\"resumed\":0");
    }

    private String firstByte(double limit) throws Exception {
        List<Double> times = new ArrayList<>();
        // The first connection is made before the clock starts.
        long start = 0;
        for (boolean warm = false; !warm || since(start) < limit; warm = true) {
            long begun = System.nanoTime();
            QuicClientConnection connection = connect();
            if (ask(connection, 1).getInputStream().read() < 0) {
                throw new IOException("the stream ended without a byte");
            }
            if (warm) {
                times.add(since(begun));
            } else {
                start = System.nanoTime();
            }
            connection.close();
        }
        double seconds = since(start);
        times.sort(null);
        // Nearest rank, rounded up.
        double median = times.get((int) Math.ceil((times.size() - 1) * 0.5));
        double p95 = times.get((int) Math.ceil((times.size() - 1) * 0.95));
        String first = ",\"first_byte_seconds\":{\"median\":" + median + ",\"p95\":" + p95 + "}";
        return answer(times.size(), times.size(), seconds, first);
    }
}
