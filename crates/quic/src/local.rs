//! Further local addresses of an endpoint, and connections that go on from there.

use std::io;
use std::net::{IpAddr, SocketAddr};

use equic_transport::MigrateError;

use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::outlets::Local;
use crate::paths::as_written;
use crate::udp::Udp;

impl Endpoint {
    /// Binds another socket to `address`, an address of this machine: connections of the endpoint's first socket can send
    /// from there, too ([`Connection::migrate`]). On a machine with several interfaces the socket sends and receives at the
    /// interface that has the address, whatever way the system prefers to the peer. An address that was added before gets
    /// a new socket. Must be called inside a tokio runtime.
    ///
    /// Returns the address and the port that the socket is bound to.
    ///
    /// # Errors
    /// The system's error, if the socket cannot be made: the address is none of this machine's, for example. Also an IPv6
    /// address where the first socket is of IPv4.
    pub fn add_local_address(&self, address: IpAddr) -> io::Result<SocketAddr> {
        let first = self.local_addr()?;
        let (socket, address) = crate::bind::bind_beside(first, address)?;
        let udp = Udp::new(socket, self.offloads(), false)?;
        let bound = udp.local_addr();
        self.first().lock().add_local(Local { address, udp });
        // Its task waits for the others.
        self.first().wake();
        Ok(SocketAddr::new(bound.ip().to_canonical(), bound.port()))
    }

    /// Closes the socket of an address that [`Endpoint::add_local_address`] has added; true if there was one. Datagrams of
    /// paths that are still there go out of the first socket then, from an address that the system chooses.
    pub fn remove_local_address(&self, address: IpAddr) -> bool {
        let Ok(first) = self.local_addr() else { return false };
        let Some(address) = crate::bind::as_beside(first, address) else { return false };
        let removed = self.first().lock().remove_local(address);
        self.first().wake();
        removed
    }
}

impl Connection {
    /// A client's connection goes on from `address` at once (RFC 9000 s.9.2): one that
    /// [`Endpoint::add_local_address`] has added, or that of the endpoint's first socket.
    ///
    /// # Errors
    /// [`MigrateError`]; nothing has changed then.
    pub fn migrate(&self, address: IpAddr) -> Result<(), MigrateError> {
        let now = self.cell().socket.now();
        let mut state = self.cell().lock();
        // As the socket writes it.
        let address = as_written(address, state.connection.remote_address().is_ipv6());
        state.connection.migrate(now, Some(address))?;
        state.take_events();
        self.cell().touch(&mut state);
        Ok(())
    }
}
