package contract

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"sync"
	"time"
)

// result is the object that a client prints when it ends.
type result struct {
	Bytes            uint64     `json:"bytes"`
	Count            uint64     `json:"count"`
	Resumed          *uint64    `json:"resumed,omitempty"`
	Seconds          float64    `json:"seconds"`
	HandshakeSeconds *float64   `json:"handshake_seconds,omitempty"`
	FirstByteSeconds *firstByte `json:"first_byte_seconds,omitempty"`
	Latency          *latency   `json:"latency,omitempty"`
	Effective        *Effective `json:"effective"`
}

type firstByte struct {
	Median float64 `json:"median"`
	P95    float64 `json:"p95"`
}

// latency has the times of small exchanges, without and during a bulk download on the same
// connection.
type latency struct {
	Unloaded  exchanges `json:"unloaded"`
	Loaded    exchanges `json:"loaded"`
	BulkBytes uint64    `json:"bulk_bytes"`
}

type exchanges struct {
	Median float64 `json:"median"`
	P99    float64 `json:"p99"`
}

type stage struct {
	*Options
	client Client
}

// work runs the requested workload and prints its result.
func (o *Options) work(stack Stack) error {
	usual := o.speaks[0]
	if o.requests > 0 {
		usual = H3
	}
	if o.Protocol == "" {
		o.Protocol = usual
	}
	if !slices.Contains(o.speaks, o.Protocol) {
		Unsupported(o.Protocol)
	}
	if o.Protocol == H3 && o.requests == 0 && o.download == 0 {
		Unsupported("this workload over HTTP/3")
	}
	client, err := stack.Client(o)
	if err != nil {
		return err
	}
	s := stage{Options: o, client: client}
	done, err := s.chosen()
	if err != nil {
		return err
	}
	done.Effective = client.Effective()
	client.Close()
	return json.NewEncoder(os.Stdout).Encode(done)
}

func (s stage) chosen() (*result, error) {
	switch {
	case s.download > 0:
		return s.fetchAll()
	case s.upload > 0:
		return s.sendAll()
	case s.handshakes > 0:
		return s.handshakeAll(duration(s.handshakes))
	case s.requests > 0:
		return s.requestAll(duration(s.requests))
	case s.firstByte > 0:
		return s.firstByteAll(duration(s.firstByte))
	case s.loaded > 0:
		return s.loadedAll(duration(s.loaded))
	case s.hold > 0:
		return s.holdAll()
	}
	return nil, errors.New("exactly one is required of --download, --upload, --handshakes, --requests, --ttfb, --loaded, --hold")
}

func duration(seconds float64) time.Duration {
	return time.Duration(seconds * float64(time.Second))
}

// connectAll opens connections, with a limit on concurrent handshakes. If count is 1, it also
// returns the duration of the handshake in seconds.
func (s stage) connectAll(count int) ([]Conn, *float64, error) {
	connections := make([]Conn, count)
	start := time.Now()
	_, _, err := together(min(opening, count), func(index int) (uint64, uint64, error) {
		for at := index; at < count; at += opening {
			connection, err := s.client.Dial(0)
			if err != nil {
				return 0, 0, err
			}
			connections[at] = connection
		}
		return 0, 0, nil
	})
	if err != nil || count > 1 {
		return connections, nil, err
	}
	seconds := time.Since(start).Seconds()
	return connections, &seconds, nil
}

// together runs work concurrently for each index below count, and adds up the bytes and
// completions.
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

// share returns one of count equal shares of bytes. The first share also gets the remainder.
func share(bytes, count, index uint64) uint64 {
	if index == 0 {
		return bytes/count + bytes%count
	}
	return bytes / count
}

