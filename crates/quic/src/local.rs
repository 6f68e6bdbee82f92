//! Further local addresses of an endpoint, and migration of connections to them.

use std::io;
use std::net::{IpAddr, SocketAddr};

use equic_transport::MigrateError;

use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::paths::as_written;
use crate::send_sockets::LocalSocket;
use crate::udp::Udp;

impl Endpoint {
    /// Binds another socket to `address`, a local address of this machine. Connections of the
    /// endpoint's first socket can then migrate there ([`Connection::migrate`]). The socket sends
    /// and receives on the interface that has the address, even if the system's route to the peer
    /// uses another interface. If the address was added before, it gets a new socket. Must be
    /// called inside a tokio runtime.
    ///
    /// Returns the address and the port to which the socket is bound.
    ///
    /// # Errors
    /// Returns the system's error if the socket cannot be made, for example because this machine
    /// does not have the address. Returns `InvalidInput` for an IPv6 address if the first socket is
    /// bound to an IPv4 address. Returns `Unsupported` outside a tokio runtime.
    pub fn add_local_address(&self, address: IpAddr) -> io::Result<SocketAddr> {
        let first = self.local_addr()?;
        let (socket, address) = crate::bind::bind_beside(first, address)?;
        let udp = Udp::new(socket, self.offloads(), false)?;
        let bound = udp.local_addr();
        self.first().lock().add_local(LocalSocket { address, udp });
        // The socket's task must add the new socket to those that it waits for.
        self.first().driver.wake();
        Ok(SocketAddr::new(bound.ip().to_canonical(), bound.port()))
    }

    /// Closes the socket that [`Endpoint::add_local_address`] has made for an address. Returns
    /// `false` if the endpoint has no such socket. Paths that still use the address then send
    /// through the first socket, from an address that the system chooses.
    pub fn remove_local_address(&self, address: IpAddr) -> bool {
        let Ok(first) = self.local_addr() else { return false };
        let Some(address) = crate::bind::as_beside(first, address) else { return false };
        let removed = self.first().lock().remove_local(address);
        self.first().driver.wake();
        removed
    }
}

impl Connection {
    /// Migrates a client's connection to `address` immediately (RFC 9000 s.9.2). This is an address
    /// that [`Endpoint::add_local_address`] has added, or the address of the endpoint's first
    /// socket.
    ///
    /// # Errors
    /// Returns a [`MigrateError`] if the connection cannot migrate. Nothing changes in that case.
    pub fn migrate(&self, address: IpAddr) -> Result<(), MigrateError> {
        let now = self.shared().driver.now();
        let mut state = self.shared().lock();
        let address = as_written(address, state.connection.remote_address().is_ipv6());
        state.connection.migrate(now, Some(address))?;
        state.take_events();
        self.shared().wake_driver(&mut state);
        Ok(())
    }
}
