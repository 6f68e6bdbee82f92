// A quic-go server that joins a running gateway. Your own server needs the lines that are marked
// `eQUIC`. The rest is written like quic-go's own examples.
//
//	equic gateway run -i eth0 -p 4433 --max-connections 8
//	go build -o serve-quic-go . && ./serve-quic-go 4433 eth0
//
// The server answers every HTTP/3 request with a line of text.
package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	equic "github.com/equic/equic/bindings/go" // eQUIC
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: serve-quic-go PORT GATEWAY")
	}
	if err := serve(os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func serve(port, selector string) error {
	// -- eQUIC: joins the gateway, which can check connection IDs. A source at its limit is refused
	// before the handshake.
	gateway, err := equic.Join(selector, "quic-go", equic.JoinOptions{IssueIDs: true})
	if err != nil {
		return err
	}
	service, err := gateway.Service("")
	if err != nil {
		return err
	}
	admit := func(ctx context.Context, client *quic.ClientInfo) (context.Context, error) {
		if service.Full(client.RemoteAddr) {
			return nil, errors.New("too many connections")
		}
		return ctx, nil
	}
	// --
	// -- eQUIC IDs: every connection ID is made with the gateway's current keys.
	ids, err := gateway.ConnectionIDs(0)
	if err != nil {
		return err
	}
	// --

	number, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	socket, err := net.ListenUDP("udp", &net.UDPAddr{Port: number})
	if err != nil {
		return err
	}
	config, err := certificate()
	if err != nil {
		return err
	}
	transport := &quic.Transport{
		Conn:                  socket,
		ConnContext:           admit,          // eQUIC
		ConnectionIDGenerator: generator{ids}, // eQUIC IDs
	}
	listener, err := transport.Listen(http3.ConfigureTLSConfig(config), &quic.Config{MaxIdleTimeout: time.Minute})
	if err != nil {
		return err
	}
	fmt.Println("listening on", socket.LocalAddr())
	server := &http3.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "hello from quic-go")
	})}
	for {
		connection, err := listener.Accept(context.Background())
		if err != nil {
			return err
		}
		serve := func() { server.ServeQUICConn(connection) }
		go watch(service, connection, serve) // eQUIC
	}
}

// -- eQUIC: a connection counts from the end of the handshake until it is closed. It counts before
// it is served, so that a connection over the limit gets no answer. quic-go does not report a
// migration, so this function polls the address, which changes only after the new address is
// validated.
func watch(service *equic.Service, connection *quic.Conn, serve func()) {
	guard, err := service.Opened(connection.RemoteAddr())
	context.AfterFunc(connection.Context(), func() { guard.Close() })
	if err == nil && !guard.OverLimit() {
		go serve()
	}
	for ; err == nil && !guard.OverLimit(); err = guard.Moved(connection.RemoteAddr()) { // until the connection is closed
		time.Sleep(time.Second)
	}
	connection.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeExcessiveLoad), "too many connections")
}

// --

// -- eQUIC IDs: quic-go calls this type for every connection ID of the server.
type generator struct{ ids *equic.ConnectionIDs }

func (g generator) GenerateConnectionID() (quic.ConnectionID, error) {
	id, err := g.ids.Generate()
	return quic.ConnectionIDFromBytes(id), err
}

func (g generator) ConnectionIDLen() int {
	return g.ids.Len()
}

// --

func certificate() (*tls.Config, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		DNSNames:     []string{"localhost"},
		NotAfter:     time.Now().AddDate(0, 0, 30),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}}}, nil
}
