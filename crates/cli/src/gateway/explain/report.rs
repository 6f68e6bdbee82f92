//! Prints the verdicts: one answer for a single packet, or one line per packet and a summary for a
//! capture.

use std::collections::BTreeMap;

use equic_gateway::{Action, Judgement, Reason, Verdict};
use equic_report::number;
use equic_report::table::{Cell, Column, Table, Tone};
use serde::Serialize;
use serde_json::json;

use super::capture::Captured;
use crate::failure::Result;
use crate::output;

const SCHEMA: &str = "equic.gateway.explain/1";

/// One packet and its verdict.
#[derive(Serialize)]
pub(super) struct Judged<'a> {
    /// Number of the packet in the capture, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    packet: Option<u64>,
    /// Bytes judged.
    length: usize,
    /// True if the capture contains only the first part of the frame.
    cut: bool,
    verdict: &'static str,
    /// True if the verdict is a drop. In a dry run, such a packet passes anyway.
    drops: bool,
    meaning: &'static str,
    #[serde(flatten)]
    details: Option<&'a Verdict>,
    /// If the packet is answered with a Retry packet: the verdict on the client's next Initial,
    /// which has the token of the Retry packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    with_valid_token: Option<Later>,
}

/// The verdict on a later packet of the same client.
#[derive(Serialize)]
struct Later {
    verdict: &'static str,
    drops: bool,
    reason: &'static str,
    meaning: &'static str,
    #[serde(skip)]
    shown: String,
}

impl Later {
    fn of(judged: &Judged<'_>) -> Later {
        Later {
            verdict: judged.verdict,
            drops: judged.drops,
            reason: judged.reason(),
            meaning: judged.meaning,
            shown: judged.shown(),
        }
    }
}

const UNTOUCHED: &str = "the packet is not for a protected service, so the gateway lets it pass";
const DEEP: &str = "the gateway cannot find the UDP header behind deep or fragmented headers, so it drops the packet (`drop_deep_headers`)";

impl<'a> Judged<'a> {
    pub(super) fn new(judgement: &'a Judgement, length: usize) -> Judged<'a> {
        let details = judgement.verdict.as_ref();
        let deep = details.is_none() && judgement.action == Action::Drop;
        let unjudged = if deep { DEEP } else { UNTOUCHED };
        Judged {
            packet: None,
            length,
            cut: false,
            verdict: match judgement.action {
                Action::Drop => "drop",
                Action::Pass => "pass",
                Action::Answer => "answer",
                Action::Aborted => "aborted",
                Action::Other(_) => "other",
            },
            drops: details.map_or(deep, |details| details.reason.drops()),
            meaning: details.map_or(unjudged, |details| details.reason.meaning()),
            details,
            with_valid_token: None,
        }
    }

    pub(super) fn captured(judgement: &'a Judgement, packet: &Captured<'_>) -> Judged<'a> {
        Judged {
            packet: Some(packet.number),
            cut: packet.length > packet.data.len(),
            ..Judged::new(judgement, packet.data.len())
        }
    }

    /// Adds the verdict on the client's next Initial, if there is one.
    pub(super) fn with_later(self, later: Option<&Judged<'_>>) -> Judged<'a> {
        Judged { with_valid_token: later.map(Later::of), ..self }
    }

    fn reason(&self) -> &'static str {
        self.details.map_or("-", |details| details.reason.name())
    }

    /// Returns the verdict for display. In a dry run, it includes the verdict without the dry run.
    fn shown(&self) -> String {
        if self.drops && self.verdict == "pass" {
            "pass (dry run; otherwise drop)".to_owned()
        } else {
            self.verdict.to_owned()
        }
    }
}

/// Output of `equic gateway explain`: one answer for a single packet, or one line per packet and a
/// summary.
pub(super) struct Report {
    json: bool,
    only_summary: bool,
    packets: u64,
    cut: u64,
    /// Counts of packets by reason number and verdict. Packets that match no service come last.
    tally: BTreeMap<(u32, &'static str), Tally>,
}

#[derive(Default)]
struct Tally {
    reason: Option<Reason>,
    packets: u64,
    bytes: u64,
    dropped: u64,
}

impl Report {
    pub(super) fn new(json: bool, only_summary: bool) -> Report {
        Report { json, only_summary, packets: 0, cut: 0, tally: BTreeMap::new() }
    }

