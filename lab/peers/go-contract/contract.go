// Package contract implements docs/bench-contract.md for QUIC stacks in Go: the command line, the
// exchange and a client's workloads. An adapter implements Stack, and its package main calls Main.
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
	// SO_RCVBUF and SO_SNDBUF in bytes, before the kernel doubles them.
	buffer           = 4 << 20
	StreamWindow     = 16 << 20
	ConnectionWindow = 32 << 20
	// Streams is the maximum number of streams of each kind that a peer may open.
	Streams = 1024
	// Payload is the largest UDP payload, in bytes.
	Payload = 1452
	Idle    = 600 * time.Second
	// SmallBody is the size of the response to GET /1k, in bytes.
	SmallBody = 1024
	// Size of a small exchange of --loaded, in bytes.
	smallExchange = 1024
	// Bytes that the bulk download of --loaded requests. It is more than arrives in any measured time.
	bulk = 1 << 44
	// Size of the number at the beginning of requests and responses, in bytes.
	head = 8
	// Maximum number of concurrent handshakes when several connections are opened.
	opening = 32
)

// Options are the parsed command line. A zero value means the default.
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

// A Stack is the QUIC implementation of an adapter.
type Stack interface {
	// Serve listens and serves. It calls Ready as soon as it listens.
	Serve(o *Options) error
	// Client returns a client that can connect to the server.
	Client(o *Options) (Client, error)
}

// A Client opens connections.
type Client interface {
	// Dial opens a connection with the session tickets of this worker.
	Dial(worker int) (Conn, error)
	// Effective returns the settings in force.
	Effective() *Effective
	Close()
}

// A Conn is a QUIC connection.
type Conn interface {
	Open() (Stream, error)
	Close(code uint64)
	IsOpen() bool
	IsResumed() bool
}

// A Stream is a bidirectional stream.
type Stream interface {
	io.ReadWriter
	// CloseWrite ends the sending side.
	CloseWrite() error
}

// A Fetcher is a Conn that can fetch over HTTP/3.
type Fetcher interface {
	// Get fetches a path and writes the response body to take.
	Get(path string, take io.Writer) error
}

// Unsupported ends the process with the exit status for an unsupported workload or setting.
func Unsupported(what string) {
	fmt.Fprintln(os.Stderr, "unsupported:", what)
	os.Exit(unsupported)
}

// Main is the whole program. speaks lists its protocols, with the default first.
func Main(stack Stack, speaks ...string) {
	log.SetFlags(0)
	if err := run(stack, speaks, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(stack Stack, speaks, args []string) error {
	if len(args) == 0 {
		return errors.New("the first argument must be server or client")
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
	return fmt.Errorf("the first argument is %s, but must be server or client", args[0])
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
		return nil, errors.New("--gso must be on or off")
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

// Negotiated ends the process if the handshake chose another cipher suite than the requested one.
// Go does not let a program restrict the TLS 1.3 cipher suites.
func (o *Options) Negotiated(name string) {
	if wanted := o.wantedCipher(); wanted != "" && wanted != name {
		Unsupported("choosing a cipher suite")
	}
}

// Workers returns the number of workers that have session tickets of their own.
func (o *Options) Workers() int { return max(o.parallel, 1) }

// KeylogWriter opens the file for TLS secrets. It returns nil if no file was requested.
func (o *Options) KeylogWriter() (io.Writer, error) {
	if o.Keylog == "" {
		return nil, nil
	}
	return os.OpenFile(o.Keylog, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

// Effective has the settings in force at an endpoint.
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

// Ready prints that the server listens, and the settings in force.
func Ready(address fmt.Stringer, in *Effective) error {
	text, err := json.Marshal(in)
	if err != nil {
		return err
	}
	_, err = fmt.Printf("ready %s\neffective %s\n", address, text)
	return err
}

// Implementation returns the name and the version of the module that is built into the program.
func Implementation(name, module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, found := range info.Deps {
		if found.Path == module {
			return name + " " + strings.TrimPrefix(found.Version, "v")
		}
	}
	return name + " ?"
}
