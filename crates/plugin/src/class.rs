//! Classes of permissions for plugins, and the table that assigns each operation and field of a
//! connection to a class.

use std::fmt;

use equic_transport::operation::{Field, Operation, PayloadKind};
use serde::Deserialize;

use crate::manifest::Anchor;

/// A class of permissions. A plugin's manifest declares the classes that the plugin uses, and a
/// policy grants classes to plugins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Read numbers of the connection, such as times, counts and sizes.
    Observe,
    /// Set acknowledgements, probe timeouts, pacing and the congestion window within the
    /// transport's own limits. The connection never sends more than it would without the plugin.
    Tune,
    /// Send and receive frames of the plugin's own types, in 1-RTT packets.
    Frames,
    /// Send more than the transport would: raise the congestion window or the pacing rate, or
    /// declare packets lost.
    Raise,
    /// Choose paths and streams for data, and choose what is retransmitted.
    Choose,
    /// Read or change payload, or handle the transport's own frames.
    Payload,
    /// Close the connection, or affect keys, tokens, connection IDs, versions or the validity
    /// checks of the protocol. No plugin gets this class.
    #[cfg_attr(feature = "schema", schemars(skip))]
    Never,
}

impl Class {
    /// All classes.
    pub const ALL: &[Class] = &[
        Class::Observe,
        Class::Tune,
        Class::Frames,
        Class::Raise,
        Class::Choose,
        Class::Payload,
        Class::Never,
    ];

    /// Returns the condition, besides the policy's grant, under which a plugin gets the class.
    pub const fn requires(self) -> Requires {
        match self {
            Class::Observe | Class::Tune | Class::Frames => Requires::Nothing,
            Class::Raise | Class::Choose => Requires::Signature,
            Class::Payload => Requires::OwnPlugin,
            Class::Never => Requires::Impossible,
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Class::Observe => "observe",
            Class::Tune => "tune",
            Class::Frames => "frames",
            Class::Raise => "raise",
            Class::Choose => "choose",
            Class::Payload => "payload",
            Class::Never => "never",
        })
    }
}

/// The side that provided a plugin which runs on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// The owner of this endpoint provided the plugin.
    Own,
    /// The peer sent the plugin over the connection.
    Peer,
}

/// Condition under which a peer's plugin gets a class. [`Self::Impossible`] applies to the owner's
/// plugins, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requires {
    /// The policy must grant the class.
    Nothing,
    /// The policy must grant the class to the author who signed the plugin.
    Signature,
    /// The plugin must come from the owner of this endpoint.
    OwnPlugin,
    /// No plugin gets the class.
    Impossible,
}

/// Class of each operation that a plugin may replace. No plugin may replace an operation that is not listed.
const REPLACING: &[(Operation, Class)] = &{
    use Class::{Choose, Frames, Never, Observe, Payload, Raise, Tune};
    use Operation as O;
    [
        (O::HandleDatagram, Payload),
        (O::RestorePacketNumber, Never),
        (O::IsDuplicate, Never),
        (O::AfterPacketRead, Payload),
        (O::ParseFrames, Payload),
        (O::ParseFrame, Frames),
        (O::CheckFrame, Never),
        (O::ProcessFrame, Frames),
        (O::AfterParseFrames, Tune),
        (O::RecordPacket, Tune),
        (O::IsStatelessReset, Never),
        (O::ProcessAck, Raise),
        (O::AckDelay, Raise),
        (O::UpdateRtt, Raise),
        (O::ValidateEcn, Raise),
        (O::PacketAcked, Raise),
        (O::FrameAcked, Frames),
        (O::AckIsDue, Tune),
        (O::AckDeadline, Tune),
        (O::SelectACKPath, Choose),
        (O::AckRangeCount, Tune),
        (O::EncodeAckDelay, Tune),
        (O::AckPolicy, Tune),
        (O::LossThresholds, Raise),
        (O::DetectLost, Raise),
        (O::PacketLost, Raise),
        (O::SelectRetransmission, Choose),
        (O::FrameLost, Frames),
        (O::ProbeTimeout, Tune),
        (O::PtoBackoff, Tune),
        (O::SetTimer, Tune),
        (O::OnTimer, Tune),
        (O::ProbeCount, Tune),
        (O::PersistentCongestion, Raise),
        (O::SpuriousLoss, Raise),
        (O::CongestionWindow, Tune),
        (O::CongestionSent, Raise),
        (O::CongestionAcked, Raise),
        (O::CongestionEvent, Raise),
        (O::PacingRate, Tune),
        (O::PaceUntil, Raise),
        (O::AppLimited, Raise),
        (O::SelectPath, Choose),
        (O::HasContent, Choose),
        (O::DatagramSize, Tune),
        (O::NextPacketNumber, Never),
        (O::SpinBit, Tune),
        (O::GenerateHeader, Payload),
        (O::GenerateFrames, Payload),
        (O::WriteFrame, Frames),
        (O::PadPacket, Raise),
        (O::SendPacket, Raise),
        (O::SendDatagram, Payload),
        (O::MarkEcn, Tune),
        (O::ScheduleStream, Choose),
        (O::WindowUpdate, Raise),
        (O::OpenStream, Choose),
        (O::ConnectionIdCount, Never),
        (O::RetireConnectionId, Never),
        (O::ProbeMtu, Tune),
        (O::MtuProbeDone, Tune),
        (O::AnswerChallenge, Never),
        (O::FollowPeer, Choose),
        (O::ChallengePath, Choose),
        (O::PathValidated, Choose),
        // The host makes this call to a single plugin, as it does for a plugin's timer. The call
        // replaces no operation of the connection.
        (O::InitOpaqueData, Observe),
        (O::ReadParameters, Never),
        (O::KeysReady, Never),
        (O::DiscardKeys, Never),
        (O::UpdateKeys, Never),
        (O::HandshakeComplete, Never),
        (O::HandshakeConfirmed, Never),
        (O::IdleTimeout, Never),
        (O::CloseConnection, Never),
        (O::PeerClosed, Never),
        (O::FollowRetry, Never),
        (O::FollowVersions, Never),
        (O::ChooseVersion, Never),
        (O::NewToken, Never),
        (O::EarlyDataAnswered, Never),
        (O::KeepPacket, Never),
        (O::AcceptDatagram, Payload),
        (O::RequestAckFrequency, Tune),
        (O::ObeyAckFrequency, Tune),
        (O::KeepAlive, Never),
        (O::HookTimer, Observe),
        (O::HookMessage, Tune),
        (O::ProtectPacket, Payload),
        (O::KeepRoom, Tune),
        (O::PathAdded, Choose),
        (O::PathRemoved, Choose),
        (O::ApplicationWrote, Tune),
        // A peer's plugin arrives after the handshake, when this operation is over.
        (O::WriteParameters, Payload),
        (O::PeerParameter, Payload),
        (O::CopyStreamData, Raise),
    ]
};

