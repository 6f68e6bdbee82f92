//! The handshake, the keys it gives, and transport parameters (RFC 9001 s.4, RFC 9000 s.7).
//!
//! * `begin.rs`: how connections come about; `drive.rs`: CRYPTO data in and out, keys;
//! * `state.rs`: how far it is, and TLS; `parameters.rs`: transport parameters, ours and the peer's.

mod begin;
mod drive;
mod parameters;
mod state;

use equic_wire::{ConnectionId, KnownVersion, Version as Wire};
use rand::RngCore;
use rustls::quic::{Suite, Version};

use crate::cid::ID_LEN;

pub(in crate::connection) use state::Handshake;

/// Bytes of CRYPTO data that may wait for their place (RFC 9000 s.7.5 asks for 4,096).
pub(super) const MAX_CRYPTO: u64 = 64 * 1024;

/// Most connection IDs of the peer kept at a time: our `active_connection_id_limit`.
pub(super) const ACTIVE_IDS: u32 = 4;

/// Reason for which a connection could not be created.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The TLS configuration has no suite for Initial packets, TLS_AES_128_GCM_SHA256.
    NoInitialSuite,
    /// The configuration is not for this version.
    OtherVersion(KnownVersion),
    /// TLS refused.
    Tls(rustls::Error),
    /// A setting of the transport is out of range.
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

/// Version of QUIC as rustls names it.
pub(crate) fn tls_version(version: KnownVersion) -> Version {
    match version {
        KnownVersion::V2 => Version::V2,
        // Retry packets without protection have the tag of version 1.
        _ => Version::V1,
    }
}

/// The suite of Initial packets (RFC 9001 s.5.2).
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
