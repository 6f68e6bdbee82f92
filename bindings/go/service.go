package equic

/*
#include <equic.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

static socklen_t equic_go_address(struct sockaddr_in6 *to, const void *ip, uint16_t port)
{
	memset(to, 0, sizeof(*to));
	to->sin6_family = AF_INET6;
	to->sin6_port = htons(port);
	memcpy(&to->sin6_addr, ip, sizeof(to->sin6_addr));
	return sizeof(*to);
}
*/
import "C"

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"unsafe"
)

// Service is a service of a gateway, for counting its connections. It need not be closed.
type Service struct {
	handle *C.equic_service
}

// Guard is an open connection. It counts for its source until Close.
type Guard struct {
	lock    sync.Mutex
	handle  *C.equic_connection
	service *Service
	address string
	count   uint32
	flags   uint32
}

// Counts has the number of packets with one reason.
type Counts struct {
	// Packets is the number of packets with this reason.
	Packets uint64
	// Bytes is the UDP payload of these packets, in bytes.
	Bytes uint64
	// Dropped is the number of packets that were really dropped. It is 0 in a dry run.
	Dropped uint64
}

// Name returns the name of the service.
func (s *Service) Name() string {
	defer runtime.KeepAlive(s)
	return C.GoString(C.equic_service_name(s.handle))
}

// Limit returns the current limit of connections per source. 0 means no limit.
func (s *Service) Limit() uint32 {
	defer runtime.KeepAlive(s)
	return uint32(C.equic_service_limit(s.handle))
}

// Count returns the number of connections of the peer's source in this process.
func (s *Service) Count(peer net.Addr) (uint32, error) {
	defer runtime.KeepAlive(s)
	address, length, err := native(peer)
	if err != nil {
		return 0, err
	}
	var count C.uint32_t
	err = call(func() C.enum_equic_error {
		return C.equic_service_count(s.handle, (*C.struct_sockaddr)(unsafe.Pointer(&address)), length, &count)
	})
	return uint32(count), err
}

// Full returns whether the peer's source holds as many connections in this process as its limit. It
// is for servers that can refuse connections before the handshake. Returns false for an invalid
// address.
func (s *Service) Full(peer net.Addr) bool {
	defer runtime.KeepAlive(s)
	address, length, err := native(peer)
	if err != nil {
		return false
	}
	return C.equic_service_full(s.handle, (*C.struct_sockaddr)(unsafe.Pointer(&address)), length) != 0
}

// Opened counts a connection of peer. Call it when the handshake is complete. The caller must close
// the guard, even if it is over the limit.
func (s *Service) Opened(peer net.Addr) (*Guard, error) {
	defer runtime.KeepAlive(s)
	address, length, err := native(peer)
	if err != nil {
		return nil, err
	}
	var handle *C.equic_connection
	var count, flags C.uint32_t
	err = call(func() C.enum_equic_error {
		return C.equic_opened(s.handle, (*C.struct_sockaddr)(unsafe.Pointer(&address)), length, &handle, &count, &flags)
	})
	if err != nil {
		return nil, err
	}
	return &Guard{handle: handle, service: s, address: peer.String(), count: uint32(count), flags: uint32(flags)}, nil
}

// Counter returns the number of packets to the service with this reason, by its name ("quota",
// "new", ...).
func (s *Service) Counter(reason string) (Counts, error) {
	defer runtime.KeepAlive(s)
	name := C.CString(reason)
	defer C.free(unsafe.Pointer(name))
	number := C.equic_reason_find(name)
	if number < 0 {
		return Counts{}, &Error{Code: ErrNotFound, Message: "there is no reason `" + reason + "`"}
	}
	var counts C.equic_counts
	err := call(func() C.enum_equic_error {
		return C.equic_counter(s.handle, C.uint32_t(number), &counts)
	})
	return Counts{uint64(counts.packets), uint64(counts.bytes), uint64(counts.dropped)}, err
}

// Moved moves the count of the connection to another address of its peer. If [Guard.OverLimit] then
// returns true, the new source is at its limit, and the server should close the connection. A call
// with the same address is cheap. Returns [ErrClosed] after Close, and for a nil guard.
//
// Call it only after the peer has proved that it receives packets at the address (path validation,
// RFC 9000 s.8.2). An attacker can forge any source address: if a server called it for every
// packet, it would count an attacker's connections at the address of a victim, who could then not
// connect.
func (g *Guard) Moved(peer net.Addr) error {
	if g == nil {
		return ErrClosed
	}
	g.lock.Lock()
	defer g.lock.Unlock()
	if g.handle == nil {
		return ErrClosed
	}
	if peer.String() == g.address {
		return nil
	}
	address, length, err := native(peer)
	if err != nil {
		return err
	}
	var count, flags C.uint32_t
	err = call(func() C.enum_equic_error {
		return C.equic_connection_moved(g.handle, (*C.struct_sockaddr)(unsafe.Pointer(&address)), length, &count, &flags)
	})
	if err == nil {
		g.address, g.count, g.flags = peer.String(), uint32(count), uint32(flags)
	}
	return err
}

// Close stops counting the connection. It does nothing for a nil guard, or when called again.
func (g *Guard) Close() error {
	if g == nil {
		return nil
	}
	g.lock.Lock()
	defer g.lock.Unlock()
	C.equic_connection_closed(g.handle)
	g.handle = nil
	return nil
}

// Count returns the number of connections of the source in this process, including this one, when
// this one was opened or moved.
func (g *Guard) Count() uint32 {
	g.lock.Lock()
	defer g.lock.Unlock()
	return g.count
}

// OverLimit returns whether the source holds more connections than its limit. The server should
// close this one.
func (g *Guard) OverLimit() bool {
	g.lock.Lock()
	defer g.lock.Unlock()
	return g.flags&C.EQUIC_OVER_LIMIT != 0
}

// Untracked returns whether there was no room to count this connection.
func (g *Guard) Untracked() bool {
	g.lock.Lock()
	defer g.lock.Unlock()
	return g.flags&C.EQUIC_UNTRACKED != 0
}

// native converts an address to the form of the library. IPv4 becomes an IPv4-mapped IPv6 address.
func native(peer net.Addr) (C.struct_sockaddr_in6, C.socklen_t, error) {
	var to C.struct_sockaddr_in6
	var from netip.AddrPort
	switch peer := peer.(type) {
	case *net.UDPAddr:
		from = peer.AddrPort()
	case nil:
		return to, 0, fmt.Errorf("%w: no address", ErrInvalidArgument)
	default:
		parsed, err := netip.ParseAddrPort(peer.String())
		if err != nil {
			return to, 0, fmt.Errorf("%w: %w", ErrInvalidArgument, err)
		}
		from = parsed
	}
	if !from.Addr().IsValid() {
		return to, 0, fmt.Errorf("%w: %v has no IP address", ErrInvalidArgument, peer)
	}
	ip := from.Addr().As16()
	length := C.equic_go_address(&to, unsafe.Pointer(&ip), C.uint16_t(from.Port()))
	return to, length, nil
}
