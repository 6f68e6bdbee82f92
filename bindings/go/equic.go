// Package equic feeds an eQUIC gateway: an XDP program that keeps what would take a QUIC client over
// its quota of connections away from the server. It is a thin layer over the C library libequic,
// which cgo finds by pkg-config.
//
// A server joins a gateway that runs (`equic gateway run`), or loads one of its own with [Open] and
// [Gateway.Attach]; takes its [Service]; and holds one [Guard] per connection, from the completed
// handshake until the connection is closed:
//
//	gateway, err := equic.Join("eth0", "my server")
//	service, err := gateway.Service("")
//	...
//	guard, err := service.Opened(conn.RemoteAddr())
//	defer guard.Close()
//
// Everything may be called from any goroutine. What counts is memory shared with the kernel: no call
// but those of [Gateway] makes a system call.
//
//   - equic.go: gateways; service.go: services and guards; event.go: what is told of a gateway that was
//     joined; retry.go: key rings and Retry tokens; ids.go: connection IDs; error.go: errors.
package equic

/*
#cgo pkg-config: equic
#include <equic.h>
#include <stdint.h>
#include <stdlib.h>

enum equic_error equic_go_notify(const equic_gateway *gateway, uintptr_t tell);
*/
import "C"

import (
	"log/slog"
	"runtime"
	"runtime/cgo"
	"sync"
	"time"
	"unsafe"
)

// Policy is what happens to a source that holds as many connections as its limit.
type Policy int

const (
	// PolicyNew drops what would open one more connection, and nothing else.
	PolicyNew Policy = C.EQUIC_POLICY_NEW
	// PolicyStrict drops every packet of a source with more than its limit.
	PolicyStrict Policy = C.EQUIC_POLICY_STRICT
	// PolicyUnderway is PolicyNew with handshakes under way counted too.
	PolicyUnderway Policy = C.EQUIC_POLICY_UNDERWAY
)

// Mode is how the program is attached to an interface.
type Mode int

const (
	// ModeAuto is native, or generic where the driver cannot.
	ModeAuto Mode = C.EQUIC_MODE_AUTO
	// ModeNative is in the driver, or not at all.
	ModeNative Mode = C.EQUIC_MODE_NATIVE
	// ModeGeneric is behind the driver: works on every interface, costs more.
	ModeGeneric Mode = C.EQUIC_MODE_GENERIC
)

// Options say what [Open] shall make: one service. The zero value protects UDP port 443 on every
// address and limits nothing. Rates are written as in the configuration, for example
// "20/s burst 40"; empty means no limit.
type Options struct {
	// Name is what `equic gateway status` calls the gateway; empty: "equic".
	Name string
	// Service is the name of the service; empty: "quic".
	Service string
	// Listen has ports and addresses: "443", or "192.0.2.1:443, [2001:db8::1]:443"; empty: "443".
	Listen string
	// Policy is what happens at the limit.
	Policy Policy
	// MaxConnections a source may hold at a time; 0: any number.
	MaxConnections uint32
	// DryRun counts what would be dropped, and drops nothing.
	DryRun bool
	// NewPerSource limits new connections of a source.
	NewPerSource string
	// NewPerService limits new connections of all sources together.
	NewPerService string
	// PacketsPerSource limits packets of a source.
	PacketsPerSource string
	// BytesPerSource limits bytes of UDP payload of a source.
	BytesPerSource string
}

// Gateway is an XDP program with its services and lists, loaded or joined by this process.
type Gateway struct {
	lock   sync.RWMutex
	handle *C.equic_gateway
}

// texts makes C strings, and frees them together. Empty ones are NULL: the library's default.
type texts []unsafe.Pointer

func (t *texts) add(text string) *C.char {
	if text == "" {
		return nil
	}
	copied := C.CString(text)
	*t = append(*t, unsafe.Pointer(copied))
	return copied
}

func (t *texts) free() {
	for _, text := range *t {
		C.free(text)
	}
}

// Version of the library that runs.
func Version() string {
	return C.GoString(C.equic_version())
}

