// golang.org/x/net/quic for `equic-lab bench` (docs/bench-contract.md). It keeps its own defaults,
// except for the settings that are the same for all stacks. It supports only NewReno, and sends
// datagrams of 1,200 bytes, one per system call. Its HTTP/3 package cannot be imported, and its
// server issues no session tickets.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"sync"

	"golang.org/x/net/quic"

	contract "github.com/equic/equic/lab/peers/go-contract"
)

// The only UDP payload size that it sends (smallestMaxDatagramSize), because it does not discover
// larger ones.
const payload = 1200

func main() { contract.Main(stack{}, contract.Perf) }

type stack struct{}

func config(o *contract.Options, settings *tls.Config) *quic.Config {
	switch {
	case o.Congestion != "" && o.Congestion != "newreno":
		contract.Unsupported(o.Congestion)
	case o.MTU != 0 && o.MTU != payload:
		contract.Unsupported("this payload size")
	case o.GSO == "on":
		contract.Unsupported("segmentation offload")
	case o.Qlog != "":
		contract.Unsupported("qlog")
	}
	return &quic.Config{
		TLSConfig:               settings,
		MaxBidiRemoteStreams:    contract.Streams,
		MaxUniRemoteStreams:     contract.Streams,
		MaxStreamReadBufferSize: contract.StreamWindow,
		MaxConnReadBufferSize:   contract.ConnectionWindow,
		// Limit on bytes that are sent but not yet acknowledged. The default of 1 MiB would limit the
		// goodput.
		MaxStreamWriteBufferSize: contract.StreamWindow,
		MaxIdleTimeout:           contract.Idle,
	}
}

func effective() *contract.Effective {
	size, no := payload, false
	return &contract.Effective{
		Implementation: contract.Implementation("x/net/quic", "golang.org/x/net"),
		IO:             "native", StreamWindow: contract.StreamWindow,
		ConnectionWindow: contract.ConnectionWindow, Congestion: "newreno",
		MaxPayload: &size, GSO: &no, GRO: &no, Crypto: "go",
	}
}

func (stack) Serve(o *contract.Options) error {
	pair, err := tls.LoadX509KeyPair(o.Cert, o.Key)
	if err != nil {
		return err
	}
	keys, err := o.KeylogWriter()
	if err != nil {
		return err
	}
	settings := config(o, &tls.Config{
		MinVersion:   tls.VersionTLS13,
		NextProtos:   []string{contract.Perf},
		Certificates: []tls.Certificate{pair},
		KeyLogWriter: keys,
	})
	socket, err := o.Listen()
	if err != nil {
		return err
	}
	endpoint, err := quic.NewEndpoint(socket, settings)
	if err != nil {
		return err
	}
	in := effective()
	if err := contract.SetBuffers(socket, o, in); err != nil {
		return err
	}
	if err := contract.Ready(socket.LocalAddr(), in); err != nil {
		return err
	}
	for {
		connection, err := endpoint.Accept(context.Background())
		if err != nil {
			return err
		}
		o.Negotiated(tls.CipherSuiteName(connection.ConnectionState().CipherSuite))
		go contract.ServeStreams(func() (contract.Stream, error) {
			opened, err := connection.AcceptStream(context.Background())
			return stream{opened}, err
		})
	}
}

type client struct {
	*contract.Options
	endpoint *quic.Endpoint
	config   *quic.Config
	in       *contract.Effective
	once     sync.Once
}

func (stack) Client(o *contract.Options) (contract.Client, error) {
	if o.Resume {
		contract.Unsupported("session tickets")
	}
	authority, err := os.ReadFile(o.CA)
	if err != nil {
		return nil, err
	}
	keys, err := o.KeylogWriter()
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	settings := config(o, &tls.Config{
		MinVersion:   tls.VersionTLS13,
		NextProtos:   []string{contract.Perf},
		RootCAs:      roots,
		ServerName:   o.Name,
		KeyLogWriter: keys,
	})
	socket, _, err := o.Connect()
	if err != nil {
		return nil, err
	}
	endpoint, err := quic.NewEndpoint(socket, nil)
	if err != nil {
		return nil, err
	}
	c := &client{Options: o, endpoint: endpoint, config: settings, in: effective()}
	return c, contract.SetBuffers(socket, o, c.in)
}

func (c *client) Dial(int) (contract.Conn, error) {
	dialled, err := c.endpoint.Dial(context.Background(), "udp", c.Address, c.config)
	if err != nil {
		return nil, err
	}
	c.once.Do(func() {
		name := tls.CipherSuiteName(dialled.ConnectionState().CipherSuite)
		c.Negotiated(name)
		c.in.Cipher = &name
	})
	return &conn{dialled}, nil
}

func (c *client) Effective() *contract.Effective { return c.in }

func (c *client) Close() {
	// Does not wait for peers that do not answer.
	over, cancel := context.WithCancel(context.Background())
	cancel()
	_ = c.endpoint.Close(over)
}

type conn struct{ *quic.Conn }

func (c *conn) Open() (contract.Stream, error) {
	opened, err := c.NewStream(context.Background())
	return stream{opened}, err
}

func (c *conn) Close(code uint64) { c.Abort(&quic.ApplicationError{Code: code}) }

func (c *conn) IsOpen() bool {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	err := c.Wait(over)
	return err == context.Canceled
}

func (c *conn) IsResumed() bool { return c.ConnectionState().DidResume }

type stream struct{ *quic.Stream }

func (s stream) CloseWrite() error {
	// Also flushes data that is not sent yet.
	s.Stream.CloseWrite()
	return nil
}
