// Package equic reports the connections of a QUIC server to an eQUIC gateway. The gateway is an XDP
// program that drops packets of a client that would exceed the client's quota of connections. The
// package is a thin layer over the C library libequic, which cgo finds with pkg-config.
//
// A server joins a running gateway (`equic gateway run`), or loads its own gateway with [Open] and
// [Gateway.Attach]. It gets the [Service], and holds one [Guard] per connection, from the completed
// handshake until the connection is closed:
//
//	gateway, err := equic.Join("eth0", "my server", equic.JoinOptions{})
//	service, err := gateway.Service("")
//	...
//	guard, err := service.Opened(conn.RemoteAddr())
//	defer guard.Close()
//
// All functions may be called from any goroutine. Connections are counted in memory that is shared
// with the kernel, so only functions of [Gateway] make system calls.
//
//   - equic.go: gateways; service.go: services and guards; event.go: events of a joined gateway
//   - retry.go: key rings and Retry tokens; ids.go: connection IDs; error.go: errors
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
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"runtime/cgo"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"
)

// Mode is how the program is attached to an interface.
type Mode int

const (
	// ModeAuto is native if the driver supports it, otherwise generic.
	ModeAuto Mode = C.EQUIC_MODE_AUTO
	// ModeNative is only native, in the driver. Attaching fails if the driver does not support it.
	ModeNative Mode = C.EQUIC_MODE_NATIVE
	// ModeGeneric is after the driver. It works on every interface, but costs more.
	ModeGeneric Mode = C.EQUIC_MODE_GENERIC
)

// Options are the options of [Open], which creates a gateway with one service. The zero value
// protects UDP port 443 on every address and limits nothing.
type Options struct {
	// Name is the name of the gateway in `equic gateway status`. If it is empty, the name is "equic".
	Name string
	// Service is the name of the service. If it is empty, the name is "quic".
	Service string
	// Listen has ports and addresses: "443", or "192.0.2.1:443, [2001:db8::1]:443". If it is empty, it
	// is "443".
	Listen string
	// Settings has keys and values of `equic gateway run -o`, for example "max_connections": "100",
	// "new_per_source": "20/s burst 40" or "gateway.dry_run": "true". `equic gateway settings` lists
	// them.
	Settings map[string]string
}

// Gateway is an XDP program with its services and lists, loaded or joined by this process.
type Gateway struct {
	lock   sync.RWMutex
	handle *C.equic_gateway
}

// texts creates C strings and frees them together. An empty string becomes NULL, which selects the
// library's default.
type texts []unsafe.Pointer

func (t *texts) add(text string) *C.char {
	if text == "" {
		return nil
	}
	copied := C.CString(text)
	*t = append(*t, unsafe.Pointer(copied))
	return copied
}

// settings creates an array of C strings "KEY=VALUE", sorted by key, with a NULL behind the last
// one.
func (t *texts) settings(settings map[string]string) (**C.char, error) {
	count := len(settings) + 1
	array := C.malloc(C.size_t(count) * C.size_t(unsafe.Sizeof((*C.char)(nil))))
	*t = append(*t, array)
	all := unsafe.Slice((**C.char)(array), count)
	clear(all)
	for index, key := range slices.Sorted(maps.Keys(settings)) {
		text := key + "=" + settings[key]
		if strings.Contains(key, "=") || strings.Contains(text, "\x00") {
			return nil, &Error{Code: ErrInvalidArgument, Message: fmt.Sprintf("the setting %.100q contains `=` in its key, or a zero byte", text)}
		}
		all[index] = t.add(text)
	}
	return (**C.char)(array), nil
}

func (t *texts) free() {
	for _, text := range *t {
		C.free(text)
	}
}

// Version returns the version of the loaded library.
func Version() string {
	return C.GoString(C.equic_version())
}

// Open loads a gateway that belongs to this process. It protects nothing until it is attached, and
// it ends with the process. Needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN.
func Open(options Options) (*Gateway, error) {
	var texts texts
	defer texts.free()
	var native C.equic_options
	C.equic_options_init(&native, C.sizeof_equic_options)
	native.name = texts.add(options.Name)
	native.service = texts.add(options.Service)
	native.listen = texts.add(options.Listen)
	settings, err := texts.settings(options.Settings)
	if err != nil {
		return nil, err
	}
	native.settings = settings
	return made(func(handle **C.equic_gateway) C.enum_equic_error {
		return C.equic_gateway_open(&native, handle)
	})
}

// OpenConfig loads a gateway from the text of a configuration (TOML, docs/equic.example.toml).
func OpenConfig(config string) (*Gateway, error) {
	text := C.CString(config)
	defer C.free(unsafe.Pointer(text))
	return made(func(handle **C.equic_gateway) C.enum_equic_error {
		return C.equic_gateway_open_config(text, handle)
	})
}

// TokenCheck is whether a server checks the tokens of a gateway's Retry packets ([Ring.Verify]), and
// with which keys.
type TokenCheck int

const (
	// TokenCheckNone means that the server does not check tokens.
	TokenCheckNone TokenCheck = C.EQUIC_TOKEN_CHECK_NONE
	// TokenCheckGatewayKeys means that the server checks tokens with the gateway's key ring
	// ([Gateway.Ring]).
	TokenCheckGatewayKeys TokenCheck = C.EQUIC_TOKEN_CHECK_GATEWAY_KEYS
	// TokenCheckOwnKeys means that the server checks tokens with a ring from another source, for
	// example a file.
	TokenCheckOwnKeys TokenCheck = C.EQUIC_TOKEN_CHECK_OWN_KEYS
)

