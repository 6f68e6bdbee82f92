// quic-go as an endpoint of the QUIC Interop Runner (see lab/peers/interop-contract for its
// environment).
//
// Go's TLS cannot restrict the cipher suites of TLS 1.3, so the client does not support chacha20.
// quic-go has no compatible version negotiation, so neither role supports v2.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// Exit status of an endpoint that does not support the test case.
const unsupported = 127

var both = []string{"handshake", "transfer", "retry", "resumption", "zerortt", "http3", "multiconnect", "ecn"}

func main() {
	log.SetFlags(log.Ltime | log.Lmicroseconds)
	server := os.Getenv("ROLE") == "server"
	cases := append([]string{"keyupdate", "connectionmigration"}, both...)
	if server {
		cases = append([]string{"chacha20", "versionnegotiation", "connectionmigration"}, both...)
	}
	if !slices.Contains(cases, testcase()) {
		os.Exit(unsupported)
	}
	run := fetch
	if server {
		run = serve
	}
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func testcase() string { return os.Getenv("TESTCASE") }

func folder(name, otherwise string) string {
	if folder := os.Getenv(name); folder != "" {
		return folder
	}
	return otherwise
}

func tlsConfig() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"hq-interop"}}
	if testcase() == "http3" {
		config.NextProtos = []string{http3.NextProtoH3}
	}
	if path := os.Getenv("SSLKEYLOGFILE"); path != "" {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return nil, err
		}
		config.KeyLogWriter = file
	}
	return config, nil
}

func serve() error {
	config, err := tlsConfig()
	if err != nil {
		return err
	}
	certs := folder("CERTS", "/certs")
	pair, err := tls.LoadX509KeyPair(filepath.Join(certs, "cert.pem"), filepath.Join(certs, "priv.key"))
	if err != nil {
		return err
	}
	config.Certificates = []tls.Certificate{pair}
	socket, err := net.ListenPacket("udp", ":"+folder("PORT", "443"))
	if err != nil {
		return err
	}
	transport := &quic.Transport{
		Conn:                socket,
		VerifySourceAddress: func(net.Addr) bool { return testcase() == "retry" },
	}
	listener, err := transport.ListenEarly(config, &quic.Config{
		Allow0RTT: testcase() == "zerortt",
		Versions:  []quic.Version{quic.Version1},
	})
	if err != nil {
		return err
	}
	web := &http3.Server{Handler: files{}}
	for {
		connection, err := listener.Accept(context.Background())
		if err != nil {
			return err
		}
		if testcase() == "http3" {
			go web.ServeQUICConn(connection)
		} else {
			go serveHQ(connection)
		}
	}
}

func serveHQ(connection *quic.Conn) {
	for {
		stream, err := connection.AcceptStream(context.Background())
		if err != nil {
			return
		}
		go func() {
			defer stream.Close()
			request, err := io.ReadAll(io.LimitReader(stream, 4096))
			if err != nil {
				log.Print(err)
				return
			}
			path, found := strings.CutPrefix(strings.TrimSpace(string(request)), "GET /")
			content, err := file(path)
			if !found || err != nil {
				log.Printf("%q: %v", request, err)
				stream.CancelWrite(1)
				return
			}
			if _, err := stream.Write(content); err != nil {
				log.Print(err)
			}
		}()
	}
}

// file reads the requested file below the served folder.
func file(path string) ([]byte, error) {
	root, err := os.OpenRoot(folder("WWW", "/www"))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return root.ReadFile(path)
}

func fetch() error {
	config, err := tlsConfig()
	if err != nil {
		return err
	}
	authority, err := os.ReadFile(filepath.Join(folder("CERTS", "/certs"), "ca.pem"))
	if err != nil {
		return err
	}
	config.RootCAs = x509.NewCertPool()
	config.RootCAs.AppendCertsFromPEM(authority)
	config.ClientSessionCache = tls.NewLRUClientSessionCache(8)
	urls := strings.Fields(os.Getenv("REQUESTS"))
	if len(urls) == 0 {
		return errors.New("REQUESTS is empty")
	}
	host, _, _ := strings.Cut(strings.TrimPrefix(urls[0], "https://"), "/")
	if config.ServerName, _, err = net.SplitHostPort(host); err != nil {
		return err
	}
	client := &client{host: host, tls: config}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	switch testcase() {
	case "http3":
		return fetchHTTP3(ctx, config, urls)
	case "resumption", "zerortt":
		if err := client.fetch(ctx, urls[:1], false); err != nil {
			return err
		}
		return client.fetch(ctx, urls[1:], testcase() == "zerortt")
	case "multiconnect":
		for _, url := range urls {
			if err := client.fetch(ctx, []string{url}, false); err != nil {
				return err
			}
		}
		return nil
	default:
		return client.fetch(ctx, urls, false)
	}
}

type client struct {
	host string
	tls  *tls.Config
}

// fetch opens a connection and fetches all URLs concurrently on it.
func (c *client) fetch(ctx context.Context, urls []string, early bool) error {
	config := &quic.Config{
		Versions:             []quic.Version{quic.Version1},
		HandshakeIdleTimeout: 30 * time.Second,
		// The runner asks for small initial windows, so that a transfer must enlarge them.
		InitialStreamReceiveWindow:     256 << 10,
		InitialConnectionReceiveWindow: 512 << 10,
	}
	address, err := net.ResolveUDPAddr("udp", c.host)
	if err != nil {
		return err
	}
	socket, err := net.ListenUDP("udp", nil)
	if err != nil {
		return err
	}
	// A client needs connection IDs to migrate. quic-go uses them only on an explicit quic.Transport.
	transport := &quic.Transport{Conn: socket}
	defer transport.Close()
	dial := transport.Dial
	if early {
		dial = transport.DialEarly
	}
	connection, err := dial(ctx, address, c.tls, config)
	if err != nil {
		return err
	}
	defer connection.CloseWithError(0, "")
	results := make(chan error, len(urls))
	var moved chan error
	if testcase() == "connectionmigration" {
		moved = make(chan error, 1)
		go func() { moved <- move(ctx, connection) }()
	}
	for _, url := range urls {
		go func() { results <- get(ctx, connection, url) }()
	}
	for range urls {
		if err := <-results; err != nil {
			return err
		}
	}
	if moved != nil {
		return <-moved
	}
	// The session ticket for the next connection arrives with the end of the handshake or after it.
	if early && !connection.ConnectionState().Used0RTT {
		return errors.New("0-RTT was not used")
	}
	return nil
}

// move migrates the connection to another port.
func move(ctx context.Context, connection *quic.Conn) error {
	select {
	case <-connection.HandshakeComplete():
	case <-ctx.Done():
		return ctx.Err()
	}
	socket, err := net.ListenUDP("udp", nil)
	if err != nil {
		return err
	}
	path, err := connection.AddPath(&quic.Transport{Conn: socket})
	if err != nil {
		return err
	}
	if err := path.Probe(ctx); err != nil {
		return fmt.Errorf("cannot validate the new path: %w", err)
	}
	return path.Switch()
}

func get(ctx context.Context, connection *quic.Conn, url string) error {
	_, path, _ := strings.Cut(strings.TrimPrefix(url, "https://"), "/")
	stream, err := connection.OpenStreamSync(ctx)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(stream, "GET /%s\r\n", path); err != nil {
		return err
	}
	if err := stream.Close(); err != nil {
		return err
	}
	return store(path, stream)
}

func store(path string, content io.Reader) error {
	file, err := os.Create(filepath.Join(folder("DOWNLOADS", "/downloads"), filepath.Base(path)))
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(file, content)
	return err
}
