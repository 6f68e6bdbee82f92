package equic

/*
#include <equic.h>
*/
import "C"

import "runtime"

// Error is what the library says: a code, and a message with what failed, why, and the mend.
type Error struct {
	// Code is the number of an enum equic_error of equic.h.
	Code Code
	// Message is for people.
	Message string
}

// Code is a kind of failure; [errors.Is] compares an [Error] with one.
type Code int

// The kinds a program may want to tell apart; equic.h has the others.
const (
	ErrInvalidArgument Code = C.EQUIC_ERROR_INVALID_ARGUMENT
	ErrNotPermitted    Code = C.EQUIC_ERROR_NOT_PERMITTED
	ErrNoSuchInterface Code = C.EQUIC_ERROR_NO_SUCH_INTERFACE
	ErrInterfaceBusy   Code = C.EQUIC_ERROR_INTERFACE_BUSY
	ErrNoGateway       Code = C.EQUIC_ERROR_NO_GATEWAY
	ErrConfig          Code = C.EQUIC_ERROR_CONFIG
	ErrNoSuchService   Code = C.EQUIC_ERROR_NO_SUCH_SERVICE
	ErrNotFound        Code = C.EQUIC_ERROR_NOT_FOUND
	ErrClosed          Code = C.EQUIC_ERROR_CLOSED
	// The token is of a NEW_TOKEN frame, and the server's to judge.
	ErrNewToken Code = C.EQUIC_ERROR_NEW_TOKEN
	// Why a token or a connection ID proves nothing.
	ErrProofMalformed  Code = C.EQUIC_ERROR_PROOF_MALFORMED
	ErrProofUnknownKey Code = C.EQUIC_ERROR_PROOF_UNKNOWN_KEY
	ErrProofForged     Code = C.EQUIC_ERROR_PROOF_FORGED
	ErrProofExpired    Code = C.EQUIC_ERROR_PROOF_EXPIRED
	ErrProofEarly      Code = C.EQUIC_ERROR_PROOF_EARLY
)

func (c Code) Error() string { return "equic: " + C.GoString(C.equic_strerror(C.int(c))) }

func (e *Error) Error() string { return "equic: " + e.Message }

// Unwrap gives the code, for [errors.Is].
func (e *Error) Unwrap() error { return e.Code }

// call runs one function of the library and fetches its message, which belongs to the thread: the
// goroutine must not move to another one in between.
func call(do func() C.enum_equic_error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	code := do()
	if code == C.EQUIC_OK {
		return nil
	}
	return &Error{Code: Code(code), Message: C.GoString(C.equic_last_error_message())}
}
