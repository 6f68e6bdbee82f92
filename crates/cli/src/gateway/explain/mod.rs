//! `equic gateway explain`: runs the real XDP program on packets that are never sent.
//!
//! [`described`] builds a frame from flags, with [`quic`] and [`frame`]. [`capture`] reads packets
//! from files. The program that judges the packets is either a copy of the running gateway with all
//! its state, or it is loaded with a configuration file. It is not attached to any interface.
//! [`report`] prints the verdicts.

mod capture;
mod described;
mod frame;
mod quic;
mod report;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args as ClapArgs;
use equic_gateway::{Config, Gateway, Guard, Judgement, LoadOptions};

use self::described::{Described, KindArgs};
use self::quic::Hex;
use self::report::{Judged, Report};
use super::Target;
use super::attach::object;
use super::{config_failure, failure};
use crate::failure::{Failure, Result};

/// Shows what would happen to a packet and why. Nothing is sent, and a running gateway is not
/// changed.
#[derive(ClapArgs)]
#[command(after_help = "Examples:
  equic gateway explain --src 192.0.2.7 --initial
  equic gateway explain --config equic.toml --connections 100 --src 192.0.2.7
  equic gateway explain --pcap attack.pcap --summary")]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// Use a gateway with this configuration file instead of the running one
    #[arg(long, value_name = "FILE", conflicts_with = "gateway")]
    config: Option<PathBuf>,
    /// Judge every packet of this pcap or pcapng file (`-`: standard input)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["Described", "KindArgs", "hex"])]
    pcap: Option<PathBuf>,
    /// Judge this Ethernet frame, given in hex
    #[arg(long, value_name = "BYTES", conflicts_with_all = ["Described", "KindArgs"])]
    hex: Option<Hex>,
    /// With --pcap: print only the summary
    #[arg(long)]
    summary: bool,
    /// Load this build of the program instead of the one in this command
    #[arg(long, value_name = "FILE")]
    object: Option<PathBuf>,
    /// Print JSON lines (schema equic.gateway.explain/1), one per packet, and a summary for --pcap
    #[arg(long)]
    json: bool,
    // These come last, because clap shows all options that follow under their headings.
    #[command(flatten)]
    described: Described,
    #[command(flatten)]
    kind: KindArgs,
}

pub(super) fn run(args: &Args) -> Result {
    if args.summary && args.pcap.is_none() {
        return Err(Failure::usage("--summary needs a capture: give --pcap FILE"));
    }
    let subject = Subject::load(args)?;
    let mut report = Report::new(args.json, args.summary);
    if let Some(path) = &args.pcap {
        return judge_capture(&subject, path, report);
    }
    if let Some(Hex(frame)) = &args.hex {
        let judgement = subject.gateway.judge(frame)?;
        return report.single(&Judged::new(&judgement, frame.len()));
    }
    let frames = args.described.frames(args.kind.kind(), &subject.config)?;
    let _held = subject.hold(&args.described)?;
    match subject.judge(&frames)? {
        Some((judgement, length)) => {
            let later = subject.after_retry(&judgement, &args.described)?;
            let later = later.as_ref().map(|(later, length)| Judged::new(later, *length));
            report.single(&Judged::new(&judgement, length).with_later(later.as_ref()))
        }
        None => Err(Failure::usage(
            "no packet to judge: describe one with --src ADDR, or use --pcap FILE or --hex BYTES",
        )),
    }
}

/// The gateway that judges the packets.
struct Subject {
    gateway: Gateway,
    /// Configuration of the gateway. Its services supply the packet fields that the flags do not
    /// give.
    config: Config,
}

impl Subject {
    fn load(args: &Args) -> Result<Subject> {
        let object = object(args.object.as_ref());
        if let Some(path) = &args.config {
            let config = Config::read(path).map_err(config_failure)?;
            let gateway = Gateway::load_with(&config, object, LoadOptions::explain());
            let gateway = gateway.map_err(failure)?;
            return Ok(Subject { gateway, config });
        }
        let control = args.target.open()?;
        let config = Config { services: control.services()?, ..Config::default() };
        Ok(Subject { gateway: control.snapshot(object)?, config })
    }

    /// Judges frames in order. Returns the verdict on the last one and its length.
    fn judge(&self, frames: &[Vec<u8>]) -> Result<Option<(Judgement, usize)>> {
        let mut last = None;
        for frame in frames {
            last = Some((self.gateway.judge(frame)?, frame.len()));
        }
        Ok(last)
    }

    /// If the answer to an Initial is a Retry packet, judges the client's next Initial, which has
    /// the token of the Retry packet.
    fn after_retry(
        &self,
        judgement: &Judgement,
        described: &Described,
    ) -> Result<Option<(Judgement, usize)>> {
        if judgement.verdict.as_ref().is_none_or(|verdict| verdict.reason.name() != "retry_sent") {
            return Ok(None);
        }
        let ring = self.gateway.control().key_ring()?;
        match described.frames_with_token(&ring, &self.config)? {
            Some(frames) => self.judge(&frames),
            None => Ok(None),
        }
    }

    /// Makes the program believe that the source holds as many connections as the flags say.
    fn hold(&self, described: &Described) -> Result<Vec<Guard>> {
        let Some((service, peer, count)) = described.connections(&self.config)? else {
            return Ok(Vec::new());
        };
        let service = self.gateway.ledger()?.service_at(service)?;
        Ok((0..count).map(|_| service.opened(peer)).collect())
    }
}

/// Judges the packets of a capture. The program's clock advances between them as much as the
/// capture's times do. The first packet is judged at the current time.
fn judge_capture(subject: &Subject, path: &Path, mut report: Report) -> Result {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)
        .map_err(|error| Failure::because("cannot read the clock", error))?;
    let mut clock = Clock { now: now.into(), first: None };
    let read = capture::read(path, |packet| {
        if let Some(time) = packet.time {
            subject.gateway.set_clock(clock.at(time));
        }
        let judgement = subject.gateway.judge(packet.data)?;
        report.packet(&Judged::captured(&judgement, &packet))
    });
    match read {
        // The packets before the damaged part were judged, so print their summary.
        Err(failed @ Failure::Failed { .. }) if report.packets() > 0 => {
            report.summary()?;
            Err(failed)
        }
        Err(failure) => Err(failure),
        Ok(()) => report.summary(),
    }
}

/// Converts times of a capture to times of the XDP program's clock.
struct Clock {
    now: Duration,
    /// Capture time of the first packet, and the program's time when that packet was judged.
    first: Option<(Duration, Duration)>,
}

impl Clock {
    fn at(&mut self, captured: Duration) -> Duration {
        let (first, began) = *self.first.get_or_insert((captured, self.now));
        // Packets of several interfaces are not always in order, but the program's clock must never
        // go back.
        self.now = self.now.max(began.saturating_add(captured.saturating_sub(first)));
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_follows_the_capture_and_never_goes_back() {
        let s = Duration::from_secs;
        let mut clock = Clock { now: s(1000), first: None };
        assert_eq!(clock.at(s(50)), s(1000));
        assert_eq!(clock.at(s(53)), s(1003));
        assert_eq!(clock.at(s(51)), s(1003));
        assert_eq!(clock.at(s(40)), s(1003));
        assert_eq!(clock.at(s(60)), s(1010));
    }
}
