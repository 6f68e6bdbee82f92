//! Methods of endpoints for connections without protection, for simulations.

use std::net::SocketAddr;
use std::sync::Arc;

use super::{Endpoint, Handle};
use crate::Timestamp;
use crate::connection::{Connection, InsecureNullConfig, Serve, StartError};

impl Endpoint {
    /// Makes the endpoint accept connections without protection, and no others, from now on.
    pub fn set_insecure_null_server(&mut self, server: Arc<InsecureNullConfig>) {
        self.server = Some(server as Arc<dyn Serve>);
    }

    /// Starts a connection without protection to a server.
    ///
    /// # Errors
    /// [`StartError`], but there is no known case in which this happens.
    pub fn connect_insecure_null(
        &mut self,
        now: Timestamp,
        config: &InsecureNullConfig,
        remote: SocketAddr,
    ) -> Result<(Handle, Connection), StartError> {
        self.connect_with(now, &config.transport, config.client_start(), remote)
    }
}