func (s stage) fetchAll() (*result, error) {
	connections, handshake, err := s.connectAll(int(s.connections))
	if err != nil {
		return nil, err
	}
	get := fetch
	if s.Protocol == H3 {
		get = func(connection Conn, wanted uint64) (uint64, error) {
			return get3(connection, fmt.Sprintf("/%d", wanted), wanted)
		}
	}
	start := time.Now()
	count := s.connections * s.streams
	bytes, count, err := together(int(count), func(index int) (uint64, uint64, error) {
		at := uint64(index) / s.streams
		wanted := share(share(s.download, s.connections, at), s.streams, uint64(index)%s.streams)
		bytes, err := get(connections[at], wanted)
		return bytes, 1, err
	})
	if err != nil {
		return nil, err
	}
	seconds := time.Since(start).Seconds()
	for _, connection := range connections {
		connection.Close(0)
	}
	return &result{Bytes: bytes, Count: count, Seconds: seconds, HandshakeSeconds: handshake}, nil
}

// get3 fetches a path over HTTP/3.
func get3(connection Conn, path string, wanted uint64) (uint64, error) {
	var seen check
	err := connection.(Fetcher).Get(path, &seen)
	seen.finish()
	if err == nil && seen.at != wanted {
		err = fmt.Errorf("%d bytes of %d", seen.at, wanted)
	}
	return seen.at, err
}

func (s stage) sendAll() (*result, error) {
	connections, handshake, err := s.connectAll(1)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	stream, err := connections[0].Open()
	if err != nil {
		return nil, err
	}
	if _, err := stream.Write(binary.BigEndian.AppendUint64(nil, head)); err != nil {
		return nil, err
	}
	if err := WritePattern(stream, s.upload); err != nil {
		return nil, err
	}
	if err := stream.CloseWrite(); err != nil {
		return nil, err
	}
	number, err := io.ReadAll(stream)
	if err != nil {
		return nil, err
	}
	seconds := time.Since(start).Seconds()
	if len(number) != head {
		return nil, fmt.Errorf("the response has %d bytes", len(number))
	}
	connections[0].Close(0)
	bytes := binary.BigEndian.Uint64(number)
	return &result{Bytes: bytes, Count: 1, Seconds: seconds, HandshakeSeconds: handshake}, nil
}

// exchange opens a connection and runs a minimal exchange on it. After the exchange, the server's
// session tickets have arrived.
func (s stage) exchange(worker int) (bytes uint64, resumed bool, err error) {
	connection, err := s.client.Dial(worker)
	if err != nil {
		return 0, false, err
	}
	bytes, err = fetch(connection, head)
	resumed = connection.IsResumed()
	connection.Close(0)
	return bytes, resumed, err
}

