//! The rules of RFC 9114 and RFC 9204 that a peer can break, and the limits that it can exceed.

use std::fmt;

use h3::error::Code;

/// A rule of HTTP/3 that the peer broke, or a limit of this end that it exceeded.
///
/// Some violations close the connection. The others make one request or response malformed, and end
/// only its stream ([`Violation::is_stream_error`]). New variants may be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Violation {
    /// The control stream or a QPACK stream was closed (RFC 9114 s.6.2.1 #5, RFC 9204 s.4.2 #4).
    CriticalStreamClosed,
    /// The peer opened a second control stream, or a second QPACK stream of the same type (RFC 9114
    /// s.6.2.1, RFC 9204 s.4.2 #2).
    // RFC 9114 s.6.2.1 #3
    SecondCriticalStream,
    /// A client opened a push stream (RFC 9114 s.6.2.2 #1).
    PushStreamFromClient,
    /// A push without a MAX_PUSH_ID frame that allows it (RFC 9114 s.4.6 #2).
    // RFC 9114 s.7.2.5 #2
    PushNotAllowed,
    /// CANCEL_PUSH for a push that does not exist (RFC 9114 s.7.2.3 #7 #8).
    UnknownPushId,
    /// The control stream does not begin with SETTINGS (RFC 9114 s.6.2.1 #2).
    MissingSettings,
    /// A second SETTINGS frame (RFC 9114 s.7.2.4 #2).
    SecondSettings,
    /// The same setting twice (RFC 9114 s.7.2.4 #5).
    DuplicateSetting,
    /// A setting of HTTP/2 (RFC 9114 s.7.2.4.1 #3).
    Http2Setting,
    /// SETTINGS that end within a setting (RFC 9114 s.7.1).
    TruncatedSettings,
    /// A frame type of HTTP/2 (RFC 9114 s.7.2.8 #2).
    Http2Frame,
    /// DATA before HEADERS, or either of them after trailers (RFC 9114 s.4.1 #2 #3).
    FrameOrder,
    /// A frame that is not permitted on a request stream (RFC 9114 s.7.2).
    // RFC 9114 s.7.2.3 #6, s.7.2.4 #3 #4, s.7.2.5 #10, s.7.2.6 #2, s.7.2.7 #1
    FrameOnRequestStream,
    /// A frame that is not permitted on the control stream (RFC 9114 s.7.2).
    // RFC 9114 s.7.2.1 #2, s.7.2.2 #1, s.7.2.5 #8
    FrameOnControlStream,
    /// MAX_PUSH_ID from a server (RFC 9114 s.7.2.7 #3).
    MaxPushIdFromServer,
    /// MAX_PUSH_ID that is lower than an earlier one (RFC 9114 s.7.2.7 #4).
    MaxPushIdReduced,
    /// GOAWAY with a higher identifier than an earlier one (RFC 9114 s.5.2 #6).
    GoawayIncreased,
    /// GOAWAY of a server that does not name a request stream (RFC 9114 s.7.2.6 #1).
    GoawayStream,
    /// A frame that is longer or shorter than its fields (RFC 9114 s.7.1 #2 #3).
    // RFC 9114 s.10.8 #1
    FrameLength,
    /// The stream ended within a frame (RFC 9114 s.7.1 #4).
    TruncatedFrame,
    /// A frame of the control stream that is longer than this end accepts.
    FrameTooLong,
    /// A HEADERS frame many times longer than the limit of field sections.
    HeadersTooLong,
    /// More interim responses than this end accepts.
    InterimResponses,
    /// More bytes of incomplete frames than this end keeps.
    IncompleteFrames,
    /// Too many useless bytes: unknown frames and streams, empty frames, and frames of the control
    /// stream.
    UselessBytes,
    /// More malformed requests than the server tolerates.
    MalformedRequests,
    /// More cancelled requests than the server tolerates.
    CancelledRequests,
    /// An encoder instruction although the dynamic table has no capacity (RFC 9204 s.4.3).
    // RFC 9204 s.2.2.3 #2, s.3.1 #2, s.3.2.2 #2, s.4.3.1 #2
    EncoderInstruction,
    /// A decoder instruction about entries of the dynamic table that were never sent (RFC 9204
    /// s.4.4).
    // RFC 9204 s.4.4.1 #1, s.4.4.3 #1
    DecoderInstruction,
    /// A reference to the dynamic table, which is empty (RFC 9204 s.4.5).
    // RFC 9204 s.2.1.2 #2, s.2.2.1 #2, s.2.2.3 #1
    DynamicTableReference,
    /// An index beyond the static table (RFC 9204 s.3.1 #1).
    StaticTableIndex,
    /// A negative Base (RFC 9204 s.4.5.1.2 #1 #2).
    NegativeBase,
    /// A field section that ends within a field line (RFC 9204 s.4.5).
    TruncatedFieldSection,
    /// A string with an invalid Huffman code (RFC 7541 s.5.2).
    HuffmanCode,
    /// An integer of more than 62 bits (RFC 9204 s.4.1.1, s.7.4 #2).
    IntegerTooLarge,
    /// A response that ends without header fields (RFC 9114 s.4.1).
    MissingHeaderSection,
    /// A trailer section that exceeds the limit of field sections.
    TrailersTooLong,
    /// An invalid name of a trailer field (RFC 9114 s.4.2).
    TrailerName,
    /// An invalid value of a trailer field (RFC 9114 s.4.2).
    TrailerValue,
    /// A pseudo-header field after a regular field (RFC 9114 s.4.3 #6).
    PseudoHeaderOrder,
    /// A pseudo-header field that is unknown or not permitted in this section (RFC 9114 s.4.3).
    // RFC 9114 s.4.3 #2 #3 #4
    PseudoHeaderNotPermitted,
    /// The same pseudo-header field twice (RFC 9114 s.4.3).
    // RFC 9114 s.4.3.1 #6
    DuplicatePseudoHeader,
    /// No `:method`, or no `:status` (RFC 9114 s.4.3.1, s.4.3.2 #1).
    MissingPseudoHeader,
    /// No `:scheme` or no `:path` (RFC 9114 s.4.3.1).
    MissingSchemeOrPath,
    /// A `:path` with a fragment (RFC 9114 s.4.3.1).
    PathWithFragment,
    /// A `:path` that does not begin with a slash (RFC 9114 s.4.3.1 #5).
    RelativePath,
    /// An authority with user information (RFC 9114 s.4.3.1 #1).
    UserInformation,
    /// A CONNECT request with a `:scheme` (RFC 9114 s.4.4 #1).
    ConnectWithScheme,
    /// A CONNECT request without a port (RFC 9114 s.4.4).
    ConnectWithoutPort,
    /// Several Host fields (RFC 9110 s.7.2).
    MultipleHosts,
    /// A field of an HTTP/1 connection (RFC 9114 s.4.2).
    ConnectionField,
    /// A TE field with another value than "trailers" (RFC 9114 s.4.2).
    TeField,
    /// Status 101 (RFC 9114 s.4.5).
    SwitchingProtocols,
    /// An interim response with a Content-Length (RFC 9110 s.8.6).
    InterimContentLength,
    /// A Content-Length that is not one number (RFC 9110 s.8.6).
    ContentLength,
    /// Content of another length than its Content-Length (RFC 9114 s.4.1.2).
    ContentMismatch,
}

