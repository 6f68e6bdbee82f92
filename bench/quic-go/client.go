package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// What connects.
type stage struct {
	options
	transport *quic.Transport
	server    net.Addr
	tls       *tls.Config
	effective effective
	saw       sync.Once
}

func (o options) work() (*answer, error) {
	authority, err := os.ReadFile(o.ca)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	server, err := net.ResolveUDPAddr("udp", o.address)
	if err != nil {
		return nil, err
	}
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: localAddress(server)})
	if err != nil {
		return nil, err
	}
	transport := &quic.Transport{Conn: conn}
	s := &stage{options: o, transport: transport, server: server}
	s.tls = &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{perf},
		RootCAs:    roots,
		ServerName: o.name,
	}
	// Any use of the transport makes quic-go set the buffers: before ours.
	_, _ = transport.WriteTo(nil, &net.UDPAddr{})
	receive, send, err := setBuffers(conn)
	if err != nil {
		return nil, err
	}
	s.effective = effective{
		Implementation: implementation(), IO: "native", ReceiveBuffer: receive, SendBuffer: send,
		StreamWindow: streamWindow, ConnectionWindow: connectionWindow, Congestion: "reno",
		MaxPayload: 1452,
	}
	result, err := s.chosen()
	if err != nil {
		return nil, err
	}
	_ = transport.Close()
	result.Effective = s.effective
	return result, nil
}

// The address that leads to the server.
func localAddress(server *net.UDPAddr) net.IP {
	probe, err := net.DialUDP("udp", nil, server)
	if err != nil {
		return nil
	}
	defer probe.Close()
	return probe.LocalAddr().(*net.UDPAddr).IP
}

func (s *stage) chosen() (*answer, error) {
	switch {
	case s.download > 0:
		return s.fetchAll()
	case s.upload > 0:
		return s.sendAll()
	case s.handshakes > 0:
		return s.handshakeAll(duration(s.handshakes))
	case s.requests > 0:
		return s.requestAll(duration(s.requests))
	case s.hold > 0:
		return s.holdAll()
	}
	return nil, errors.New("one of --download, --upload, --handshakes, --requests, --hold")
}

func duration(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second))
}

func (s *stage) dial(config *tls.Config) (*quic.Conn, error) {
	connection, err := s.transport.Dial(context.Background(), s.server, config, configuration)
	if err == nil {
		s.saw.Do(func() { s.effective.saw(connection.ConnectionState()) })
	}
	return connection, err
}

var configuration = config()

// Opens the only connection; how long that took.
func (s *stage) connect() (*quic.Conn, *float64, error) {
	start := time.Now()
	connection, err := s.dial(s.tls)
	if err != nil {
		return nil, nil, err
	}
	seconds := time.Since(start).Seconds()
	return connection, &seconds, nil
}

// Fetches so many bytes on a stream; how many came.
func fetch(connection *quic.Conn, wanted uint64, buffer []byte) (uint64, error) {
	stream, err := connection.OpenStreamSync(context.Background())
	if err != nil {
		return 0, err
	}
	if _, err := stream.Write(binary.BigEndian.AppendUint64(nil, wanted)); err != nil {
		return 0, err
	}
	if err := stream.Close(); err != nil {
		return 0, err
	}
	return read(stream, buffer)
}

// Adds up what several do at once, each bytes and completions.
func together(count int, work func(index int) (uint64, uint64, error)) (bytes, done uint64, err error) {
	var mutex sync.Mutex
	var group sync.WaitGroup
	for index := range count {
		group.Go(func() {
			more, completed, wrong := work(index)
			mutex.Lock()
			defer mutex.Unlock()
			bytes += more
			done += completed
			err = errors.Join(err, wrong)
		})
	}
	group.Wait()
	return bytes, done, err
}

func (s *stage) fetchAll() (*answer, error) {
	connection, handshake, err := s.connect()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	bytes, count, err := together(int(s.streams), func(index int) (uint64, uint64, error) {
		share := s.download / s.streams
		if index == 0 {
			share += s.download % s.streams
		}
		bytes, err := fetch(connection, share, make([]byte, len(zeros)))
		return bytes, 1, err
	})
	if err != nil {
		return nil, err
	}
	seconds := time.Since(start).Seconds()
	_ = connection.CloseWithError(0, "")
	return &answer{Bytes: bytes, Count: count, Seconds: seconds, HandshakeSeconds: handshake}, nil
}

