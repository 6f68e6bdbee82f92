package equic

/*
#include <equic.h>
#include <stdint.h>
*/
import "C"

import "runtime/cgo"

// JoinEvent is what becomes of a gateway that was joined.
type JoinEvent int

const (
	// JoinLost: it has ended. No quota holds in the kernel until the next one is joined, by itself.
	JoinLost JoinEvent = C.EQUIC_JOIN_LOST
	// JoinUnreachable: it has ended, and the next one cannot be joined; that is tried on.
	JoinUnreachable JoinEvent = C.EQUIC_JOIN_UNREACHABLE
	// JoinJoined: the next one is joined, with every connection that is open.
	JoinJoined JoinEvent = C.EQUIC_JOIN_JOINED
)

// A callback of the library. The handle of the function is never deleted: services and guards keep
// what was joined, and may outlive the [Gateway].
//
//export equicGoTell
func equicGoTell(event C.int, message *C.char, tell C.uintptr_t) {
	cgo.Handle(tell).Value().(func(JoinEvent, string))(JoinEvent(event), C.GoString(message))
}
