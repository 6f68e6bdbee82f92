package equic

/*
#include <equic.h>
#include <stdint.h>
*/
import "C"

import "runtime/cgo"

// JoinEvent is an event of a joined gateway.
type JoinEvent int

const (
	// JoinLost means that the gateway has ended. Until the library has joined the next one, the kernel
	// enforces no quota. The library tries to join automatically.
	JoinLost JoinEvent = C.EQUIC_JOIN_LOST
	// JoinUnreachable means that the gateway has ended, and the next one cannot be joined. The library
	// keeps trying.
	JoinUnreachable JoinEvent = C.EQUIC_JOIN_UNREACHABLE
	// JoinJoined means that the library has joined the next gateway, and has reported all open
	// connections to it.
	JoinJoined JoinEvent = C.EQUIC_JOIN_JOINED
)

// A callback of the library. The handle of the function is never deleted, because services and guards
// keep the library's join alive, and may outlive the [Gateway].
//
//export equicGoTell
func equicGoTell(event C.int, message *C.char, tell C.uintptr_t) {
	cgo.Handle(tell).Value().(func(JoinEvent, string))(JoinEvent(event), C.GoString(message))
}
