package equic

/*
#include <equic.h>
*/
import "C"

import "runtime"

// ConnectionIDs makes the connection IDs of one server process; two processes need server IDs of their own.
type ConnectionIDs struct {
	handle *C.equic_ids
	length int
}

// NewConnectionIDs makes IDs of length bytes, 8 to 20, that say serverID, at most 8 bytes, with a copy of the ring.
// Those that a gateway can check: [Gateway.ConnectionIDs].
func NewConnectionIDs(ring *Ring, length int, serverID []byte) (*ConnectionIDs, error) {
	defer runtime.KeepAlive(ring)
	var handle *C.equic_ids
	err := call(func() C.enum_equic_error {
		id, idLen := bytes(serverID)
		return C.equic_ids_new(ring.handle, C.size_t(length), id, idLen, &handle)
	})
	if err != nil {
		return nil, err
	}
	return newConnectionIDs(handle, length), nil
}

func newConnectionIDs(handle *C.equic_ids, length int) *ConnectionIDs {
	ids := &ConnectionIDs{handle, length}
	runtime.SetFinalizer(ids, func(ids *ConnectionIDs) { C.equic_ids_free(ids.handle) })
	return ids
}

// ConnectionIDs makes IDs that the gateway can check (check_ids), for a server that has joined with
// [TokenKeysTakeForIDs] or [TokenKeysIDsOnly], all of whose IDs have to be such. Each is made with the key that the gateway
// uses at that moment, or the next gateway once that one is joined. It says the process's place ([Gateway.Slot]) and
// instance, which tells the process's sockets apart. [ErrNotFound] as with [Gateway.Ring].
func (g *Gateway) ConnectionIDs(instance uint8) (*ConnectionIDs, error) {
	var handle *C.equic_ids
	err := g.with(func(gateway *C.equic_gateway) C.enum_equic_error {
		return C.equic_gateway_ids(gateway, C.uint8_t(instance), &handle)
	})
	if err != nil {
		return nil, err
	}
	return newConnectionIDs(handle, C.EQUIC_ID_LENGTH), nil
}

// Slot is the place of this process among those that feed the gateway, which the first byte of the server ID in its
// connection IDs says. The next gateway that is joined may give another.
func (g *Gateway) Slot() (uint32, error) {
	var slot C.uint32_t
	err := g.with(func(gateway *C.equic_gateway) C.enum_equic_error {
		return C.equic_gateway_slot(gateway, &slot)
	})
	return uint32(slot), err
}

// Len is the number of bytes of every ID.
func (c *ConnectionIDs) Len() int {
	return c.length
}

// Generate makes an ID that was not given out before.
func (c *ConnectionIDs) Generate() ([]byte, error) {
	defer runtime.KeepAlive(c)
	id := make([]byte, c.length)
	err := call(func() C.enum_equic_error {
		data, length := bytes(id)
		return C.equic_ids_generate(c.handle, data, length)
	})
	return id, err
}

// Check is nil if a server of this service made the ID.
func (c *ConnectionIDs) Check(id []byte) error {
	defer runtime.KeepAlive(c)
	return call(func() C.enum_equic_error {
		data, length := bytes(id)
		return C.equic_ids_check(c.handle, data, length)
	})
}

// SetRing takes a ring whose keys were rotated. IDs of a gateway follow it without.
func (c *ConnectionIDs) SetRing(ring *Ring) error {
	defer runtime.KeepAlive(c)
	defer runtime.KeepAlive(ring)
	return call(func() C.enum_equic_error { return C.equic_ids_set_ring(c.handle, ring.handle) })
}
