//! QUIC versions (RFC 9000 s.6, RFC 9368, RFC 9369): Version Negotiation packets and compatible
//! version negotiation.
//!
//! rustls derives keys for the version with which a TLS session starts. A server therefore reads
//! the client's versions before TLS starts. A client starts with keys for the version that it
//! prefers. If the server does not switch to that version, the client restarts its handshake.

use equic_wire::packet::VersionNegotiation;
use equic_wire::params::TransportParameters;
use equic_wire::{KnownVersion, Side, TransportErrorCode, Version};

use super::Connection;
use super::close::CloseReason;
use super::hello::ClientHello;
use super::space::{Space, SpaceId};
use super::waiting::UndecryptedPackets;
use crate::Timestamp;
use crate::operation::Operation;
use crate::violation::{Condition, Failure, Violation};

impl Connection {
    /// Returns the version of the packets sent now.
    pub fn version(&self) -> KnownVersion {
        self.version
    }

    /// Processes a Version Negotiation packet (RFC 9000 s.6.2). Returns true if it is accepted.
    pub(super) fn on_version_negotiation(
        &mut self,
        now: Timestamp,
        packet: &VersionNegotiation<'_>,
    ) -> bool {
        let versions = packet.versions();
        let wanted = self.side == Side::Client
            && !self.closing.is_closed()
            // RFC 9368 s.2.1: only once, and before any other packet from the server.
            && !self.start.is_negotiated()
            && self.start.retry().is_none()
            && self.stats.packets_received == self.packets_before
            && packet.dcid() == self.ids.scid().as_bytes()
            && packet.scid() == self.ids.original_dcid().as_bytes()
            // A packet that lists the version in use is late or forged.
            && (self.start.unknown().is_some() || !versions.contains(self.version.into()));
        let bytes = versions.as_bytes();
        if !wanted || !self.decide_on(Operation::FollowVersions, (), bytes, true) {
            return false;
        }
        let common = self.start.spoken().find(|version| versions.contains((*version).into()));
        #[cfg(feature = "qlog")]
        self.log_version_negotiation(packet, common);
        match common {
            Some(version) => {
                self.start.follow_versions();
                self.begin_again(now, version);
            }
            None => {
                self.forget(CloseReason::Local(Failure::from(Condition::NoCommonVersion).into()));
            }
        }
        true
    }

    /// Restarts a client's handshake in this version.
    fn begin_again(&mut self, now: Timestamp, version: KnownVersion) {
        self.version = version;
        let tls = match self.start.begin_again(version) {
            Ok(tls) => tls,
            Err(error) => {
                let code = TransportErrorCode::INTERNAL_ERROR;
                return self.fail(now, Failure::internal(code, &error.to_string()));
            }
        };
        self.handshake.restart(tls);
        self.send_all_again(SpaceId::Initial);
        self.send_all_again(SpaceId::DATA);
        if let Some(initial) = self.space(SpaceId::Initial) {
            *initial = Space::new();
        }
        self.waiting = UndecryptedPackets::default();
        self.ids.begin_again(&mut self.rng);
        self.packets_before = self.stats.packets_received;
        let keys = self.start.initial_keys(self.side, version, self.ids.original_dcid());
        self.keys.install(SpaceId::Initial, keys);
        self.path_mut().restart_backoff();
        self.activity.restart(now);
        // The TLS session to resume, if there was one, is used up.
        self.reject_early(now);
        self.drive_tls(now);
    }

    /// Restarts a client's handshake if the server answers with CRYPTO data in the client's first
    /// version, not in the one that the client prefers. The keys of the TLS session are for the
    /// latter. Returns true if the handshake was restarted.
    pub(super) fn hoped_in_vain(&mut self, now: Timestamp) -> bool {
        let vain = self.side == Side::Client && self.version != self.start.keyed();
        if vain {
            let version = self.version;
            self.begin_again(now, version);
        }
        vain
    }

    /// Returns true if the peer may send packets of this version.
    pub(super) fn speaks(&self, version: KnownVersion, initial: bool) -> bool {
        version == self.version
            || initial
                && match self.side {
                    Side::Client => {
                        version == self.start.keyed() && !self.keys.has(SpaceId::Handshake)
                    }
                    // The client sent the packet before it learned of the other version.
                    Side::Server => version == self.start.original(),
                }
    }

    /// Switches a client to the version that it prefers, when the server answers in it (RFC 9369
    /// s.4).
    pub(super) fn adopt_version(&mut self, version: KnownVersion) {
        if self.side == Side::Client && version != self.version {
            self.version = version;
            let dcid = self.start.retry().unwrap_or(self.ids.original_dcid());
            let keys = self.start.initial_keys(self.side, version, dcid);
            self.keys.install(SpaceId::Initial, keys);
        }
    }

    /// Selects the version of a server's answer from a complete ClientHello.
    pub(super) fn choose_version(&mut self, hello: &[u8]) -> Result<(), rustls::Error> {
        let now = Version::from(self.version);
        let better = ClientHello::parse(hello).and_then(|hello| self.better_version(&hello));
        let input = u64::from(now.0);
        let usual = better.map_or(input, |better| u64::from(Version::from(better).0));
        let chosen = self.decide(Operation::ChooseVersion, input, usual);
        // A hook can keep the client's version.
        let Some(better) = better.filter(|better| u64::from(Version::from(*better).0) == chosen)
        else {
            return Ok(());
        };
        self.version = better;
        self.handshake.restart(self.start.answer_in(better)?);
        let keys = self.start.initial_keys(self.side, better, self.ids.original_dcid());
        self.keys.install(SpaceId::Initial, keys);
        Ok(())
    }

    /// Returns our most preferred version among those that the client prefers to its first version
    /// (RFC 9368 s.2.3). Returns `None` if the client sends early data, whose keys belong to the
    /// first version.
    fn better_version(&self, hello: &ClientHello<'_>) -> Option<KnownVersion> {
        let information = hello.versions().filter(|_| !hello.early_data)?;
        let current = Version::from(self.version);
        let liked: Vec<Version> =
            information.available().iter().take_while(|version| *version != current).collect();
        let ours = self.start.spoken();
        ours.take_while(|version| *version != self.version)
            .find(|version| liked.contains(&(*version).into()))
    }

    /// Returns true if no attacker has changed the result of version negotiation (RFC 9368 s.4).
    pub(super) fn check_versions(
        &mut self,
        now: Timestamp,
        parameters: &TransportParameters<'_>,
    ) -> bool {
        let sound = match self.side {
            Side::Server => parameters
                .version_information
                .is_none_or(|versions| versions.chosen() == self.start.original().into()),
            Side::Client => self.server_versions_are_sound(parameters),
        };
        if !sound {
            self.fail(now, Violation::VersionInformation);
        }
        sound
    }

    fn server_versions_are_sound(&self, parameters: &TransportParameters<'_>) -> bool {
        let Some(versions) = parameters.version_information else {
            // RFC 9368 s.8: a server of version 1 need not support version_information.
            return self.version == self.start.original()
                && (!self.start.is_negotiated() || self.version == KnownVersion::V1);
        };
        let available = versions.available();
        let best = self.start.spoken().find(|ours| available.contains((*ours).into()));
        versions.chosen() == self.version.into()
            // With the authenticated list, the client must have chosen the same version.
            && (!self.start.is_negotiated() || best == Some(self.start.original()))
    }
}