// Open loads a gateway of this process's own. It protects nothing until it is attached, and goes
// with the process. Needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN.
func Open(options Options) (*Gateway, error) {
	var texts texts
	defer texts.free()
	var native C.equic_options
	C.equic_options_init(&native, C.sizeof_equic_options)
	native.name = texts.add(options.Name)
	native.service = texts.add(options.Service)
	native.listen = texts.add(options.Listen)
	native.policy = C.int(options.Policy)
	native.max_connections = C.uint32_t(options.MaxConnections)
	if options.DryRun {
		native.dry_run = 1
	}
	native.new_per_source = texts.add(options.NewPerSource)
	native.new_per_service = texts.add(options.NewPerService)
	native.packets_per_source = texts.add(options.PacketsPerSource)
	native.bytes_per_source = texts.add(options.BytesPerSource)
	return made(func(handle **C.equic_gateway) C.enum_equic_error {
		return C.equic_gateway_open(&native, handle)
	})
}

// OpenConfig loads a gateway as a configuration says, given as text (TOML, docs/equic.example.toml).
func OpenConfig(config string) (*Gateway, error) {
	text := C.CString(config)
	defer C.free(unsafe.Pointer(text))
	return made(func(handle **C.equic_gateway) C.enum_equic_error {
		return C.equic_gateway_open_config(text, handle)
	})
}

// Join finds a gateway that another process runs, by interface, name or program id; with an empty
// selector, the only one there is. name is what `equic gateway status` calls this process; empty:
// its process id. Needs CAP_SYS_ADMIN.
//
// When that gateway ends, the next one is joined by itself, with every connection that is open. Both
// are warnings of the default [slog.Logger]; [JoinWith] has them told to a function.
func Join(selector, name string) (*Gateway, error) {
	return JoinWith(selector, name, nil)
}

// JoinWith is [Join] with a function that is told, with a line for a log, what becomes of the gateway. It
// is called from a thread of the library, and must not close the gateway. With nil it is as with [Join].
func JoinWith(selector, name string, tell func(JoinEvent, string)) (*Gateway, error) {
	return JoinChecking(selector, name, TokenKeysNone, tell)
}

// TokenKeys is what a server does about the tokens of a gateway's Retry packets, and its connection IDs.
type TokenKeys int

const (
	// TokenKeysNone: it does not check tokens.
	TokenKeysNone TokenKeys = C.EQUIC_TOKEN_KEYS_NONE
	// TokenKeysTake: it takes the gateway's key ring ([Gateway.Ring]) and checks tokens.
	TokenKeysTake TokenKeys = C.EQUIC_TOKEN_KEYS_TAKE
	// TokenKeysOwn: it checks tokens, and has the ring already: from a file.
	TokenKeysOwn TokenKeys = C.EQUIC_TOKEN_KEYS_OWN
	// TokenKeysTakeForIDs: it takes the ring, checks tokens, and makes all its connection IDs with it
	// ([Gateway.ConnectionIDs]): the gateway may check them (check_ids).
	TokenKeysTakeForIDs TokenKeys = C.EQUIC_TOKEN_KEYS_TAKE_FOR_IDS
	// TokenKeysIDsOnly: it takes the ring and makes all its connection IDs with it, and does not check tokens:
	// for QUIC stacks whose tokens are their own.
	TokenKeysIDsOnly TokenKeys = C.EQUIC_TOKEN_KEYS_IDS_ONLY
)

// JoinChecking is [JoinWith] for a server that checks the tokens of the gateway's Retry packets, or makes its
// connection IDs with the gateway's keys. The gateway refuses to be set to Retry, or to check_ids, while a server has
// not said so, as its clients would get no further.
func JoinChecking(selector, name string, keys TokenKeys, tell func(JoinEvent, string)) (*Gateway, error) {
	var texts texts
	defer texts.free()
	which, who := texts.add(selector), texts.add(name)
	return followed(tell, func(handle **C.equic_gateway) C.enum_equic_error {
		return C.equic_gateway_join_checking(which, who, C.int(keys), handle)
	})
}

// ConnectChecking joins the gateway behind a Unix socket (`equic gateway run --socket PATH`), which takes no
// privileges. Otherwise as [JoinChecking]; settings, lists and counters are out of reach. The gateway gives its key
// ring to users who may serve all its services; others join without it.
func ConnectChecking(path, name string, keys TokenKeys, tell func(JoinEvent, string)) (*Gateway, error) {
	var texts texts
	defer texts.free()
	where, who := texts.add(path), texts.add(name)
	return followed(tell, func(handle **C.equic_gateway) C.enum_equic_error {
		return C.equic_gateway_connect_checking(where, who, C.int(keys), handle)
	})
}

