package equic

/*
#include <equic.h>
*/
import "C"

import "runtime"

// Error is an error of the library: a code, and a message that says what failed, why, and how to
// fix it.
type Error struct {
	// Code is the number in enum equic_error of equic.h.
	Code Code
	// Message is a text for people.
	Message string
}

// Code is a kind of error. [errors.Is] compares an [Error] with a Code.
type Code int

// Kinds of errors that programs may need to distinguish. equic.h has the others.
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
	// The token is from a NEW_TOKEN frame, so the server must validate it.
	ErrNewToken Code = C.EQUIC_ERROR_NEW_TOKEN
	// Reasons that a token or a connection ID is invalid.
	ErrProofMalformed  Code = C.EQUIC_ERROR_PROOF_MALFORMED
	ErrProofUnknownKey Code = C.EQUIC_ERROR_PROOF_UNKNOWN_KEY
	ErrProofForged     Code = C.EQUIC_ERROR_PROOF_FORGED
	ErrProofExpired    Code = C.EQUIC_ERROR_PROOF_EXPIRED
	ErrProofEarly      Code = C.EQUIC_ERROR_PROOF_EARLY
)

func (c Code) Error() string { return "equic: " + C.GoString(C.equic_strerror(C.int(c))) }

func (e *Error) Error() string { return "equic: " + e.Message }

// Unwrap returns the code, for [errors.Is].
func (e *Error) Unwrap() error { return e.Code }

// call runs a function of the library and reads its error message, which belongs to the thread.
// Until then, the goroutine must not move to another thread.
func call(do func() C.enum_equic_error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	code := do()
	if code == C.EQUIC_OK {
		return nil
	}
	return &Error{Code: Code(code), Message: C.GoString(C.equic_last_error_message())}
}
