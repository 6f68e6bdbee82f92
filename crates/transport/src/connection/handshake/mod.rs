//! The handshake, its keys, and transport parameters (RFC 9001 s.4, RFC 9000 s.7).
//!
//! * `begin.rs`: creation of connections;
//! * `drive.rs`: CRYPTO data and keys;
//! * `state.rs`: progress of the handshake, and TLS;
//! * `parameters.rs`: transport parameters of both ends.

mod begin;
mod drive;
mod parameters;
mod state;

use equic_wire::{ConnectionId, KnownVersion, Version as Wire};
use rand::RngCore;
use rustls::quic::{Suite, Version};

use crate::cid::ID_LEN;

pub(in crate::connection) use state::Handshake;

/// Maximum number of bytes of CRYPTO data that wait for missing data. RFC 9000 s.7.5 requires at
/// least 4,096.
pub(super) const MAX_CRYPTO: u64 = 64 * 1024;

/// Our `active_connection_id_limit`: the maximum number of the peer's connection IDs stored at a
/// time.
pub(super) const ACTIVE_IDS: u32 = 4;

/// Reason for which a connection could not be created.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The TLS configuration lacks TLS_AES_128_GCM_SHA256, the cipher suite of Initial packets.
    NoInitialSuite,
    /// The configuration does not support this version.
    OtherVersion(KnownVersion),
    /// TLS rejected the configuration.
    Tls(rustls::Error),
    /// A setting of the transport configuration is out of range.
    Setting(crate::SettingError),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StartError::NoInitialSuite => f.write_str(
                "the crypto provider does not support TLS_AES_128_GCM_SHA256, which QUIC needs",
            ),
            StartError::OtherVersion(version) => {
                write!(f, "this configuration is not for version {}", Wire::from(*version))
            }
            StartError::Tls(error) => write!(f, "TLS: {error}"),
            StartError::Setting(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StartError {}

impl From<rustls::Error> for StartError {
    fn from(error: rustls::Error) -> StartError {
        StartError::Tls(error)
    }
}

/// Returns the QUIC version in the type of rustls.
pub(crate) fn tls_version(version: KnownVersion) -> Version {
    match version {
        KnownVersion::V2 => Version::V2,
        // Without packet protection, Retry packets use the integrity tag of version 1.
        _ => Version::V1,
    }
}

/// Returns the cipher suite of Initial packets (RFC 9001 s.5.2).
pub(crate) fn initial_suite(
    provider: &rustls::crypto::CryptoProvider,
) -> Result<Suite, StartError> {
    provider
        .cipher_suites
        .iter()
        .filter(|suite| suite.suite() == rustls::CipherSuite::TLS13_AES_128_GCM_SHA256)
        .find_map(|suite| suite.tls13()?.quic_suite())
        .ok_or(StartError::NoInitialSuite)
}

pub(super) fn random_id(rng: &mut dyn RngCore) -> ConnectionId {
    let mut bytes = [0; ID_LEN];
    rng.fill_bytes(&mut bytes);
    ConnectionId::cut(&bytes)
}