impl Violation {
    /// Returns the error code that closes the connection or the stream.
    pub const fn code(self) -> Code {
        self.parts().0
    }

    /// Returns the reason phrase, in plain ASCII.
    pub const fn phrase(self) -> &'static str {
        self.parts().1
    }

    /// Returns true if the violation ends only its stream. Otherwise it ends the connection.
    // RFC 9114 s.4.1.2 #2
    pub fn is_stream_error(self) -> bool {
        self.code() == Code::H3_MESSAGE_ERROR || self == Violation::IntegerTooLarge
    }

    const fn parts(self) -> (Code, &'static str) {
        use Violation as V;
        const CREATION: Code = Code::H3_STREAM_CREATION_ERROR;
        const ID: Code = Code::H3_ID_ERROR;
        const UNEXPECTED: Code = Code::H3_FRAME_UNEXPECTED;
        const FRAME: Code = Code::H3_FRAME_ERROR;
        const LOAD: Code = Code::H3_EXCESSIVE_LOAD;
        const QPACK: Code = Code::QPACK_DECOMPRESSION_FAILED;
        const MESSAGE: Code = Code::H3_MESSAGE_ERROR;
        match self {
            V::CriticalStreamClosed => (Code::H3_CLOSED_CRITICAL_STREAM, "critical stream closed"),
            V::SecondCriticalStream => (CREATION, "second control or QPACK stream"),
            V::PushStreamFromClient => (CREATION, "push stream from a client"),
            V::PushNotAllowed => (ID, "push without MAX_PUSH_ID"),
            V::UnknownPushId => (ID, "CANCEL_PUSH for an unknown push"),
            V::MissingSettings => {
                (Code::H3_MISSING_SETTINGS, "control stream does not begin with SETTINGS")
            }
            V::SecondSettings => (UNEXPECTED, "second SETTINGS frame"),
            V::DuplicateSetting => (Code::H3_SETTINGS_ERROR, "duplicate setting"),
            V::Http2Setting => (Code::H3_SETTINGS_ERROR, "setting of HTTP/2"),
            V::TruncatedSettings => (FRAME, "truncated SETTINGS frame"),
            V::Http2Frame => (UNEXPECTED, "frame type of HTTP/2"),
            V::FrameOrder => (UNEXPECTED, "DATA or HEADERS frame out of order"),
            V::FrameOnRequestStream => (UNEXPECTED, "frame not permitted on a request stream"),
            V::FrameOnControlStream => (UNEXPECTED, "frame not permitted on the control stream"),
            V::MaxPushIdFromServer => (UNEXPECTED, "MAX_PUSH_ID from a server"),
            V::MaxPushIdReduced => (ID, "MAX_PUSH_ID was reduced"),
            V::GoawayIncreased => (ID, "GOAWAY identifier was increased"),
            V::GoawayStream => (ID, "GOAWAY does not name a request stream"),
            V::FrameLength => (FRAME, "frame length does not match its fields"),
            V::TruncatedFrame => (FRAME, "stream ended within a frame"),
            V::FrameTooLong => (LOAD, "frame is too long"),
            V::HeadersTooLong => (LOAD, "HEADERS frame far exceeds the field section limit"),
            V::InterimResponses => (LOAD, "too many interim responses"),
            V::IncompleteFrames => (LOAD, "too many bytes of incomplete frames"),
            V::UselessBytes => (LOAD, "too many unknown or empty frames or streams"),
            V::MalformedRequests => (LOAD, "too many malformed requests"),
            V::CancelledRequests => (LOAD, "too many cancelled requests"),
            V::EncoderInstruction => {
                (Code::QPACK_ENCODER_STREAM_ERROR, "dynamic table capacity is 0")
            }
            V::DecoderInstruction => {
                (Code::QPACK_DECODER_STREAM_ERROR, "dynamic table entry was never sent")
            }
            V::DynamicTableReference => (QPACK, "reference to an empty dynamic table"),
            V::StaticTableIndex => (QPACK, "index exceeds the static table"),
            V::NegativeBase => (QPACK, "negative Base of a field section"),
            V::TruncatedFieldSection => (QPACK, "truncated field section"),
            V::HuffmanCode => (QPACK, "invalid Huffman code"),
            V::IntegerTooLarge => (QPACK, "integer exceeds 62 bits"),
            V::MissingHeaderSection => (MESSAGE, "response ended before its header section"),
            V::TrailersTooLong => (MESSAGE, "trailer section is too long"),
            V::TrailerName => (MESSAGE, "invalid trailer field name"),
            V::TrailerValue => (MESSAGE, "invalid trailer field value"),
            V::PseudoHeaderOrder => (MESSAGE, "pseudo-header field after a regular field"),
            V::PseudoHeaderNotPermitted => (MESSAGE, "pseudo-header field not permitted"),
            V::DuplicatePseudoHeader => (MESSAGE, "duplicate pseudo-header field"),
            V::MissingPseudoHeader => (MESSAGE, ":method or :status is missing"),
            V::MissingSchemeOrPath => (MESSAGE, ":scheme or :path is missing"),
            V::PathWithFragment => (MESSAGE, ":path has a fragment"),
            V::RelativePath => (MESSAGE, ":path does not begin with a slash"),
            V::UserInformation => (MESSAGE, "authority has user information"),
            V::ConnectWithScheme => (MESSAGE, "CONNECT with :scheme"),
            V::ConnectWithoutPort => (MESSAGE, "CONNECT without a port"),
            V::MultipleHosts => (MESSAGE, "multiple Host fields"),
            V::ConnectionField => (MESSAGE, "connection-specific field"),
            V::TeField => (MESSAGE, "TE field is not \"trailers\""),
            V::SwitchingProtocols => (MESSAGE, "status 101 is not permitted"),
            V::InterimContentLength => (MESSAGE, "Content-Length in an interim response"),
            V::ContentLength => (MESSAGE, "invalid Content-Length"),
            V::ContentMismatch => (MESSAGE, "content does not match Content-Length"),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.phrase(), self.code())
    }
}