func followed(tell func(JoinEvent, string), join func(**C.equic_gateway) C.enum_equic_error) (*Gateway, error) {
	gateway, err := made(join)
	if err != nil {
		return nil, err
	}
	if tell == nil {
		tell = func(_ JoinEvent, message string) { slog.Warn(message) }
	}
	err = gateway.with(func(handle *C.equic_gateway) C.enum_equic_error {
		return C.equic_go_notify(handle, C.uintptr_t(cgo.NewHandle(tell)))
	})
	if err != nil {
		gateway.Close()
		return nil, err
	}
	return gateway, nil
}

func made(make func(**C.equic_gateway) C.enum_equic_error) (*Gateway, error) {
	gateway := new(Gateway)
	var handle *C.equic_gateway
	if err := call(func() C.enum_equic_error { return make(&handle) }); err != nil {
		return nil, err
	}
	gateway.handle = handle
	return gateway, nil
}

// Close ends the gateway: the program leaves its interfaces; one that was joined stays, without this
// process's counts. Services and guards stay valid and count for nobody. A second Close does nothing.
func (g *Gateway) Close() error {
	g.lock.Lock()
	defer g.lock.Unlock()
	C.equic_gateway_close(g.handle)
	g.handle = nil
	return nil
}

// with calls the library with the gateway's handle, which cannot be closed meanwhile. The library
// answers for a closed one (NULL).
func (g *Gateway) with(do func(*C.equic_gateway) C.enum_equic_error) error {
	g.lock.RLock()
	defer g.lock.RUnlock()
	return call(func() C.enum_equic_error { return do(g.handle) })
}

// Attach puts the program on a network interface.
func (g *Gateway) Attach(device string, mode Mode) error {
	var texts texts
	defer texts.free()
	name := texts.add(device)
	return g.with(func(handle *C.equic_gateway) C.enum_equic_error {
		return C.equic_gateway_attach(handle, name, C.int(mode))
	})
}

// Detach takes the program off a network interface; empty: off all. Counts, lists, limits stay.
func (g *Gateway) Detach(device string) error {
	var texts texts
	defer texts.free()
	name := texts.add(device)
	return g.with(func(handle *C.equic_gateway) C.enum_equic_error {
		return C.equic_gateway_detach(handle, name)
	})
}

// Service of that name; empty: the only one there is.
func (g *Gateway) Service(name string) (*Service, error) {
	var texts texts
	defer texts.free()
	text := texts.add(name)
	var handle *C.equic_service
	err := g.with(func(gateway *C.equic_gateway) C.enum_equic_error {
		return C.equic_gateway_service(gateway, text, &handle)
	})
	if err != nil {
		return nil, err
	}
	service := &Service{handle: handle}
	runtime.SetFinalizer(service, func(service *Service) { C.equic_service_release(service.handle) })
	return service, nil
}

// Set changes a setting while the gateway runs, as `equic gateway set KEY=VALUE` does.
func (g *Gateway) Set(key, value string) error {
	name, text := C.CString(key), C.CString(value)
	defer C.free(unsafe.Pointer(name))
	defer C.free(unsafe.Pointer(text))
	return g.with(func(handle *C.equic_gateway) C.enum_equic_error {
		return C.equic_set(handle, name, text)
	})
}

// Deny drops every packet of an address or prefix, for a time; 0: until Forget.
func (g *Gateway) Deny(prefix string, duration time.Duration) error {
	text := C.CString(prefix)
	defer C.free(unsafe.Pointer(text))
	return g.with(func(handle *C.equic_gateway) C.enum_equic_error {
		return C.equic_deny(handle, text, milliseconds(duration))
	})
}

// Allow exempts an address or prefix from quotas and rates, for a time; 0: until Forget.
func (g *Gateway) Allow(prefix string, duration time.Duration) error {
	text := C.CString(prefix)
	defer C.free(unsafe.Pointer(text))
	return g.with(func(handle *C.equic_gateway) C.enum_equic_error {
		return C.equic_allow(handle, text, milliseconds(duration))
	})
}

// Forget takes an address or prefix off both lists.
func (g *Gateway) Forget(prefix string) error {
	text := C.CString(prefix)
	defer C.free(unsafe.Pointer(text))
	return g.with(func(handle *C.equic_gateway) C.enum_equic_error {
		return C.equic_forget(handle, text)
	})
}

// milliseconds rounds up: a short time must not become 0, which is for ever.
func milliseconds(duration time.Duration) C.uint64_t {
	if duration <= 0 {
		return 0
	}
	return C.uint64_t((duration + time.Millisecond - 1) / time.Millisecond)
}
