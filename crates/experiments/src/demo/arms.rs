//! The arms: what is played, each with a server of its own.

use serde::Serialize;

/// One part of the experiment, with a server of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Arm {
    /// Legitimate clients, and nobody else.
    Alone,
    /// The attack on a server that takes everybody.
    Unprotected,
    /// The attack on a server that enforces limits itself.
    UserSpace,
    /// The attack on a server that feeds a gateway with the same limits.
    Gateway,
    /// Legitimate clients and newcomers, and nobody else.
    Calm,
    /// Initials from forged sources, to a server that takes everybody.
    ForgedUnprotected,
    /// The same to a server that answers with Retry by itself.
    ForgedServerRetry,
    /// The same to a server behind a gateway that answers with Retry.
    ForgedGateway,
}

impl Arm {
    /// The attack by clients and addresses that are real, in the order the arms are played.
    pub(super) const QUOTAS: [Arm; 4] =
        [Arm::Alone, Arm::Unprotected, Arm::UserSpace, Arm::Gateway];

    /// The attack by forged sources, which is played after the other one.
    pub(super) const FORGED: [Arm; 4] =
        [Arm::Calm, Arm::ForgedUnprotected, Arm::ForgedServerRetry, Arm::ForgedGateway];

    /// All arms, in the order they are played.
    pub(super) fn all() -> impl ExactSizeIterator<Item = Arm> {
        const COUNT: usize = Arm::QUOTAS.len() + Arm::FORGED.len();
        let arm = |at: usize| match at.checked_sub(Arm::QUOTAS.len()) {
            None => Arm::QUOTAS[at],
            Some(at) => Arm::FORGED[at],
        };
        (0..COUNT).map(arm)
    }

    /// Above its column of a table, in two lines.
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

    /// For the plots, and to speak of it.
    pub(super) fn title(self) -> &'static str {
        match self {
            Arm::Alone => "legitimate clients alone",
            Arm::Unprotected => "attack, no protection",
            Arm::UserSpace => "attack, quotas in the server",
            Arm::Gateway => "attack, eQUIC gateway",
            Arm::Calm => "newcomers, no attack",
            Arm::ForgedUnprotected => "forged sources, no protection",
            Arm::ForgedServerRetry => "forged sources, Retry by the server",
            Arm::ForgedGateway => "forged sources, Retry by the gateway",
        }
    }

    /// True if the attackers take part in this arm.
    pub(super) fn attacked(self) -> bool {
        !matches!(self, Arm::Alone | Arm::Calm)
    }

    /// True if this is an arm of the attack by forged sources, or of the calm before it: those in which
    /// newcomers come.
    pub(super) fn forged(self) -> bool {
        Arm::FORGED.contains(&self)
    }

    /// True if there is a gateway before the server.
    pub(super) fn guarded(self) -> bool {
        matches!(self, Arm::Gateway | Arm::ForgedGateway)
    }
}
