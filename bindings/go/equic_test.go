package equic

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

func udp(text string) net.Addr { return net.UDPAddrFromAddrPort(netip.MustParseAddrPort(text)) }

func name() string { return fmt.Sprintf("go-%d", os.Getpid()) }

// gateway loads a gateway with a limit of 2 connections. The tests run in a network namespace of
// their own.
func gateway(t *testing.T) (*Gateway, *Service) {
	t.Helper()
	gateway, err := Open(Options{
		Name:    name(),
		Service: "web",
		Listen:  "4433",
		Settings: map[string]string{
			"max_connections": "2",
			"new_per_source":  "20/s burst 40",
			"web.retry_hold":  "45s",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { gateway.Close() })
	service, err := gateway.Service("")
	if err != nil {
		t.Fatal(err)
	}
	return gateway, service
}

func count(t *testing.T, service *Service, peer net.Addr, want uint32) {
	t.Helper()
	if got, err := service.Count(peer); err != nil || got != want {
		t.Errorf("%v has %d connections (%v), not %d", peer, got, err, want)
	}
}

func opened(t *testing.T, service *Service, peer net.Addr) *Guard {
	t.Helper()
	guard, err := service.Opened(peer)
	if err != nil {
		t.Fatal(err)
	}
	return guard
}

// skip skips a test that needs something that is missing. In continuous integration, the test fails
// instead. The crate equic-testing has the same rule.
func skip(t *testing.T, missing string) {
	t.Helper()
	switch os.Getenv("CI") {
	case "", "0", "false":
		t.Skip(missing)
	default:
		t.Fatal(missing + "; in CI, no test may be skipped")
	}
}

// TestSettingsReachTheKernel reads them with the command `equic`, which EQUIC_COMMAND names.
func TestSettingsReachTheKernel(t *testing.T) {
	command := os.Getenv("EQUIC_COMMAND")
	if command == "" {
		skip(t, "EQUIC_COMMAND does not name the command equic")
	}
	gateway(t)
	out, err := exec.Command(command, "gateway", "status", "--json", "--gateway", name()).Output()
	if err != nil {
		t.Fatal(err)
	}
	var status struct {
		Services []map[string]any
	}
	if err := json.Unmarshal(out, &status); err != nil || len(status.Services) != 1 {
		t.Fatal(err, string(out))
	}
	service := status.Services[0]
	if service["max_connections"] != 2.0 || service["new_per_source"] != "20/s burst 40" || service["retry_hold"] != "45s" {
		t.Error(service)
	}
}

func TestGuardsCount(t *testing.T) {
	gateway, service := gateway(t)
	if service.Name() != "web" || service.Limit() != 2 {
		t.Errorf("%q, limit %d", service.Name(), service.Limit())
	}
	here, same, there := udp("192.0.2.1:1"), udp("[::ffff:192.0.2.1]:9"), udp("[2001:db8::1]:1")
	first, second := opened(t, service, here), opened(t, service, same)
	count(t, service, here, 2)
	if first.OverLimit() || second.OverLimit() || second.Count() != 2 || second.Untracked() {
		t.Error("two of two are too many")
	}
	if !service.Full(here) || service.Full(there) {
		t.Error("two of two are not full")
	}
	third := opened(t, service, here)
	if !third.OverLimit() {
		t.Error("three of two are not too many")
	}
	if err := third.Moved(there); err != nil || third.OverLimit() {
		t.Error(err, third.OverLimit())
	}
	count(t, service, here, 2)
	count(t, service, udp("[2001:db8::ffff]:2"), 1)
	for range 2 {
		first.Close()
	}
	count(t, service, here, 1)
	if err := first.Moved(there); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	second.Close()
	third.Close()
	count(t, service, here, 0)
	if err := gateway.Set("max_connections", "7"); err != nil || service.Limit() != 7 {
		t.Error(err, service.Limit())
	}
}

// TestBurstHoldsNoMoreThanTheLimit completes handshakes in parallel while other connections are
// closed. Connections over the limit must be reported, and when they are closed, the source must
// hold no more than its limit.
func TestBurstHoldsNoMoreThanTheLimit(t *testing.T) {
	_, service := gateway(t)
	peer := udp("192.0.2.1:1")
	for range 100 {
		var all sync.WaitGroup
		var lock sync.Mutex
		var kept []*Guard
		start := make(chan struct{})
		for range 32 {
			all.Add(1)
			go func() {
				defer all.Done()
				<-start
				guard, err := service.Opened(peer)
				if err != nil {
					t.Error(err)
					return
				}
				if guard.OverLimit() {
					guard.Close()
					return
				}
				lock.Lock()
				defer lock.Unlock()
				kept = append(kept, guard)
			}()
		}
		close(start)
		all.Wait()
		if len(kept) != 2 {
			t.Fatalf("%d of 32 may stay where the limit is 2", len(kept))
		}
		count(t, service, peer, 2)
		if !service.Full(peer) {
			t.Fatal("two of two are full")
		}
		for _, guard := range kept {
			guard.Close()
		}
		count(t, service, peer, 0)
	}
}

// TestProgramIsAttached sends datagrams to the protected port. The program must count them.
func TestProgramIsAttached(t *testing.T) {
	gateway, service := gateway(t)
	if err := gateway.Attach("lo", ModeGeneric); err != nil {
		t.Fatal(err)
	}
	if err := gateway.Deny("127.0.0.0/8", time.Minute); err != nil {
		t.Fatal(err)
	}
	before, err := service.Counter("denied")
	if err != nil {
		t.Fatal(err)
	}
	socket, err := net.Dial("udp", "127.0.0.1:4433")
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	if _, err := socket.Write([]byte("anybody there?")); err != nil {
		t.Fatal(err)
	}
	// The loopback interface delivers packets before the call returns.
	after, err := service.Counter("denied")
	if err != nil || after.Dropped != before.Dropped+1 || after.Bytes != before.Bytes+14 {
		t.Errorf("%+v, then %+v (%v)", before, after, err)
	}
	if err := gateway.Forget("127.0.0.0/8"); err != nil {
		t.Error(err)
	}
	if err := gateway.Forget("127.0.0.0/8"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if err := gateway.Detach("lo"); err != nil {
		t.Error(err)
	}
}

func TestJoinedGatewayCounts(t *testing.T) {
	owner, _ := gateway(t)
	joined, err := Join(fmt.Sprintf("go-%d", os.Getpid()), "another", JoinOptions{})
	if err != nil {
		t.Fatal(err)
	}
	service, err := joined.Service("web")
	if err != nil {
		t.Fatal(err)
	}
	guard := opened(t, service, udp("192.0.2.1:1"))
	count(t, service, udp("192.0.2.1:1"), 1)
	owner.Close()
	joined.Close()
	guard.Close()
}

func TestKeysAreGivenToServersAsTheyJoin(t *testing.T) {
	owner, _ := gateway(t)
	defer owner.Close()
	ring, err := owner.Ring()
	if err != nil {
		t.Fatal(err)
	}
	token, err := ring.Seal(udp("192.0.2.1:4711"), original, retried)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("go-%d", os.Getpid())
	joined, err := Join(name, "checks", JoinOptions{TokenCheck: TokenCheckGatewayKeys, OnEvent: ignore})
	if err != nil {
		t.Fatal(err)
	}
	taken, err := joined.Ring()
	if err != nil {
		t.Fatal(err)
	}
	proof, err := taken.Verify(udp("192.0.2.1:4711"), retried, token)
	if err != nil || string(proof.OriginalDCID) != string(original) || string(proof.RetrySCID) != string(retried) {
		t.Fatal(proof, err)
	}
	if _, err := taken.Verify(udp("192.0.2.2:4711"), retried, token); !errors.Is(err, ErrProofForged) {
		t.Error(err)
	}
	joined.Close()
	if _, err := taken.Verify(udp("192.0.2.1:4711"), retried, token); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	for _, check := range []TokenCheck{TokenCheckNone, TokenCheckOwnKeys} {
		joined, err := Join(name, "", JoinOptions{TokenCheck: check, OnEvent: ignore})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := joined.Ring(); !errors.Is(err, ErrNotFound) {
			t.Error(check, err)
		}
		joined.Close()
	}
	if _, err := Join(name, "", JoinOptions{TokenCheck: 3}); !errors.Is(err, ErrInvalidArgument) {
		t.Error(err)
	}
	options := JoinOptions{TokenCheck: TokenCheckGatewayKeys}
	if _, err := Connect("/nonexistent/equic.sock", "", options); !errors.Is(err, ErrNoGateway) {
		t.Error(err)
	}
}

// ignore is for events that a test does not wait for.
func ignore(JoinEvent, string) {}

func TestIDsUseTheKeysOfTheGateway(t *testing.T) {
	owner, _ := gateway(t)
	defer owner.Close()
	ring, err := owner.Ring()
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("go-%d", os.Getpid())
	for _, check := range []TokenCheck{TokenCheckNone, TokenCheckGatewayKeys, TokenCheckOwnKeys} {
		joined, err := Join(name, "makes", JoinOptions{TokenCheck: check, IssueIDs: true, OnEvent: ignore})
		if err != nil {
			t.Fatal(err)
		}
		ids, err := joined.ConnectionIDs(9)
		if err != nil {
			t.Fatal(err)
		}
		slot, err := joined.Slot()
		if err != nil {
			t.Fatal(err)
		}
		id, err := ids.Generate()
		if err != nil || len(id) != ids.Len() || uint32(id[1]) != slot || id[2] != 9 {
			t.Fatal(id, slot, err)
		}
		checker, err := NewConnectionIDs(ring, ids.Len(), []byte("ab"))
		if err != nil {
			t.Fatal(err)
		}
		if err := checker.Check(id); err != nil {
			t.Error(err)
		}
		if err := ids.SetRing(ring); !errors.Is(err, ErrInvalidArgument) {
			t.Error(err)
		}
		joined.Close()
		if _, err := ids.Generate(); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
	joined, err := Join(name, "", JoinOptions{OnEvent: ignore})
	if err != nil {
		t.Fatal(err)
	}
	defer joined.Close()
	if _, err := joined.ConnectionIDs(0); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
}

func TestErrorsHaveCodesAndMessages(t *testing.T) {
	gateway, service := gateway(t)
	for _, address := range []net.Addr{nil, &net.UDPAddr{}, &net.UnixAddr{Name: "/tmp/socket"}} {
		if _, err := service.Opened(address); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("%v: %v", address, err)
		}
		if service.Full(address) {
			t.Errorf("%v is full", address)
		}
	}
	if err := gateway.Set("max_conections", "1"); !errors.Is(err, ErrConfig) {
		t.Error(err)
	}
	if _, err := gateway.Service("wbe"); !errors.Is(err, ErrNoSuchService) {
		t.Error(err)
	}
	if err := gateway.Attach("nowhere0", ModeAuto); !errors.Is(err, ErrNoSuchInterface) {
		t.Error(err)
	}
	if _, err := service.Counter("nonsense"); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "nonsense") {
		t.Error(err)
	}
	if _, err := Join("no such gateway", "", JoinOptions{}); !errors.Is(err, ErrNoGateway) {
		t.Error(err)
	}
	var failure *Error
	for _, wrong := range []struct {
		key, value string
		code       Code
		part       string
	}{
		{"new_per_source", "many", ErrConfig, "`new_per_source`: `many` is not a rate"},
		{"max_conections", "1", ErrConfig, "did you mean max_connections?"},
		{"retry_hold", "2h", ErrConfig, "1s to 1h"},
		{"gateway.sources", "1", ErrConfig, "64 to 16777216"},
		{"wbe.policy", "new", ErrNoSuchService, "wbe"},
		{"policy=strict", "", ErrInvalidArgument, "policy=strict"},
		{"policy", "new\x00", ErrInvalidArgument, "zero byte"},
		{"policy", strings.Repeat("x", 1<<20), ErrConfig, "at most 4096"},
	} {
		_, err := Open(Options{Settings: map[string]string{wrong.key: wrong.value}})
		if !errors.Is(err, wrong.code) || !errors.As(err, &failure) || !strings.Contains(failure.Message, wrong.part) {
			t.Errorf("%s: %v", wrong.key, err)
		}
	}
	gateway.Close()
	if err := gateway.Set("max_connections", "1"); !errors.Is(err, ErrInvalidArgument) {
		t.Error(err)
	}
}
