package contract

import (
	"errors"
	"net"
	"syscall"
)

// SetBuffers sets the socket's buffers and records the resulting sizes. Root may exceed the
// system's limits.
// Call it after quic-go has taken over the socket, because quic-go then enlarges the buffers
// itself.
func SetBuffers(conn *net.UDPConn, o *Options, in *Effective) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	return errors.Join(raw.Control(func(fd uintptr) {
		set := func(force, option, value int) int {
			if syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, force, value) != nil {
				_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, option, value)
			}
			now, _ := syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, option)
			return now
		}
		in.ReceiveBuffer = set(syscall.SO_RCVBUFFORCE, syscall.SO_RCVBUF, o.Receive)
		in.SendBuffer = set(syscall.SO_SNDBUFFORCE, syscall.SO_SNDBUF, o.Send)
	}))
}

// Listen opens a server's UDP socket.
func (o *Options) Listen() (*net.UDPConn, error) {
	local, err := net.ResolveUDPAddr("udp", o.Address)
	if err != nil {
		return nil, err
	}
	return net.ListenUDP("udp", local)
}

// Connect opens a client's UDP socket, bound to the local address that can reach the server.
func (o *Options) Connect() (conn *net.UDPConn, server *net.UDPAddr, err error) {
	server, err = net.ResolveUDPAddr("udp", o.Address)
	if err != nil {
		return nil, nil, err
	}
	probe, err := net.DialUDP("udp", nil, server)
	if err != nil {
		return nil, nil, err
	}
	defer probe.Close()
	own := &net.UDPAddr{IP: probe.LocalAddr().(*net.UDPAddr).IP}
	conn, err = net.ListenUDP("udp", own)
	return conn, server, err
}
