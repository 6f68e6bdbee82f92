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

// Service is a service of a gateway, to count connections to it. It needs no closing.
type Service struct {
	handle *C.equic_service
}

// Guard is one open connection, which counts for its source until Close.
type Guard struct {
	lock    sync.Mutex
	handle  *C.equic_connection
	service *Service
	address string
	count   uint32
	flags   uint32
}

// Counts of packets with one reason.
type Counts struct {
	// Packets judged so.
	Packets uint64
	// Bytes is their UDP payload.
	Bytes uint64
	// Dropped is how many were really dropped: none in a dry run.
	Dropped uint64
}

// Name of the service.
func (s *Service) Name() string {
	defer runtime.KeepAlive(s)
	return C.GoString(C.equic_service_name(s.handle))
}

// Limit is how many connections a source may hold, as set this moment; 0: any number.
func (s *Service) Limit() uint32 {
	defer runtime.KeepAlive(s)
	return uint32(C.equic_service_limit(s.handle))
}

// Count of connections that the peer's source holds in this process.
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

// Full says whether the peer's source holds as many connections in this process as it may: for
// hooks that refuse before a handshake. False for what is no address.
func (s *Service) Full(peer net.Addr) bool {
	defer runtime.KeepAlive(s)
	address, length, err := native(peer)
	if err != nil {
		return false
	}
	return C.equic_service_full(s.handle, (*C.struct_sockaddr)(unsafe.Pointer(&address)), length) != 0
}

// Opened counts a connection of peer, to be called when its handshake is complete. The guard is to be
// closed, whatever it says of itself.
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

// Counter is how many packets to the service had a reason, by its name ("quota", "new", ...).
func (s *Service) Counter(reason string) (Counts, error) {
	defer runtime.KeepAlive(s)
	name := C.CString(reason)
	defer C.free(unsafe.Pointer(name))
	number := C.equic_reason_find(name)
	if number < 0 {
		return Counts{}, &Error{Code: ErrNotFound, Message: "no reason is called `" + reason + "`"}
	}
	var counts C.equic_counts
	err := call(func() C.enum_equic_error {
		return C.equic_counter(s.handle, C.uint32_t(number), &counts)
	})
	return Counts{uint64(counts.packets), uint64(counts.bytes), uint64(counts.dropped)}, err
}

// Moved counts the connection at another address of its peer, and no longer at the old one. [Guard.OverLimit] then
// tells whether the new source is at its limit: close the connection. The same address again costs a comparison.
// It returns [ErrClosed] after Close, and for a nil guard.
//
// Call it only with an address at which the peer has proved that it receives (path validation, RFC 9000 s.8.2).
// Anybody can write any source address into a packet: a server that calls it with the address of the last packet
// counts an attacker's connections at the address of somebody else, who is shut out then.
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

// Close ends the count. A second Close does nothing, nor one of a nil guard.
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

// Count of the source's connections in this process when this one was opened or moved, with this one.
func (g *Guard) Count() uint32 {
	g.lock.Lock()
	defer g.lock.Unlock()
	return g.count
}

// OverLimit says that the source holds more connections than it may: the server should close this one.
func (g *Guard) OverLimit() bool {
	g.lock.Lock()
	defer g.lock.Unlock()
	return g.flags&C.EQUIC_OVER_LIMIT != 0
}

// Untracked says that there was no room to count this connection.
func (g *Guard) Untracked() bool {
	g.lock.Lock()
	defer g.lock.Unlock()
	return g.flags&C.EQUIC_UNTRACKED != 0
}

// native writes an address as the library reads it; IPv4 as an IPv4-mapped one.
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
