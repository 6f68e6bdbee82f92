package main

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

func serve(o options) error {
	pair, err := tls.LoadX509KeyPair(o.cert, o.key)
	if err != nil {
		return err
	}
	conn, err := socket(o.address)
	if err != nil {
		return err
	}
	transport := &quic.Transport{Conn: conn}
	listener, err := transport.Listen(&tls.Config{
		MinVersion:   tls.VersionTLS13,
		NextProtos:   []string{perf, http3.NextProtoH3},
		Certificates: []tls.Certificate{pair},
	}, config())
	if err != nil {
		return err
	}
	if _, _, err := setBuffers(conn); err != nil {
		return err
	}
	fmt.Println("ready", conn.LocalAddr())
	web := &http3.Server{Handler: http.HandlerFunc(small)}
	for {
		connection, err := listener.Accept(context.Background())
		if err != nil {
			return err
		}
		if connection.ConnectionState().TLS.NegotiatedProtocol == http3.NextProtoH3 {
			go web.ServeQUICConn(connection)
		} else {
			go servePerf(connection)
		}
	}
}

func small(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/1k" {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write(zeros[:smallBody])
}

func servePerf(connection *quic.Conn) {
	for {
		stream, err := connection.AcceptStream(context.Background())
		if err != nil {
			return
		}
		go func() {
			if err := answerPerf(stream); err != nil {
				log.Print(err)
			}
		}()
	}
}

func answerPerf(stream *quic.Stream) error {
	buffer := make([]byte, len(zeros))
	var number [head]byte
	if _, err := io.ReadFull(stream, number[:]); err != nil {
		return fmt.Errorf("a request of under 8 bytes: %w", err)
	}
	payload, err := read(stream, buffer)
	if err != nil {
		return err
	}
	wanted := binary.BigEndian.Uint64(number[:])
	binary.BigEndian.PutUint64(number[:], payload)
	first := min(wanted, head)
	if _, err := stream.Write(number[:first]); err != nil {
		return err
	}
	if err := write(stream, wanted-first); err != nil {
		return err
	}
	return stream.Close()
}

// Reads all; how many bytes.
func read(stream io.Reader, buffer []byte) (uint64, error) {
	var total uint64
	for {
		count, err := stream.Read(buffer)
		total += uint64(count)
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// Writes so many zeros.
func write(stream io.Writer, left uint64) error {
	for left > 0 {
		count, err := stream.Write(zeros[:min(left, uint64(len(zeros)))])
		if err != nil {
			return err
		}
		left -= uint64(count)
	}
	return nil
}
