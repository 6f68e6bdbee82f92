//! Chooses the socket that gets a datagram if several sockets share a port. A classic BPF program
//! in the kernel chooses by the connection ID. After a client has migrated, its packets therefore
//! reach its connection's socket directly.

use std::io;
use std::net::UdpSocket;

use nix::libc::{
    self, BPF_A, BPF_ABS, BPF_B, BPF_JGT, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_LEN, BPF_RET, BPF_W,
};
use nix::sys::socket::{setsockopt, sockopt};

/// A number that no socket has. The kernel then chooses by the addresses and ports, as without a
/// program.
const BY_ADDRESS: u32 = u32::MAX;

const fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

const fn jump(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

/// Makes the kernel choose the socket of datagrams with a short header by their connection ID. The
/// byte at `number_at` of the ID is the socket's number, in the order in which the sockets were
/// bound. For all other datagrams, the kernel chooses a socket by the addresses and ports, because
/// the client may have chosen their connection ID.
///
/// No privilege is needed. The program chooses only the socket, and one datagram of a batch (GRO)
/// decides for the whole batch. The receiver must therefore still check each datagram.
///
/// # Errors
/// Returns the system's error if it does not accept the program. Nothing has changed in that case.
pub(crate) fn by_connection_id(socket: &UdpSocket, number_at: usize) -> io::Result<()> {
    // Bit of the first byte that is set in long headers (RFC 9000 s.17.2).
    const LONG: u32 = 0x80;
    let offset = u32::try_from(1 + number_at).map_err(|_| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "the offset is beyond the end of any connection ID",
        )
    })?;
    // The program sees the UDP payload. A load beyond its end would return 0, which is the first
    // socket.
    let mut program = [
        statement(BPF_LD | BPF_W | BPF_LEN, 0),
        jump(BPF_JMP | BPF_JGT | BPF_K, offset, 0, 4),
        statement(BPF_LD | BPF_B | BPF_ABS, 0),
        jump(BPF_JMP | BPF_JSET | BPF_K, LONG, 2, 0),
        statement(BPF_LD | BPF_B | BPF_ABS, offset),
        statement(BPF_RET | BPF_A, 0),
        statement(BPF_RET | BPF_K, BY_ADDRESS),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: (&raw mut program).cast() };
    setsockopt(socket, sockopt::AttachReusePortCbpf, &program)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOCKETS: u8 = 4;
    const NUMBER_AT: usize = 2;

    /// Returns sockets that share a port, with the program attached.
    fn sockets() -> Vec<UdpSocket> {
        let address = "127.0.0.1:0".parse().unwrap();
        let sockets = crate::bind::bind_several(address, SOCKETS.into(), None).unwrap();
        by_connection_id(&sockets[0], NUMBER_AT).unwrap();
        sockets
    }

    /// Sends a datagram from `ports` ports. Returns the numbers of the sockets that received it.
    fn arrivals(sockets: &[UdpSocket], ports: usize, datagram: &[u8]) -> Vec<usize> {
        let to = sockets[0].local_addr().unwrap();
        let send = |_| {
            let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
            sender.send_to(datagram, to).unwrap();
            // On loopback, the datagram has arrived when the call returns.
            let mut came = (0..sockets.len()).filter(|at| {
                let mut buffer = [0; 100];
                let length = sockets[*at].recv(&mut buffer);
                length.is_ok_and(|length| buffer[..length] == *datagram)
            });
            let first = came.next().expect("no socket received it");
            assert_eq!(came.next(), None);
            first
        };
        let mut all: Vec<usize> = (0..ports).map(send).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    #[test]
    fn steering_sends_short_headers_to_the_socket_that_their_id_names() {
        let sockets = sockets();
        for number in 0..SOCKETS {
            let datagram = [0x41, 7, 9, number, 3, 1];
            assert_eq!(arrivals(&sockets, 30, &datagram), [usize::from(number)]);
            // Here the number is the last byte of the datagram.
            assert_eq!(arrivals(&sockets, 30, &datagram[..4]), [usize::from(number)]);
        }
    }

    /// The kernel chooses by the senders' addresses. It is practically impossible that 60 senders
    /// all get the same socket.
    #[test]
    fn steering_distributes_all_other_packets_over_the_sockets() {
        let sockets = sockets();
        for (what, datagram) in [
            ("a long header", &[0xc1, 7, 9, 1, 3, 1][..]),
            ("a number that no socket has", &[0x41, 7, 9, SOCKETS, 3, 1]),
            ("the largest number", &[0x41, 7, 9, 255, 3, 1]),
            ("a datagram that ends before the number", &[0x41, 7, 9]),
            ("a single byte", &[0x41]),
        ] {
            assert!(arrivals(&sockets, 60, datagram).len() > 1, "{what}");
        }
    }
}
