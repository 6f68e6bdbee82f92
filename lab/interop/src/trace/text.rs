//! Prints a trace as text, one line per packet.

use std::fmt::Write as _;

use equic_net::Fate;
use equic_netns::relay::Way;
use equic_wire::frame::{ConnectionClose, Frame};

use super::{Seen, Trace};

impl Trace {
    /// Returns a line for each packet: seconds, direction, type, number, size, frames, and what
    /// happened to it on the link.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut datagram = None;
        for seen in &self.packets {
            // Details of the datagram are printed only in the line of its first packet. Lines of
            // further coalesced packets follow it.
            let first = datagram != Some(seen.datagram);
            datagram = Some(seen.datagram);
            // Writing into a string does not fail.
            let _ = seen.line(first, &mut text);
        }
        text
    }
}

impl Seen {
    fn line(&self, first: bool, text: &mut String) -> std::fmt::Result {
        let way = match self.way {
            Way::ToServer => "->",
            Way::ToClient => "<-",
        };
        match first {
            true => write!(text, "{:9.4} {way} ", self.sent.as_secs_f64())?,
            false => write!(text, "{:9} +  ", "")?,
        }
        write!(text, "{:?}", self.kind)?;
        if let Some(version) = self.version {
            write!(text, " v{version:x}")?;
        }
        for (name, bytes) in [("dcid", &self.dcid), ("scid", &self.scid), ("token", &self.token)] {
            if !bytes.is_empty() {
                write!(text, " {name} ")?;
                bytes.iter().take(20).try_for_each(|byte| write!(text, "{byte:02x}"))?;
            }
        }
        if let Some(content) = &self.content {
            let phase = if content.key_phase { " phase 1" } else { "" };
            let (connection, number) = (content.connection, content.number);
            let path = match content.path {
                0 => String::new(),
                path => format!(" path {path}"),
            };
            write!(
                text,
                " connection {connection}{path} number {number}{phase}:{}",
                content.frames
            )?;
        }
        if first {
            write!(text, " [{} bytes, ecn {}", self.datagram_len, self.ecn)?;
            if self.fate != Fate::Delivered {
                write!(text, ", {:?}", self.fate)?;
            }
            write!(text, ", {}]", self.seen_as)?;
        }
        writeln!(text)
    }
}

/// Appends the description of a frame to a text.
pub(super) fn add(text: &mut String, frame: &Frame<'_>) {
    // Writing into a string does not fail.
    let _ = describe(text, frame);
}

fn describe(text: &mut String, frame: &Frame<'_>) -> std::fmt::Result {
    match frame {
        Frame::Padding(count) => write!(text, " PADDING*{count}"),
        Frame::Ack(ack) => {
            write!(text, " ACK")?;
            for range in ack.ranges() {
                let (first, last) = (range.smallest().get(), range.largest().get());
                write!(text, " {first}-{last}")?;
            }
            Ok(())
        }
        Frame::Crypto(crypto) => {
            write!(text, " CRYPTO {}+{}", crypto.offset().get(), crypto.data().len())
        }
        Frame::Stream(stream) => {
            let id = stream.stream_id().as_varint().get();
            write!(text, " STREAM {id} {}+{}", stream.offset().get(), stream.data().len())
        }
        Frame::ConnectionClose(ConnectionClose::Transport { error_code, reason, .. }) => {
            write!(text, " CLOSE {error_code:?} {:?}", String::from_utf8_lossy(reason))
        }
        Frame::ConnectionClose(ConnectionClose::Application { error_code, reason }) => {
            write!(text, " CLOSE {} {:?}", error_code.get(), String::from_utf8_lossy(reason))
        }
        other => {
            // The name is the first word of the debug format.
            let form = format!("{other:?}");
            let short: String = form.chars().take(60).collect();
            write!(text, " {short}")
        }
    }
}
