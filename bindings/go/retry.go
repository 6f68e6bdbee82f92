package equic

/*
#include <equic.h>
*/
import "C"

import (
	"net"
	"runtime"
	"unsafe"
)

// Lengths in bytes: of a ring that is handed on, of a Retry token.
const (
	ringLen  = 128
	tokenLen = 80
)

// Ring has the keys that a gateway and the servers behind it share: those of a gateway, as they are at every
// call ([Gateway.Ring]), or a copy, which needs no gateway in this process and no privileges. Whoever has it can
// make tokens and connection IDs.
type Ring struct {
	handle *C.equic_ring
}

// RetryProof is what a server has to tell a client that brought a Retry token (RFC 9000 s.7.3).
type RetryProof struct {
	// OriginalDCID is the transport parameter original_destination_connection_id.
	OriginalDCID []byte
	// RetrySCID is the transport parameter retry_source_connection_id.
	RetrySCID []byte
}

func bytes(content []byte) (*C.uint8_t, C.size_t) {
	return (*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(content))), C.size_t(len(content))
}

func newRing(make func(handle **C.equic_ring) C.enum_equic_error) (*Ring, error) {
	var handle *C.equic_ring
	if err := call(func() C.enum_equic_error { return make(&handle) }); err != nil {
		return nil, err
	}
	ring := &Ring{handle}
	runtime.SetFinalizer(ring, func(ring *Ring) { C.equic_ring_free(ring.handle) })
	return ring, nil
}

// ReadRing reads a ring that a gateway handed out.
func ReadRing(content []byte) (*Ring, error) {
	return newRing(func(handle **C.equic_ring) C.enum_equic_error {
		data, length := bytes(content)
		return C.equic_ring_read(data, length, handle)
	})
}

// Ring is the key ring of a gateway that was joined with [TokenKeysTake] or [TokenKeysTakeForIDs], or that this
// process loaded. Every call goes by the keys that the gateway has at that moment, until the gateway is closed. [ErrNotFound] if the gateway was
// not asked for it, or has not given it.
func (g *Gateway) Ring() (*Ring, error) {
	g.lock.RLock()
	defer g.lock.RUnlock()
	return newRing(func(handle **C.equic_ring) C.enum_equic_error {
		return C.equic_gateway_ring(g.handle, handle)
	})
}

// GenerateRing makes a ring with one key and the monotonic clock, for whoever makes Retry packets.
func GenerateRing() (*Ring, error) {
	return newRing(func(handle **C.equic_ring) C.enum_equic_error {
		return C.equic_ring_generate(C.EQUIC_CLOCK_MONOTONIC, handle)
	})
}

// Bytes is the ring for others to read: a secret.
func (r *Ring) Bytes() ([]byte, error) {
	defer runtime.KeepAlive(r)
	content := make([]byte, ringLen)
	err := call(func() C.enum_equic_error {
		data, length := bytes(content)
		return C.equic_ring_write(r.handle, data, length)
	})
	return content, err
}

// Verify checks the token of an Initial packet from client with that Destination Connection ID. [ErrNewToken]
// and the codes that begin with ErrProof say why the client's address is not validated; [ErrNotFound], that the
// gateway that was joined last keeps its ring to itself.
func (r *Ring) Verify(client net.Addr, dcid, token []byte) (RetryProof, error) {
	defer runtime.KeepAlive(r)
	address, length, err := native(client)
	if err != nil {
		return RetryProof{}, err
	}
	var proof C.equic_retry_proof
	err = call(func() C.enum_equic_error {
		id, idLen := bytes(dcid)
		data, dataLen := bytes(token)
		return C.equic_retry_verify(r.handle, (*C.struct_sockaddr)(unsafe.Pointer(&address)), length, id, idLen, data, dataLen, &proof)
	})
	if err != nil {
		return RetryProof{}, err
	}
	return RetryProof{
		OriginalDCID: C.GoBytes(unsafe.Pointer(&proof.original_dcid), C.int(proof.original_dcid_len)),
		RetrySCID:    C.GoBytes(unsafe.Pointer(&proof.retry_scid), C.int(proof.retry_scid_len)),
	}, nil
}

// Seal makes the token of a Retry packet, for a server that sends Retry packets itself.
func (r *Ring) Seal(client net.Addr, originalDCID, retrySCID []byte) ([]byte, error) {
	defer runtime.KeepAlive(r)
	address, length, err := native(client)
	if err != nil {
		return nil, err
	}
	token := make([]byte, tokenLen)
	err = call(func() C.enum_equic_error {
		original, originalLen := bytes(originalDCID)
		retry, retryLen := bytes(retrySCID)
		data, dataLen := bytes(token)
		return C.equic_retry_seal(r.handle, (*C.struct_sockaddr)(unsafe.Pointer(&address)), length, original, originalLen, retry, retryLen, data, dataLen)
	})
	return token, err
}