impl std::error::Error for Violation {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a row for each variant of the enum in this file: the variant, its code and its
    /// phrase.
    fn rows() -> Vec<&'static str> {
        let source = include_str!("violation.rs");
        let (_, table) = source.split_once("match self {").unwrap();
        let (table, _) = table.split_once("impl fmt::Display").unwrap();
        table.split("V::").skip(1).collect()
    }

    #[test]
    fn violation_phrases_are_short_and_distinct() {
        let mut phrases: Vec<&str> = rows()
            .iter()
            .map(|row| row.split_once(", \"").unwrap().1.rsplit_once("\")").unwrap().0)
            .collect();
        assert!(phrases.len() > 50 && phrases.contains(&"critical stream closed"));
        for phrase in &phrases {
            assert!((10..=60).contains(&phrase.len()), "{} bytes: {phrase}", phrase.len());
            assert!(phrase.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{phrase}");
        }
        let count = phrases.len();
        phrases.sort_unstable();
        phrases.dedup();
        assert_eq!(phrases.len(), count, "each phrase names one violation");
    }

    #[test]
    fn violation_of_one_message_ends_its_stream_only() {
        assert!(Violation::ContentLength.is_stream_error());
        assert!(Violation::IntegerTooLarge.is_stream_error(), "RFC 9204 s.7.4");
        assert!(!Violation::HuffmanCode.is_stream_error());
        assert!(!Violation::FrameOrder.is_stream_error());
    }
}
