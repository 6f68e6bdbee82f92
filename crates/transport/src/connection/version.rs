//! Versions (RFC 9000 s.6, RFC 9368, RFC 9369): by a Version Negotiation packet, or on the way.
//!
//! rustls makes keys for the version that a TLS session began with. So a server reads what versions
//! the client speaks before TLS does, and a client begins with keys for the version it hopes for; if
//! the server does not follow, it begins again.

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
    /// The version of the packets that are sent now.
    pub fn version(&self) -> KnownVersion {
        self.version
    }

    /// A Version Negotiation packet came (RFC 9000 s.6.2); true if it is followed.
    pub(super) fn on_version_negotiation(
        &mut self,
        now: Timestamp,
        packet: &VersionNegotiation<'_>,
    ) -> bool {
        let versions = packet.versions();
        let wanted = self.side == Side::Client
            && !self.closing.is_closed()
            // RFC 9368 s.2.1: once, and before anything else of the server.
            && !self.start.is_negotiated()
            && self.start.retry().is_none()
            && self.stats.packets_received == self.packets_before
            && packet.dcid() == self.ids.scid().as_bytes()
            && packet.scid() == self.ids.original_dcid().as_bytes()
            // It is late, or somebody else's: this version is spoken.
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

    /// A client's second first flight, in this version.
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
        // The session, if there was one, is spent.
        self.reject_early(now);
        self.drive_tls(now);
    }

    /// A client hears the server's first CRYPTO data in its own first version though it hoped for
    /// another: the keys of this TLS session are of no use.
    pub(super) fn hoped_in_vain(&mut self, now: Timestamp) -> bool {
        let vain = self.side == Side::Client && self.version != self.start.keyed();
        if vain {
            let version = self.version;
            self.begin_again(now, version);
        }
        vain
    }

    /// True if packets of this version may be the peer's.
    pub(super) fn speaks(&self, version: KnownVersion, initial: bool) -> bool {
        version == self.version
            || initial
                && match self.side {
                    Side::Client => {
                        version == self.start.keyed() && !self.keys.has(SpaceId::Handshake)
                    }
                    // Sent before the client heard of the other version.
                    Side::Server => version == self.start.original(),
                }
    }

    /// A client hears of the version it hoped for (RFC 9369 s.4).
    pub(super) fn adopt_version(&mut self, version: KnownVersion) {
        if self.side == Side::Client && version != self.version {
            self.version = version;
            let dcid = self.start.retry().unwrap_or(self.ids.original_dcid());
            let keys = self.start.initial_keys(self.side, version, dcid);
            self.keys.install(SpaceId::Initial, keys);
        }
    }

    /// A server has a whole ClientHello, and answers in the version that this says.
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

    /// The version that we like best of those the client likes at least as much as the one it began
    /// with (RFC 9368 s.2.3). Not, if it sends early data: that has keys of the first version.
    fn better_version(&self, hello: &ClientHello<'_>) -> Option<KnownVersion> {
        let information = hello.versions().filter(|_| !hello.early_data)?;
        let current = Version::from(self.version);
        let liked: Vec<Version> =
            information.available().iter().take_while(|version| *version != current).collect();
        let ours = self.start.spoken();
        ours.take_while(|version| *version != self.version)
            .find(|version| liked.contains(&(*version).into()))
    }

    /// RFC 9368 s.4: nobody has meddled with what came of it.
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
            // RFC 9368 s.8: a server of version 1 need not know of this.
            return self.version == self.start.original()
                && (!self.start.is_negotiated() || self.version == KnownVersion::V1);
        };
        let available = versions.available();
        let best = self.start.spoken().find(|ours| available.contains((*ours).into()));
        versions.chosen() == self.version.into()
            // With a true list, the same would have been chosen.
            && (!self.start.is_negotiated() || best == Some(self.start.original()))
    }
}
