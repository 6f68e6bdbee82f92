package contract

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
)

const (
	// Maximum size of a write, in bytes.
	chunk = 64 << 10
	// Period of the pattern, in bytes.
	period = 65521
	// Size of a compared block. In each 64 KiB, one block of this size is compared, at a rotating
	// position.
	block = 4096
)

var pattern = makePattern()

func makePattern() []byte {
	state := uint32(1)
	bytes := make([]byte, period, period+chunk)
	for index := range bytes {
		state = state*1664525 + 1013904223
		bytes[index] = byte(state >> 24)
	}
	for len(bytes) < period+chunk {
		bytes = append(bytes, bytes[len(bytes)-period])
	}
	return bytes
}

// piece returns at most chunk bytes of the pattern, from the offset at on.
func piece(at, left uint64) []byte {
	from := at % period
	return pattern[from : from+min(left, chunk)]
}

// WritePattern writes count bytes of the pattern.
func WritePattern(to io.Writer, count uint64) error {
	for at := uint64(0); at < count; {
		wrote, err := to.Write(piece(at, count-at))
		if err != nil {
			return err
		}
		at += uint64(wrote)
	}
	return nil
}

// A check compares received bytes with the pattern.
type check struct {
	at    uint64
	wrong bool
}

func (c *check) Write(data []byte) (int, error) {
	count := len(data)
	for len(data) > 0 {
		number := c.at / block
		part := data[:min(uint64(len(data)), block-c.at%block)]
		if number/16%16 == number%16 && !bytes.Equal(part, piece(c.at, uint64(len(part)))) {
			c.wrong = true
		}
		c.at += uint64(len(part))
		data = data[len(part):]
	}
	return count, nil
}

// finish ends the process if any byte differed.
func (c *check) finish() {
	if c.wrong {
		fmt.Fprintln(os.Stderr, "corrupted: received other bytes than were sent")
		os.Exit(corrupted)
	}
}

// ServeStreams answers the streams of a connection. accept returns the next stream.
func ServeStreams(accept func() (Stream, error)) {
	for {
		stream, err := accept()
		if err != nil {
			return
		}
		go func() {
			if err := answer(stream); err != nil {
				log.Print(err)
			}
		}()
	}
}

func answer(stream Stream) error {
	var number [head]byte
	if _, err := io.ReadFull(stream, number[:]); err != nil {
		return fmt.Errorf("the request has fewer than 8 bytes: %w", err)
	}
	payload, err := read(stream, make([]byte, chunk), io.Discard)
	if err != nil {
		return err
	}
	wanted := binary.BigEndian.Uint64(number[:])
	binary.BigEndian.PutUint64(number[:], payload)
	first := min(wanted, head)
	if _, err := stream.Write(number[:first]); err != nil {
		return err
	}
	if err := WritePattern(stream, wanted-first); err != nil {
		return err
	}
	return stream.CloseWrite()
}

// read reads until the end of the stream, writes everything to take and returns the number of
// bytes.
func read(from io.Reader, buffer []byte, take io.Writer) (uint64, error) {
	var total uint64
	for {
		count, err := from.Read(buffer)
		total += uint64(count)
		if _, err := take.Write(buffer[:count]); err != nil {
			return total, err
		}
		if errors.Is(err, io.EOF) {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// fetch requests wanted bytes on a new stream, and returns the number of bytes that arrived.
func fetch(connection Conn, wanted uint64) (uint64, error) {
	stream, err := ask(connection, wanted)
	if err != nil {
		return 0, err
	}
	var number [head]byte
	first, err := io.ReadFull(stream, number[:min(wanted, head)])
	if err != nil {
		return uint64(first), err
	}
	var seen check
	rest, err := read(stream, make([]byte, min(wanted+1, chunk)), &seen)
	seen.finish()
	return uint64(first) + rest, err
}

// ask opens a stream and requests wanted bytes on it.
func ask(connection Conn, wanted uint64) (Stream, error) {
	stream, err := connection.Open()
	if err != nil {
		return nil, err
	}
	if _, err := stream.Write(binary.BigEndian.AppendUint64(nil, wanted)); err != nil {
		return nil, err
	}
	return stream, stream.CloseWrite()
}
