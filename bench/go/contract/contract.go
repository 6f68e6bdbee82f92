// Package contract is what docs/bench-contract.md asks of an implementation, for stacks in Go: the command
// line, the exchange, the works of a client. A stack gives a Stack; package main of each calls Main.
package contract

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"runtime/debug"
	"strings"
	"time"
)

const (
	unsupported = 127
	corrupted   = 3
	// ALPNs.
	Perf = "perf"
	H3   = "h3"
	// SO_RCVBUF and SO_SNDBUF, before the kernel doubles them.
	buffer           = 4 << 20
	StreamWindow     = 16 << 20
	ConnectionWindow = 32 << 20
	// Streams of a kind that a peer may have open.
	Streams = 1024
	// The largest UDP payload.
	Payload = 1452
	Idle    = 600 * time.Second
	// Size of the response to GET /1k, in bytes.
	SmallBody = 1024
	// Size of a small exchange of --loaded, in bytes.
	smallExchange = 1024
	// What its bulk download asks for: more than comes in any time that is measured.
	bulk = 1 << 44
	// Of a number at the beginning of requests and answers.
	head = 8
	// Connections that are opened at a time.
	opening = 32
)

// Options are the words of the command line. Zero values: as usual.
type Options struct {
	Address, Cert, Key, CA, Name, Protocol string
	Keylog, Qlog, GSO, Congestion, Cipher  string
	Receive, Send, MTU                     int
	download, upload, streams, connections uint64
	handshakes, requests, firstByte        float64
	loaded                                 float64
	hold, parallel                         int
	Resume                                 bool
	speaks                                 []string
}

// A Stack is an implementation.
type Stack interface {
	// Serve listens and serves; it calls ready once it does.
	Serve(o *Options) error
	// Client prepares for connections to the server.
	Client(o *Options) (Client, error)
}

// A Client makes connections.
type Client interface {
	// Dial connects; worker says whose session tickets are used.
	Dial(worker int) (Conn, error)
	// Effective is what is in force.
	Effective() *Effective
	Close()
}

// A Conn is a connection.
type Conn interface {
	Open() (Stream, error)
	Close(code uint64)
	IsOpen() bool
	IsResumed() bool
}

// A Stream is bidirectional.
type Stream interface {
	io.ReadWriter
	// CloseWrite ends what is written.
	CloseWrite() error
}

// A Fetcher is a Conn that can fetch over HTTP/3.
type Fetcher interface {
	// Get fetches a path into what takes it.
	Get(path string, take io.Writer) error
}

// Unsupported ends the process: it does not do that.
func Unsupported(what string) {
	fmt.Fprintln(os.Stderr, "does not do", what)
	os.Exit(unsupported)
}

// Main is the whole program; speaks are its protocols, the usual one first.
func Main(stack Stack, speaks ...string) {
	log.SetFlags(0)
	if err := run(stack, speaks, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(stack Stack, speaks, args []string) error {
	if len(args) == 0 {
		return errors.New("server or client?")
	}
	o, err := parse(args, speaks)
	if err != nil {
		return err
	}
	switch args[0] {
	case "server":
		return stack.Serve(o)
	case "client":
		return o.work(stack)
	}
	return fmt.Errorf("%s is neither server nor client", args[0])
}

func parse(args, speaks []string) (*Options, error) {
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.SetOutput(new(strings.Builder))
	o := Options{speaks: speaks}
	flags.StringVar(&o.Address, "listen", "", "")
	flags.StringVar(&o.Address, "connect", "", "")
	flags.StringVar(&o.Cert, "cert", "", "")
	flags.StringVar(&o.Key, "key", "", "")
	flags.StringVar(&o.CA, "ca", "", "")
	flags.StringVar(&o.Name, "name", "", "")
	flags.StringVar(&o.Protocol, "protocol", "", "")
	flags.StringVar(&o.Keylog, "keylog", "", "")
	flags.StringVar(&o.Qlog, "qlog", "", "")
	flags.StringVar(&o.GSO, "gso", "", "")
	flags.StringVar(&o.Congestion, "congestion", "", "")
	flags.StringVar(&o.Cipher, "cipher", "", "")
	flags.IntVar(&o.Receive, "rcvbuf", buffer, "")
	flags.IntVar(&o.Send, "sndbuf", buffer, "")
	flags.IntVar(&o.MTU, "mtu", 0, "")
	flags.Uint64Var(&o.download, "download", 0, "")
	flags.Uint64Var(&o.upload, "upload", 0, "")
	flags.Float64Var(&o.handshakes, "handshakes", 0, "")
	flags.Float64Var(&o.requests, "requests", 0, "")
	flags.Float64Var(&o.firstByte, "ttfb", 0, "")
	flags.Float64Var(&o.loaded, "loaded", 0, "")
	flags.IntVar(&o.hold, "hold", 0, "")
	flags.Uint64Var(&o.streams, "streams", 1, "")
	flags.Uint64Var(&o.connections, "connections", 1, "")
	flags.IntVar(&o.parallel, "parallel", 1, "")
	flags.BoolVar(&o.Resume, "resume", false, "")
	if err := flags.Parse(args[1:]); err != nil {
		if strings.Contains(err.Error(), "not defined") {
			Unsupported(err.Error())
		}
		return nil, err
	}
	if o.GSO != "" && o.GSO != "on" && o.GSO != "off" {
		return nil, errors.New("--gso is on or off")
	}
	if o.Cipher != "" && o.wantedCipher() == "" {
		Unsupported(o.Cipher)
	}
	return &o, nil
}

func (o *Options) wantedCipher() string {
	return map[string]string{
		"aes128":   "TLS_AES_128_GCM_SHA256",
		"chacha20": "TLS_CHACHA20_POLY1305_SHA256",
	}[o.Cipher]
}

// Negotiated ends the process if another cipher suite than asked for is used: Go takes no list of them.
func (o *Options) Negotiated(name string) {
	if wanted := o.wantedCipher(); wanted != "" && wanted != name {
		Unsupported("cipher suites by choice")
	}
}

// Workers is how many use tickets of their own.
func (o *Options) Workers() int { return max(o.parallel, 1) }

// KeylogWriter is where secrets go; nil: nowhere.
func (o *Options) KeylogWriter() (io.Writer, error) {
	if o.Keylog == "" {
		return nil, nil
	}
	return os.OpenFile(o.Keylog, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

// Effective is what is in force.
type Effective struct {
	Implementation   string  `json:"implementation"`
	IO               string  `json:"io"`
	ReceiveBuffer    int     `json:"receive_buffer"`
	SendBuffer       int     `json:"send_buffer"`
	StreamWindow     int     `json:"stream_window"`
	ConnectionWindow int     `json:"connection_window"`
	Congestion       string  `json:"congestion"`
	Cipher           *string `json:"cipher"`
	MaxPayload       *int    `json:"max_payload"`
	GSO              *bool   `json:"gso"`
	GRO              *bool   `json:"gro"`
	Crypto           string  `json:"crypto"`
}

// Ready says that the server listens, and what is in force.
func Ready(address fmt.Stringer, in *Effective) error {
	text, err := json.Marshal(in)
	if err != nil {
		return err
	}
	_, err = fmt.Printf("ready %s\neffective %s\n", address, text)
	return err
}

// Implementation is the name and the version that was built in.
func Implementation(name, module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, found := range info.Deps {
		if found.Path == module {
			return name + " " + strings.TrimPrefix(found.Version, "v")
		}
	}
	return name + " ?"
}
