// quic-go for `equic bench transport` (docs/bench-transport.md), with its own defaults but for what all
// have alike. Its congestion control is NewReno and cannot be chosen.
package main

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/quic-go/quic-go"
)

const (
	// The exit status for what it does not do.
	unsupported = 127
	perf        = "perf"
	// SO_RCVBUF and SO_SNDBUF, before the kernel doubles them.
	buffer           = 4 << 20
	streamWindow     = 16 << 20
	connectionWindow = 32 << 20
	streams          = 1024
	idle             = 600 * time.Second
	// Of a number at the beginning of requests and answers.
	head      = 8
	smallBody = 1024
	// Connections that are opened at a time for --hold.
	opening = 32
)

// What is sent, and how much at a time.
var zeros [64 << 10]byte

func main() {
	log.SetFlags(0)
	if err := run(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("server or client?")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.SetOutput(new(strings.Builder))
	var o options
	flags.StringVar(&o.address, "listen", "", "")
	flags.StringVar(&o.address, "connect", "", "")
	flags.StringVar(&o.cert, "cert", "", "")
	flags.StringVar(&o.key, "key", "", "")
	flags.StringVar(&o.ca, "ca", "", "")
	flags.StringVar(&o.name, "name", "", "")
	flags.Uint64Var(&o.download, "download", 0, "")
	flags.Uint64Var(&o.upload, "upload", 0, "")
	flags.Float64Var(&o.handshakes, "handshakes", 0, "")
	flags.Float64Var(&o.requests, "requests", 0, "")
	flags.IntVar(&o.hold, "hold", 0, "")
	flags.Uint64Var(&o.streams, "streams", 1, "")
	flags.IntVar(&o.parallel, "parallel", 1, "")
	flags.BoolVar(&o.resume, "resume", false, "")
	if err := flags.Parse(args[1:]); err != nil {
		if strings.Contains(err.Error(), "not defined") {
			os.Exit(unsupported)
		}
		return err
	}
	switch args[0] {
	case "server":
		return serve(o)
	case "client":
		answer, err := o.work()
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(answer)
	}
	return fmt.Errorf("%s is neither server nor client", args[0])
}

type options struct {
	address, cert, key, ca, name string
	download, upload, streams    uint64
	handshakes, requests         float64
	hold, parallel               int
	resume                       bool
}

func config() *quic.Config {
	return &quic.Config{
		Versions:                       []quic.Version{quic.Version1},
		InitialStreamReceiveWindow:     streamWindow,
		MaxStreamReceiveWindow:         streamWindow,
		InitialConnectionReceiveWindow: connectionWindow,
		MaxConnectionReceiveWindow:     connectionWindow,
		MaxIncomingStreams:             streams,
		MaxIncomingUniStreams:          streams,
		MaxIdleTimeout:                 idle,
	}
}

// A socket with the buffers that all have; root passes the system's limits over.
func socket(address string) (*net.UDPConn, error) {
	local, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return nil, err
	}
	return net.ListenUDP("udp", local)
}

// quic-go enlarges buffers when it takes a socket; this is to be called after that.
func setBuffers(conn *net.UDPConn) (receive, send int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	err = errors.Join(raw.Control(func(fd uintptr) {
		set := func(force, option int) {
			if syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, force, buffer) != nil {
				_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, option, buffer)
			}
		}
		set(syscall.SO_RCVBUFFORCE, syscall.SO_RCVBUF)
		set(syscall.SO_SNDBUFFORCE, syscall.SO_SNDBUF)
		receive, _ = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF)
		send, _ = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_SNDBUF)
	}))
	return receive, send, err
}

// What a client prints at its end.
type answer struct {
	Bytes            uint64    `json:"bytes"`
	Count            uint64    `json:"count"`
	Resumed          *uint64   `json:"resumed,omitempty"`
	Seconds          float64   `json:"seconds"`
	HandshakeSeconds *float64  `json:"handshake_seconds,omitempty"`
	Effective        effective `json:"effective"`
}

// What was in force at the client.
type effective struct {
	Implementation   string  `json:"implementation"`
	IO               string  `json:"io"`
	ReceiveBuffer    int     `json:"receive_buffer"`
	SendBuffer       int     `json:"send_buffer"`
	StreamWindow     int     `json:"stream_window"`
	ConnectionWindow int     `json:"connection_window"`
	Congestion       string  `json:"congestion"`
	Cipher           *string `json:"cipher"`
	MaxPayload       int     `json:"max_payload"`
	GSO              bool    `json:"gso"`
	GRO              bool    `json:"gro"`
}

func (e *effective) saw(state quic.ConnectionState) {
	name := tls.CipherSuiteName(state.TLS.CipherSuite)
	e.Cipher = &name
	e.GSO = state.GSO
}

func implementation() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/quic-go/quic-go" {
			return "quic-go " + strings.TrimPrefix(module.Version, "v")
		}
	}
	return "quic-go ?"
}