/// Operations that plugins may not even observe, because their bytes are secrets or would help an
/// observer of the connection.
const NOT_TO_BE_SEEN: &[Operation] = &[
    Operation::IsStatelessReset,
    Operation::ReadParameters,
    Operation::FollowRetry,
    Operation::FollowVersions,
    Operation::NewToken,
];

/// Returns the class that a plugin needs for an operation at an anchor. `own_frame` is true if the
/// operation is for one of the plugin's own frame types.
pub fn class_of(operation: Operation, anchor: Anchor, own_frame: bool) -> Class {
    let carries = operation.describe().carries;
    // Operations on the transport's own frames need the class `payload`.
    let of_frames = |class: Class| match class {
        Class::Frames if !own_frame => Class::Payload,
        class => class,
    };
    match anchor {
        Anchor::Replace => {
            let found = REPLACING.iter().find(|(one, _)| *one == operation);
            of_frames(found.map_or(Class::Never, |(_, class)| *class))
        }
        // The application sends the message to one plugin only.
        Anchor::Before | Anchor::After if operation == Operation::HookMessage => Class::Observe,
        Anchor::Before | Anchor::After => match carries {
            _ if NOT_TO_BE_SEEN.contains(&operation) => Class::Never,
            PayloadKind::Words => Class::Observe,
            PayloadKind::Frame => of_frames(Class::Frames),
            PayloadKind::Bytes | PayloadKind::Buffer => Class::Payload,
        },
    }
}

/// Returns the class that a plugin needs to set a field, or `None` if the field cannot be set. To
/// read a field, it needs [`Class::Observe`].
pub fn class_of_setting(field: Field) -> Option<Class> {
    match field {
        // Timers and pacing depend on the round-trip time.
        Field::SmoothedRtt | Field::RttVariation => Some(Class::Raise),
        // A plugin without the class `raise` can only lower the window: see `runtime/helpers.rs`.
        Field::CongestionWindow | Field::SlowStartThreshold => Some(Class::Tune),
        // The value applies only to the plugin's own choice.
        Field::ChoiceHolds => Some(Class::Choose),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_table_has_every_operation_once() {
        for operation in Operation::ALL {
            let times = REPLACING.iter().filter(|(one, _)| one == operation).count();
            assert_eq!(times, 1, "{operation}: say in REPLACING what a plugin needs for it");
        }
    }

    #[test]
    fn class_of_observers_permits_no_change() {
        for operation in Operation::ALL {
            for anchor in [Anchor::Before, Anchor::After] {
                let class = class_of(*operation, anchor, false);
                let looks = matches!(class, Class::Observe | Class::Payload | Class::Never);
                assert!(looks, "{operation} {anchor:?}: {class}");
            }
        }
    }

    #[test]
    fn class_observe_excludes_operations_with_bytes() {
        for operation in Operation::ALL {
            let numbers = operation.describe().carries == PayloadKind::Words;
            let class = class_of(*operation, Anchor::After, false);
            let own = *operation == Operation::HookMessage;
            assert_eq!(class == Class::Observe, numbers || own, "{operation}");
        }
    }

    #[test]
    fn class_payload_is_needed_for_transport_frames() {
        for operation in Operation::ALL {
            if operation.describe().carries == PayloadKind::Frame {
                let of = |own| class_of(*operation, Anchor::Replace, own);
                assert!(matches!(of(false), Class::Payload | Class::Never), "{operation}");
                assert!(matches!(of(true), Class::Frames | Class::Never), "{operation}");
            }
        }
    }

    /// The test lists the operations by name, so that a change of the class table must also change
    /// this list.
    #[test]
    fn class_never_covers_the_listed_operations() {
        let never = [
            "CheckFrame",
            "CloseConnection",
            "IdleTimeout",
            "UpdateKeys",
            "DiscardKeys",
            "NewToken",
            "FollowRetry",
            "ConnectionIdCount",
            "RetireConnectionId",
            "ReadParameters",
            "ChooseVersion",
            "NextPacketNumber",
            "IsDuplicate",
            "AnswerChallenge",
            "KeepAlive",
        ];
        for name in never {
            let found = Operation::ALL.iter().find(|operation| operation.describe().name == name);
            let operation = *found.unwrap_or_else(|| panic!("{name} is no operation"));
            assert_eq!(class_of(operation, Anchor::Replace, true), Class::Never, "{name}");
        }
    }
}