// JoinOptions are the options of [Join] and [Connect]. The zero value is for a server that neither
// checks tokens nor issues IDs. The gateway refuses to enable Retry or check_ids while a server has
// joined that does not support it, because clients of that server could not connect.
type JoinOptions struct {
	// TokenCheck says whether the server checks the tokens of the gateway's Retry packets.
	TokenCheck TokenCheck
	// IssueIDs means that the server creates all its connection IDs with the gateway's key ring
	// ([Gateway.ConnectionIDs]). The gateway may check them (check_ids).
	IssueIDs bool
	// OnEvent is called with each event of the joined gateway and a line for a log, by a thread of
	// the library. It must not close the gateway. If it is nil, events are logged as warnings of the
	// default [slog.Logger].
	OnEvent func(JoinEvent, string)
}

func (o JoinOptions) native() C.equic_join_options {
	var native C.equic_join_options
	C.equic_join_options_init(&native, C.sizeof_equic_join_options)
	native.token_check = C.int(o.TokenCheck)
	if o.IssueIDs {
		native.issue_ids = 1
	}
	return native
}

// Join joins a gateway of another process. selector is an interface, the gateway's name or the ID
// of its program. With an empty selector, there must be exactly one gateway. name identifies this
// process in `equic gateway status`. If it is empty, the process ID is used. Needs CAP_SYS_ADMIN.
//
// When that gateway ends, the library joins the next one automatically, and reports all open
// connections to it ([JoinOptions.OnEvent]).
func Join(selector, name string, options JoinOptions) (*Gateway, error) {
	var texts texts
	defer texts.free()
	which, who, native := texts.add(selector), texts.add(name), options.native()
	return followed(options.OnEvent, func(handle **C.equic_gateway) C.enum_equic_error {
		return C.equic_gateway_join(which, who, &native, handle)
	})
}

// Connect joins the gateway at a Unix socket (`equic gateway run --socket PATH`). It needs no
// privileges. Settings, lists and counters are not available. Otherwise it is like [Join]. The
// gateway gives its key ring only to users who may serve all its services. Other users join without
// it.
func Connect(path, name string, options JoinOptions) (*Gateway, error) {
	var texts texts
	defer texts.free()
	where, who, native := texts.add(path), texts.add(name), options.native()
	return followed(options.OnEvent, func(handle **C.equic_gateway) C.enum_equic_error {
		return C.equic_gateway_connect(where, who, &native, handle)
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

// Close closes the gateway. A gateway of this process is detached from its interfaces. A joined
// gateway continues, without the counts of this process. Services and guards stay valid, but no
// longer count. A second Close does nothing.
func (g *Gateway) Close() error {
	g.lock.Lock()
	defer g.lock.Unlock()
	C.equic_gateway_close(g.handle)
	g.handle = nil
	return nil
}

// with calls the library with the gateway's handle, which cannot be closed meanwhile. For a closed
// gateway the handle is NULL, and the library returns an error.
func (g *Gateway) with(do func(*C.equic_gateway) C.enum_equic_error) error {
	g.lock.RLock()
	defer g.lock.RUnlock()
	return call(func() C.enum_equic_error { return do(g.handle) })
}

// Attach attaches the program to a network interface.
func (g *Gateway) Attach(device string, mode Mode) error {
	var texts texts
	defer texts.free()
	name := texts.add(device)
	return g.with(func(handle *C.equic_gateway) C.enum_equic_error {
		return C.equic_gateway_attach(handle, name, C.int(mode))
	})
}

// Detach detaches the program from a network interface, or from all if device is empty. Counts,
// lists and limits are kept.
func (g *Gateway) Detach(device string) error {
	var texts texts
	defer texts.free()
	name := texts.add(device)
	return g.with(func(handle *C.equic_gateway) C.enum_equic_error {
		return C.equic_gateway_detach(handle, name)
	})
}

// Service returns the service of this name. With an empty name, there must be exactly one service.
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

// Deny drops every packet from an address or prefix. The entry lasts for duration, or until Forget
// if that is 0.
func (g *Gateway) Deny(prefix string, duration time.Duration) error {
	text := C.CString(prefix)
	defer C.free(unsafe.Pointer(text))
	return g.with(func(handle *C.equic_gateway) C.enum_equic_error {
		return C.equic_deny(handle, text, milliseconds(duration))
	})
}

// Allow exempts an address or prefix from quotas and rates. The entry lasts for duration, or until
// Forget if that is 0.
func (g *Gateway) Allow(prefix string, duration time.Duration) error {
	text := C.CString(prefix)
	defer C.free(unsafe.Pointer(text))
	return g.with(func(handle *C.equic_gateway) C.enum_equic_error {
		return C.equic_allow(handle, text, milliseconds(duration))
	})
}

// Forget removes an address or prefix from both lists.
func (g *Gateway) Forget(prefix string) error {
	text := C.CString(prefix)
	defer C.free(unsafe.Pointer(text))
	return g.with(func(handle *C.equic_gateway) C.enum_equic_error {
		return C.equic_forget(handle, text)
	})
}

// milliseconds rounds up, because a short duration must not become 0, which means no expiry.
func milliseconds(duration time.Duration) C.uint64_t {
	if duration <= 0 {
		return 0
	}
	return C.uint64_t((duration + time.Millisecond - 1) / time.Millisecond)
}