func (s *stage) sendAll() (*answer, error) {
	connection, handshake, err := s.connect()
	if err != nil {
		return nil, err
	}
	start := time.Now()
	stream, err := connection.OpenStreamSync(context.Background())
	if err != nil {
		return nil, err
	}
	if _, err := stream.Write(binary.BigEndian.AppendUint64(nil, head)); err != nil {
		return nil, err
	}
	if err := write(stream, s.upload); err != nil {
		return nil, err
	}
	if err := stream.Close(); err != nil {
		return nil, err
	}
	number, err := io.ReadAll(stream)
	if err != nil {
		return nil, err
	}
	seconds := time.Since(start).Seconds()
	if len(number) != head {
		return nil, fmt.Errorf("an answer of %d bytes", len(number))
	}
	_ = connection.CloseWithError(0, "")
	bytes := binary.BigEndian.Uint64(number)
	return &answer{Bytes: bytes, Count: 1, Seconds: seconds, HandshakeSeconds: handshake}, nil
}

// A connection with the smallest of exchanges, after which the server's tickets are here.
func (s *stage) exchange(config *tls.Config) (bytes uint64, resumed bool, err error) {
	connection, err := s.dial(config)
	if err != nil {
		return 0, false, err
	}
	bytes, err = fetch(connection, head, make([]byte, 64))
	resumed = connection.ConnectionState().TLS.DidResume
	_ = connection.CloseWithError(0, "")
	return bytes, resumed, err
}

func (s *stage) handshakeAll(limit time.Duration) (*answer, error) {
	configs := make([]*tls.Config, s.parallel)
	for index := range configs {
		configs[index] = s.tls.Clone()
		if s.resume {
			configs[index].ClientSessionCache = tls.NewLRUClientSessionCache(1)
		}
		// For the session.
		if _, _, err := s.exchange(configs[index]); err != nil {
			return nil, err
		}
	}
	var mutex sync.Mutex
	var resumed uint64
	start := time.Now()
	bytes, count, err := together(s.parallel, func(index int) (bytes, count uint64, err error) {
		for time.Since(start) < limit {
			more, again, err := s.exchange(configs[index])
			if err != nil {
				return bytes, count, err
			}
			bytes += more
			count++
			if again {
				mutex.Lock()
				resumed++
				mutex.Unlock()
			}
		}
		return bytes, count, nil
	})
	if err != nil {
		return nil, err
	}
	seconds := time.Since(start).Seconds()
	return &answer{Bytes: bytes, Count: count, Resumed: &resumed, Seconds: seconds}, nil
}

func (s *stage) requestAll(limit time.Duration) (*answer, error) {
	s.tls.NextProtos = []string{http3.NextProtoH3}
	connection, handshake, err := s.connect()
	if err != nil {
		return nil, err
	}
	client := (&http3.Transport{}).NewClientConn(connection)
	url := fmt.Sprintf("https://%s/1k", s.name)
	start := time.Now()
	bytes, count, err := together(s.parallel, func(int) (bytes, count uint64, err error) {
		buffer := make([]byte, 2*smallBody)
		for time.Since(start) < limit {
			request, err := http.NewRequest(http.MethodGet, url, nil)
			if err != nil {
				return bytes, count, err
			}
			response, err := client.RoundTrip(request)
			if err != nil {
				return bytes, count, err
			}
			body, err := read(response.Body, buffer)
			response.Body.Close()
			if err != nil || response.StatusCode != http.StatusOK || body != smallBody {
				return bytes, count, fmt.Errorf("%s, %d bytes: %w", response.Status, body, err)
			}
			bytes += body
			count++
		}
		return bytes, count, nil
	})
	if err != nil {
		return nil, err
	}
	seconds := time.Since(start).Seconds()
	_ = connection.CloseWithError(0x100, "")
	return &answer{Bytes: bytes, Count: count, Seconds: seconds, HandshakeSeconds: handshake}, nil
}

func (s *stage) holdAll() (*answer, error) {
	connections := make([]*quic.Conn, s.hold)
	start := time.Now()
	_, _, err := together(opening, func(index int) (uint64, uint64, error) {
		for at := index; at < s.hold; at += opening {
			connection, err := s.dial(s.tls)
			if err != nil {
				return 0, 0, err
			}
			connections[at] = connection
		}
		return 0, 0, nil
	})
	if err != nil {
		return nil, err
	}
	seconds := time.Since(start).Seconds()
	fmt.Println("held")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return nil, err
	}
	var open uint64
	for _, connection := range connections {
		if connection.Context().Err() == nil {
			open++
		}
	}
	return &answer{Count: open, Seconds: seconds}, nil
}