    /// Returns the number of packets judged so far.
    pub(super) fn packets(&self) -> u64 {
        self.packets
    }

    /// Prints the answer for a single packet.
    pub(super) fn single(&mut self, judged: &Judged<'_>) -> Result {
        if self.json {
            return output::json_line(SCHEMA, judged);
        }
        let Some(details) = judged.details else {
            return output::line(format_args!("{}: {}", judged.verdict, judged.meaning));
        };
        output::line(format_args!("{}: {}, {}", judged.shown(), details.reason, judged.meaning))?;
        let mut rows = vec![
            ("service", details.service.clone()),
            ("source", details.source.clone()),
            ("connections", format!("{} open from this source", details.connections)),
        ];
        if details.under_way > 0 {
            rows.push(("under way", format!("{} handshakes of this source", details.under_way)));
        }
        if let Some(state) = &details.adaptive {
            let state = if state.asking {
                "requires address validation"
            } else {
                "does not require address validation"
            };
            rows.push(("retry", format!("adaptive: the service {state}")));
        }
        if let Some(version) = details.version {
            rows.push(("version", format!("{version:#010x}")));
        }
        for (name, id) in [("dcid", &details.dcid), ("scid", &details.scid)] {
            if !id.is_empty() {
                rows.push((name, id.clone()));
            }
        }
        for (name, value) in rows {
            output::line(format_args!("  {name:<12} {value}"))?;
        }
        if let Some(Later { shown, reason, meaning, .. }) = &judged.with_valid_token {
            output::line(format_args!("with a valid token: {shown}: {reason}, {meaning}"))?;
        }
        Ok(())
    }

    /// Adds a packet of a capture to the counts, and prints its line.
    pub(super) fn packet(&mut self, judged: &Judged<'_>) -> Result {
        self.packets += 1;
        self.cut += u64::from(judged.cut);
        let reason = judged.details.map(|details| details.reason);
        let key = (reason.map_or(u32::MAX, Reason::number), judged.verdict);
        let tally = self.tally.entry(key).or_default();
        tally.reason = reason;
        tally.packets += 1;
        tally.bytes += judged.length as u64;
        tally.dropped += u64::from(judged.verdict == "drop");
        if self.only_summary {
            return Ok(());
        }
        if self.json {
            return output::json_line(SCHEMA, judged);
        }
        let source = judged.details.map_or("", |details| details.source.as_str());
        let cut = if judged.cut { "  (truncated in the capture)" } else { "" };
        output::line(format_args!(
            "{:>6}  {:<4}  {:<19}  {source}{cut}",
            judged.packet.unwrap_or(self.packets),
            judged.verdict,
            judged.reason(),
        ))
    }

    /// Prints the number of packets for each reason.
    pub(super) fn summary(&self) -> Result {
        if self.json {
            let reasons: Vec<_> = self
                .tally
                .values()
                .map(|t| {
                    json!({ "reason": t.reason, "packets": t.packets, "bytes": t.bytes, "dropped": t.dropped })
                })
                .collect();
            let data = json!({ "summary": { "packets": self.packets, "cut": self.cut, "reasons": reasons } });
            return output::json_line(SCHEMA, data);
        }
        let mut table = Table::new([
            Column::text("reason"),
            Column::number("packets"),
            Column::number("bytes"),
            Column::number("dropped"),
            Column::text("meaning"),
        ])
        .title(format!("{} packets", number::count(self.packets)));
        for tally in self.tally.values() {
            let name = tally.reason.map_or("-", Reason::name);
            let tone = if tally.dropped > 0 { Tone::Bad } else { Tone::Normal };
            table.row([
                Cell::new(name),
                Cell::new(number::count(tally.packets)),
                Cell::new(number::bytes(tally.bytes)),
                Cell::new(number::count(tally.dropped)).tone(tone),
                Cell::new(tally.reason.map_or(UNTOUCHED, Reason::meaning)).tone(Tone::Faint),
            ]);
        }
        output::table(&table)?;
        if self.cut > 0 {
            output::notice(format_args!(
                "{} packets are truncated in the capture, so their verdicts may differ from those of whole packets: capture with `tcpdump -s 0`",
                number::count(self.cut)
            ));
        }
        Ok(())
    }
}
