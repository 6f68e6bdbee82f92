//! The arms of the demo: variants of the experiment with different attacks and protections. Each
//! arm has its own server.

use serde::Serialize;

/// A variant of the experiment, with its own server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Arm {
    /// No attack: only legitimate clients.
    Alone,
    /// The attack from real addresses, on a server without limits.
    Unprotected,
    /// The attack from real addresses, on a server that enforces limits itself.
    UserSpace,
    /// The attack from real addresses, on a server behind a gateway with the same limits.
    Gateway,
    /// No attack: only legitimate clients and newcomers.
    Calm,
    /// A flood of Initial packets from forged sources, to a server without limits.
    ForgedUnprotected,
    /// A flood of Initial packets from forged sources, to a server that sends Retry packets itself.
    ForgedServerRetry,
    /// A flood of Initial packets from forged sources, to a server behind a gateway that sends
    /// Retry packets.
    ForgedGateway,
}

impl Arm {
    /// The arms of the attack from real addresses, in the order in which they run.
    pub(super) const QUOTAS: [Arm; 4] =
        [Arm::Alone, Arm::Unprotected, Arm::UserSpace, Arm::Gateway];

    /// The arms of the attack from forged sources, which run after the others.
    pub(super) const FORGED: [Arm; 4] =
        [Arm::Calm, Arm::ForgedUnprotected, Arm::ForgedServerRetry, Arm::ForgedGateway];

    /// Returns all arms, in the order in which they run.
    pub(super) fn all() -> impl ExactSizeIterator<Item = Arm> {
        const COUNT: usize = Arm::QUOTAS.len() + Arm::FORGED.len();
        let arm = |at: usize| match at.checked_sub(Arm::QUOTAS.len()) {
            None => Arm::QUOTAS[at],
            Some(at) => Arm::FORGED[at],
        };
        (0..COUNT).map(arm)
    }

    /// Returns the heading of the arm's column in tables, on two lines.
    pub(super) fn heading(self) -> &'static str {
        match self {
            Arm::Alone | Arm::Calm => "no\nattack",
            Arm::Unprotected | Arm::ForgedUnprotected => "no\nprotection",
            Arm::UserSpace => "quotas in\nthe server",
            Arm::Gateway => "eQUIC\ngateway",
            Arm::ForgedServerRetry => "Retry by\nthe server",
            Arm::ForgedGateway => "Retry by\nthe gateway",
        }
    }

    /// Returns the name of the arm in plots and sentences.
    pub(super) fn title(self) -> &'static str {
        match self {
            Arm::Alone => "legitimate clients, no attack",
            Arm::Unprotected => "attack, no protection",
            Arm::UserSpace => "attack, quotas in the server",
            Arm::Gateway => "attack, eQUIC gateway",
            Arm::Calm => "newcomers, no attack",
            Arm::ForgedUnprotected => "forged sources, no protection",
            Arm::ForgedServerRetry => "forged sources, Retry by the server",
            Arm::ForgedGateway => "forged sources, Retry by the gateway",
        }
    }

    /// Returns true if the attackers take part in this arm.
    pub(super) fn attacked(self) -> bool {
        !matches!(self, Arm::Alone | Arm::Calm)
    }

    /// Returns true for the arms with forged sources, and for the arm without an attack that is
    /// compared with them. All of these arms have newcomers.
    pub(super) fn forged(self) -> bool {
        Arm::FORGED.contains(&self)
    }

    /// Returns true if the arm has a gateway.
    pub(super) fn guarded(self) -> bool {
        matches!(self, Arm::Gateway | Arm::ForgedGateway)
    }
}
