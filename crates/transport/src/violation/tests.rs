use super::*;

/// All violations. A violation that wraps another enumeration is listed with only some variants.
const ALL: [Violation; 37] = {
    use Violation as V;
    [
        V::Frame(FrameErrorKind::Truncated),
        V::TransportParameter(ParameterErrorKind::Duplicate),
        V::Tls(48),
        V::ReservedBits,
        V::KeyUpdate,
        V::AckOfUnsentPacket,
        V::PostHandshakeAuthentication,
        V::CryptoAtOldLevel,
        V::CryptoNotConsumed,
        V::CryptoBufferExceeded,
        V::StreamDirection,
        V::StreamNotOpened,
        V::StreamLimit,
        V::FlowControl,
        V::FinalSize,
        V::DatagramSize,
        V::AckFrequencyDelay,
        V::NewConnectionIdWithoutIds,
        V::ConnectionIdReused,
        V::ConnectionIdLimit,
        V::UnacknowledgedRetirements,
        V::RetiredUnissuedId,
        V::RetiredIdInUse,
        V::HandshakeConnectionIds,
        V::TransportParametersRejected,
        V::ReducedLimitsAfterEarlyData,
        V::VersionInformation,
        V::ExtensionFrameOutsideOneRtt,
        V::ExtensionFrame,
        V::ExtensionFrameTruncated,
        V::FrameRejected,
        V::MultipathWithoutIds,
        V::MultipathNonce,
        V::PathIdLimit,
        V::MaxPathIdReduced,
        V::PathsBlockedLimit,
        V::PathCidsBlockedSequence,
    ]
};

/// Largest length of a reason phrase in bytes. A CONNECTION_CLOSE frame with such a phrase fits
/// into any packet.
const LONGEST: usize = 60;

#[test]
fn violation_list_of_this_test_is_complete() {
    let source = include_str!("../violation.rs");
    let rows = source.lines().filter(|line| line.starts_with("            V::")).count();
    assert_eq!(ALL.len(), rows, "the table has a row for each variant");
}

// RFC 9000 s.19.19 #1
#[test]
fn violation_phrases_are_short_distinct_and_printable() {
    let mut phrases: Vec<&str> = ALL.iter().map(|violation| violation.phrase()).collect();
    let conditions = [
        Condition::NoCommonVersion,
        Condition::ConfidentialityLimit,
        Condition::IntegrityLimit,
        Condition::LastPathAbandoned,
        Condition::InvalidToken,
    ];
    phrases.extend(conditions.map(Condition::phrase));
    for phrase in &phrases {
        assert!((10..=LONGEST).contains(&phrase.len()), "{} bytes: {phrase}", phrase.len());
        assert!(phrase.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{phrase}");
    }
    let count = phrases.len();
    phrases.sort_unstable();
    phrases.dedup();
    assert_eq!(phrases.len(), count, "each violation has its own phrase");
}

#[test]
fn violation_of_a_frame_has_the_code_of_the_frame() {
    use FrameErrorKind as Kind;
    for kind in [Kind::NoFrames, Kind::WrongPacketType, Kind::WrongSender, Kind::UnknownType] {
        let violation = Violation::Frame(kind);
        assert_eq!((violation.code(), violation.phrase()), (kind.code(), kind.phrase()));
    }
}

/// The peer must get only the name of the TLS alert, because the error text of TLS can quote the
/// peer's certificate.
// RFC 9001 s.4.8 #1
#[test]
fn violation_of_tls_is_the_name_of_its_alert() {
    assert_eq!(Violation::Tls(48).phrase(), "TLS alert unknown_ca");
    assert_eq!(Violation::Tls(48).code(), Code::crypto(48));
    assert_eq!(Violation::Tls(255).phrase(), "TLS alert");
}