func (s stage) handshakeAll(limit time.Duration) (*result, error) {
	for worker := range s.parallel {
		// Gets a session ticket for this worker.
		if _, _, err := s.exchange(worker); err != nil {
			return nil, err
		}
	}
	var mutex sync.Mutex
	var resumed uint64
	start := time.Now()
	bytes, count, err := together(s.parallel, func(worker int) (bytes, count uint64, err error) {
		for time.Since(start) < limit {
			more, again, err := s.exchange(worker)
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
	return &result{Bytes: bytes, Count: count, Resumed: &resumed, Seconds: seconds}, nil
}

func (s stage) requestAll(limit time.Duration) (*result, error) {
	connections, handshake, err := s.connectAll(1)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	bytes, count, err := together(s.parallel, func(int) (bytes, count uint64, err error) {
		for time.Since(start) < limit {
			more, err := get3(connections[0], "/1k", SmallBody)
			if err != nil {
				return bytes, count, err
			}
			bytes += more
			count++
		}
		return bytes, count, nil
	})
	if err != nil {
		return nil, err
	}
	seconds := time.Since(start).Seconds()
	connections[0].Close(0x100)
	return &result{Bytes: bytes, Count: count, Seconds: seconds, HandshakeSeconds: handshake}, nil
}

func (s stage) firstByteAll(limit time.Duration) (*result, error) {
	// Runs one exchange before the clock starts, so that one-time initialization is not measured.
	if _, _, err := s.exchange(0); err != nil {
		return nil, err
	}
	var times []float64
	var bytes uint64
	start := time.Now()
	for time.Since(start) < limit {
		begun := time.Now()
		connection, err := s.client.Dial(0)
		if err != nil {
			return nil, err
		}
		stream, err := ask(connection, 1)
		if err != nil {
			return nil, err
		}
		count, err := io.ReadFull(stream, make([]byte, 1))
		if err != nil {
			return nil, err
		}
		times = append(times, time.Since(begun).Seconds())
		bytes += uint64(count)
		connection.Close(0)
	}
	seconds := time.Since(start).Seconds()
	first := firstByte{Median: rank(times, 0.5), P95: rank(times, 0.95)}
	return &result{Bytes: bytes, Count: uint64(len(times)), Seconds: seconds, FirstByteSeconds: &first}, nil
}

// rank returns the value at quantile part (nearest rank, rounded up). There must be at least one
// time.
func rank(times []float64, part float64) float64 {
	slices.Sort(times)
	return times[int(math.Ceil(float64(len(times)-1)*part))]
}

// loadedAll measures small exchanges, first on an idle connection and then during a bulk download
// on it.
func (s stage) loadedAll(limit time.Duration) (*result, error) {
	connections, handshake, err := s.connectAll(1)
	if err != nil {
		return nil, err
	}
	connection := connections[0]
	unloaded, err := exchangeFor(connection, limit)
	if err != nil {
		return nil, err
	}
	stream, err := ask(connection, bulk)
	if err != nil {
		return nil, err
	}
	number := make([]byte, head)
	if _, err := io.ReadFull(stream, number); err != nil {
		return nil, err
	}
	var seen guarded
	ended := make(chan error, 1)
	go func() {
		_, err := read(stream, make([]byte, chunk), &seen)
		ended <- errors.Join(errors.New("the bulk download ended too early"), err)
	}()
	before := seen.bytes()
	start := time.Now()
	loaded, err := exchangeFor(connection, limit)
	if err != nil {
		return nil, err
	}
	seconds := time.Since(start).Seconds()
	bytes := seen.bytes() - before
	select {
	case err := <-ended:
		return nil, err
	default:
	}
	seen.finish()
	connection.Close(0)
	times := func(seconds []float64) exchanges {
		return exchanges{Median: rank(seconds, 0.5), P99: rank(seconds, 0.99)}
	}
	count := uint64(len(loaded))
	return &result{
		Bytes: bytes + count*smallExchange, Count: count, Seconds: seconds, HandshakeSeconds: handshake,
		Latency: &latency{Unloaded: times(unloaded), Loaded: times(loaded), BulkBytes: bytes},
	}, nil
}

// guarded is a check that one goroutine writes to while another reads it.
type guarded struct {
	mutex sync.Mutex
	check check
}

func (g *guarded) Write(data []byte) (int, error) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return g.check.Write(data)
}

func (g *guarded) bytes() uint64 {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return g.check.at
}

func (g *guarded) finish() {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.check.finish()
}

// exchangeFor runs exchanges one after the other until limit, and returns their durations in
// seconds. Each lasts from the opening of the stream to its end.
func exchangeFor(connection Conn, limit time.Duration) ([]float64, error) {
	var times []float64
	start := time.Now()
	for len(times) == 0 || time.Since(start) < limit {
		begun := time.Now()
		bytes, err := fetch(connection, smallExchange)
		if err == nil && bytes != smallExchange {
			err = fmt.Errorf("an exchange of %d bytes", bytes)
		}
		if err != nil {
			return nil, err
		}
		times = append(times, time.Since(begun).Seconds())
	}
	return times, nil
}

func (s stage) holdAll() (*result, error) {
	start := time.Now()
	connections, _, err := s.connectAll(s.hold)
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
		if connection.IsOpen() {
			open++
		}
	}
	return &result{Count: open, Seconds: seconds}, nil
}
