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

// Lengths in bytes of a serialized ring and of a Retry token.
const (
	ringLen  = 128
	tokenLen = 80
)

// Ring has the keys that a gateway and its servers share. It is the current ring of a gateway
// ([Gateway.Ring]), or a copy, which needs no gateway in this process and no privileges. Everyone
// who has the keys can create tokens and connection IDs.
type Ring struct {
	handle *C.equic_ring
}

// RetryProof has the values that a server must send to a client that presented a Retry token (RFC
// 9000 s.7.3).
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

// ReadRing reads a ring that a gateway has issued.
func ReadRing(content []byte) (*Ring, error) {
	return newRing(func(handle **C.equic_ring) C.enum_equic_error {
		data, length := bytes(content)
		return C.equic_ring_read(data, length, handle)
	})
}

// Ring returns the key ring of a gateway that this process has loaded, or has joined with
// [TokenCheckGatewayKeys] or [JoinOptions.IssueIDs]. Each call uses the current keys of the gateway,
// until the gateway is closed. Returns [ErrNotFound] if this process joined without asking for the
// ring, or if the gateway did not give it.
func (g *Gateway) Ring() (*Ring, error) {
	g.lock.RLock()
	defer g.lock.RUnlock()
	return newRing(func(handle **C.equic_ring) C.enum_equic_error {
		return C.equic_gateway_ring(g.handle, handle)
	})
}

// GenerateRing returns a ring with one key and the monotonic clock, for servers that send Retry
// packets themselves.
func GenerateRing() (*Ring, error) {
	return newRing(func(handle **C.equic_ring) C.enum_equic_error {
		return C.equic_ring_generate(C.EQUIC_CLOCK_MONOTONIC, handle)
	})
}

// Bytes returns the serialized ring for other processes. The bytes are secret.
func (r *Ring) Bytes() ([]byte, error) {
	defer runtime.KeepAlive(r)
	content := make([]byte, ringLen)
	err := call(func() C.enum_equic_error {
		data, length := bytes(content)
		return C.equic_ring_write(r.handle, data, length)
	})
	return content, err
}

// Verify checks the token of an Initial packet from client with Destination Connection ID dcid.
// [ErrNewToken] and the codes that begin with ErrProof are reasons that the client's address is not
// validated. [ErrNotFound] means that the gateway that was joined last does not give its ring.
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

// Seal creates the token of a Retry packet, for servers that send Retry packets themselves.
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
