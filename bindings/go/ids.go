package equic

/*
#include <equic.h>
*/
import "C"

import "runtime"

// ConnectionIDs creates the connection IDs of one server process. Two processes need different
// server IDs.
type ConnectionIDs struct {
	handle *C.equic_ids
	length int
}

// NewConnectionIDs returns a generator of IDs that are length bytes long, 8 to 20, with serverID,
// at most 8 bytes. The generator has a copy of the ring. For IDs that a gateway can check, use
// [Gateway.ConnectionIDs].
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

// ConnectionIDs returns a generator of IDs that the gateway can check (check_ids). The server must
// have joined with [JoinOptions.IssueIDs], and must create all its IDs with
// it. Each ID is created with the current key of the gateway, or of the next gateway after that one
// is joined. It contains the slot of the process ([Gateway.Slot]) and instance, with which the
// caller distinguishes its sockets. Returns [ErrNotFound] as [Gateway.Ring] does.
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

// Slot returns the slot of this process at the gateway. It is the first byte of the server ID in
// its connection IDs. The next gateway may assign another slot.
func (g *Gateway) Slot() (uint32, error) {
	var slot C.uint32_t
	err := g.with(func(gateway *C.equic_gateway) C.enum_equic_error {
		return C.equic_gateway_slot(gateway, &slot)
	})
	return uint32(slot), err
}

// Len returns the length of every ID in bytes.
func (c *ConnectionIDs) Len() int {
	return c.length
}

// Generate returns an ID that was not issued before.
func (c *ConnectionIDs) Generate() ([]byte, error) {
	defer runtime.KeepAlive(c)
	id := make([]byte, c.length)
	err := call(func() C.enum_equic_error {
		data, length := bytes(id)
		return C.equic_ids_generate(c.handle, data, length)
	})
	return id, err
}

// Check returns nil if a server of this service issued the ID.
func (c *ConnectionIDs) Check(id []byte) error {
	defer runtime.KeepAlive(c)
	return call(func() C.enum_equic_error {
		data, length := bytes(id)
		return C.equic_ids_check(c.handle, data, length)
	})
}

// SetRing replaces the ring after a key rotation. It is not for generators of a gateway, which
// always use the gateway's current keys.
func (c *ConnectionIDs) SetRing(ring *Ring) error {
	defer runtime.KeepAlive(c)
	defer runtime.KeepAlive(ring)
	return call(func() C.enum_equic_error { return C.equic_ids_set_ring(c.handle, ring.handle) })
}
