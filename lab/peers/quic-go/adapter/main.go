// quic-go for `equic-lab bench` (docs/bench-contract.md). It keeps its own defaults, except for the
// settings that are the same for all stacks. Its only congestion control is NewReno. The TLS 1.3
// cipher suites of Go cannot be restricted.
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
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/qlog"

	contract "github.com/equic/equic/lab/peers/go-contract"
)

func main() { contract.Main(stack{}, contract.Perf, contract.H3) }

type stack struct{}

func config(o *contract.Options) *quic.Config {
	if o.Congestion != "" && o.Congestion != "newreno" {
		contract.Unsupported(o.Congestion)
	}
	if o.MTU > contract.Payload || (o.MTU != 0 && o.MTU < 1200) {
		contract.Unsupported("this payload size")
	}
	if o.GSO == "off" {
		os.Setenv("QUIC_GO_DISABLE_GSO", "true")
	}
	c := &quic.Config{
		Versions:                       []quic.Version{quic.Version1},
		InitialStreamReceiveWindow:     contract.StreamWindow,
		MaxStreamReceiveWindow:         contract.StreamWindow,
		InitialConnectionReceiveWindow: contract.ConnectionWindow,
		MaxConnectionReceiveWindow:     contract.ConnectionWindow,
		MaxIncomingStreams:             contract.Streams,
		MaxIncomingUniStreams:          contract.Streams,
		MaxIdleTimeout:                 contract.Idle,
	}
	if o.MTU != 0 {
		// quic-go has no setting for the upper bound of path MTU discovery.
		c.InitialPacketSize = uint16(o.MTU)
		c.DisablePathMTUDiscovery = true
	}
	if o.Qlog != "" {
		os.Setenv("QLOGDIR", o.Qlog)
		c.Tracer = qlog.DefaultConnectionTracer
	}
	return c
}

func effective(o *contract.Options) *contract.Effective {
	// quic-go does not report the payload size that path MTU discovery found.
	in := &contract.Effective{
		Implementation: contract.Implementation("quic-go", "github.com/quic-go/quic-go"),
		IO:             "native", StreamWindow: contract.StreamWindow,
		ConnectionWindow: contract.ConnectionWindow, Congestion: "newreno", Crypto: "go",
	}
	if o.MTU != 0 {
		in.MaxPayload = &o.MTU
	}
	no := false
	in.GRO = &no
	return in
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
	settings := config(o)
	conn, err := o.Listen()
	if err != nil {
		return err
	}
	transport := &quic.Transport{Conn: conn}
	listener, err := transport.Listen(&tls.Config{
		MinVersion:   tls.VersionTLS13,
		NextProtos:   []string{contract.Perf, http3.NextProtoH3},
		Certificates: []tls.Certificate{pair},
		KeyLogWriter: keys,
	}, settings)
	if err != nil {
		return err
	}
	in := effective(o)
	if err := contract.SetBuffers(conn, o, in); err != nil {
		return err
	}
	if err := contract.Ready(conn.LocalAddr(), in); err != nil {
		return err
	}
	web := &http3.Server{Handler: http.HandlerFunc(page)}
	for {
		connection, err := listener.Accept(context.Background())
		if err != nil {
			return err
		}
		state := connection.ConnectionState().TLS
		o.Negotiated(tls.CipherSuiteName(state.CipherSuite))
		if state.NegotiatedProtocol == http3.NextProtoH3 {
			go web.ServeQUICConn(connection)
			continue
		}
		go contract.ServeStreams(func() (contract.Stream, error) {
			opened, err := connection.AcceptStream(context.Background())
			return stream{opened}, err
		})
	}
}

// page answers GET /1k and GET /<bytes>.
func page(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/")
	wanted, err := strconv.ParseUint(path, 10, 64)
	if path == "1k" {
		wanted, err = contract.SmallBody, nil
	}
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Length", strconv.FormatUint(wanted, 10))
	if err := contract.WritePattern(w, wanted); err != nil {
		log.Print(err)
	}
}

type client struct {
	*contract.Options
	transport *quic.Transport
	server    net.Addr
	config    *quic.Config
	// TLS configuration of each worker, because each worker has its own session tickets.
	tls  []*tls.Config
	in   *contract.Effective
	once sync.Once
}

func (stack) Client(o *contract.Options) (contract.Client, error) {
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
	settings := config(o)
	conn, server, err := o.Connect()
	if err != nil {
		return nil, err
	}
	c := &client{
		Options: o, transport: &quic.Transport{Conn: conn}, server: server, config: settings,
		in: effective(o),
	}
	alpn := contract.Perf
	if o.Protocol == contract.H3 {
		alpn = http3.NextProtoH3
	}
	for range o.Workers() {
		one := &tls.Config{
			MinVersion:   tls.VersionTLS13,
			NextProtos:   []string{alpn},
			RootCAs:      roots,
			ServerName:   o.Name,
			KeyLogWriter: keys,
		}
		if o.Resume {
			one.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		}
		c.tls = append(c.tls, one)
	}
	// At its first use of the transport, quic-go sets the socket buffers. This write causes that
	// before SetBuffers sets ours.
	_, _ = c.transport.WriteTo(nil, &net.UDPAddr{})
	return c, contract.SetBuffers(conn, o, c.in)
}

func (c *client) Dial(worker int) (contract.Conn, error) {
	dialled, err := c.transport.Dial(context.Background(), c.server, c.tls[worker], c.config)
	if err != nil {
		return nil, err
	}
	c.once.Do(func() {
		state := dialled.ConnectionState()
		name := tls.CipherSuiteName(state.TLS.CipherSuite)
		c.Negotiated(name)
		c.in.Cipher, c.in.GSO = &name, &state.GSO
	})
	if c.GSO == "on" && !*c.in.GSO {
		contract.Unsupported("segmentation offload on this system")
	}
	connection := &conn{Conn: dialled, name: c.Name}
	if c.Protocol == contract.H3 {
		connection.http = (&http3.Transport{}).NewClientConn(dialled)
	}
	return connection, nil
}

func (c *client) Effective() *contract.Effective { return c.in }

func (c *client) Close() { _ = c.transport.Close() }

type conn struct {
	*quic.Conn
	http *http3.ClientConn
	name string
}

func (c *conn) Open() (contract.Stream, error) {
	opened, err := c.OpenStreamSync(context.Background())
	return stream{opened}, err
}

func (c *conn) Close(code uint64) {
	_ = c.CloseWithError(quic.ApplicationErrorCode(code), "")
}

func (c *conn) IsOpen() bool { return c.Context().Err() == nil }

func (c *conn) IsResumed() bool { return c.ConnectionState().TLS.DidResume }

func (c *conn) Get(path string, take io.Writer) error {
	request, err := http.NewRequest(http.MethodGet, fmt.Sprintf("https://%s%s", c.name, path), nil)
	if err != nil {
		return err
	}
	response, err := c.http.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	_, err = io.CopyBuffer(take, response.Body, make([]byte, 32<<10))
	return err
}

type stream struct{ *quic.Stream }

func (s stream) CloseWrite() error { return s.Close() }
