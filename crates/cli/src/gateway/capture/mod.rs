//! `equic gateway capture`: writes dropped packets to a file that Wireshark opens.
//!
//! [`pcapng`] writes the file; the packets come from [`equic_gateway::Capture`].

mod pcapng;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use equic_gateway::{
    Capture, CaptureFilter, CapturedPacket, Control, IpNet, Reason, parse_duration, parse_prefix,
};
use equic_report::number;
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use self::pcapng::{Packet, Pcapng};
use super::Target;
use crate::failure::{Failure, Result};
use crate::output;

/// Writes packets that the gateway drops to a file, with the reason as each packet's comment.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  equic gateway capture --write drops.pcapng --duration 10s
  equic gateway capture --write drops.pcapng --reason quota --source 192.0.2.7
  equic gateway capture --write - | tshark -r - -T fields -e frame.comment

The file contains a sample of the dropped packets: at most `events` packets per
second and CPU. Only the owner of the file may read it, because it contains
clients' addresses and packets.")]
pub(crate) struct Args {
    /// File for the packets, in pcapng format. An existing file is overwritten; `-` is standard
    /// output
    #[arg(long, value_name = "FILE")]
    write: PathBuf,
    /// Capture only packets that were dropped for this reason; may be given several times
    #[arg(long, value_name = "REASON", value_parser = reason)]
    reason: Vec<Reason>,
    /// Capture only packets from this address or prefix
    #[arg(long, value_name = "PREFIX", value_parser = prefix)]
    source: Option<IpNet>,
    /// Stop after this number of packets
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Stop after this time
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    duration: Option<Duration>,
    /// Maximum number of bytes of each packet to write
    #[arg(long, value_name = "BYTES", default_value = "256",
        value_parser = clap::value_parser!(u32).range(64..=i64::from(CaptureFilter::MOST_BYTES)))]
    snap: u32,
    #[command(flatten)]
    target: Target,
    /// Print a summary as JSON at the end (schema equic.gateway.capture/1)
    #[arg(long)]
    json: bool,
}

fn reason(name: &str) -> Result<Reason, String> {
    match name.parse::<Reason>() {
        Ok(reason) if reason.drops() => Ok(reason),
        Ok(_) => Err(format!(
            "the gateway does not drop packets for the reason `{name}`: see `equic gateway reasons`"
        )),
        Err(()) => Err(format!("there is no reason `{name}`: `equic gateway reasons` lists all")),
    }
}

fn prefix(text: &str) -> Result<IpNet, String> {
    parse_prefix(text).map_err(|error| error.to_string())
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text).map_err(|error| error.to_string())
}

/// Maximum time to wait for packets before the loop checks whether it must stop.
const LOOK: Duration = Duration::from_millis(250);

pub(super) fn run(args: &Args) -> Result {
    let to_stdout = args.write == Path::new("-");
    if to_stdout && args.json {
        return Err(Failure::usage(
            "packets and JSON cannot both go to standard output: give `--write` a file name",
        ));
    }
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&ended))
            .map_err(|error| Failure::because("cannot watch for signals", error))?;
    }
    let filter =
        CaptureFilter { reasons: args.reason.clone(), source: args.source, snap: args.snap };
    let capture = args.target.open()?.capture(&filter)?;
    let out: Box<dyn Write> = if to_stdout {
        Box::new(io::stdout())
    } else {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let opened = options.open(&args.write);
        Box::new(opened.map_err(|error| unwritten(args, error))?)
    };
    let mut session = Session::begin(args, capture, BufWriter::new(out))?;
    let outcome = session.run(&filter, &ended);
    session.sum_up()?;
    outcome
}

/// A running capture.
struct Session<'a> {
    args: &'a Args,
    capture: Capture,
    file: Pcapng<BufWriter<Box<dyn Write>>>,
    /// Unix time at which the machine's monotonic clock was zero. It is added to the times of
    /// packets.
    epoch: Duration,
    packets: u64,
    by_reason: BTreeMap<Reason, u64>,
    /// Number of packets that this session lost while it captured from earlier gateways, before
    /// another gateway took over.
    lost: u64,
    /// Number of packets with the selected reasons that the gateway had counted when the capture
    /// started.
    counted: u64,
}

impl<'a> Session<'a> {
    fn begin(
        args: &'a Args,
        capture: Capture,
        out: BufWriter<Box<dyn Write>>,
    ) -> Result<Session<'a>> {
        let control = capture.control();
        let rate = control.settings().events;
        let limit = if rate.is_off() { "100/s".to_owned() } else { rate.to_string() };
        let about = format!(
            "Packets that the gateway `{}` dropped: a sample of at most {limit} from each CPU, with up to {} bytes of each packet",
            control.name(),
            args.snap
        );
        output::notice(format_args!("{about}. Ctrl-C ends the capture"));
        let counted = counted(control, &args.reason)?;
        let mut file =
            Pcapng::new(out, args.snap, &about).map_err(|error| unwritten(args, error))?;
        file.flush().map_err(|error| unwritten(args, error))?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let epoch = now.saturating_sub(equic_gateway::monotonic());
        let (packets, by_reason, lost) = (0, BTreeMap::new(), 0);
        Ok(Session { args, capture, file, epoch, packets, by_reason, lost, counted })
    }

    /// Captures packets until `--count` or `--duration` is reached or `ended` is set. Fails if the
    /// gateway ends and no other gateway replaces it.
    fn run(&mut self, filter: &CaptureFilter, ended: &AtomicBool) -> Result {
        let until = self.args.duration.map(|duration| Instant::now() + duration);
        while !ended.load(Ordering::Relaxed) {
            let left = until.map_or(LOOK, |until| until.saturating_duration_since(Instant::now()));
            let arrived = self.capture.poll(left.min(LOOK))?;
            let quiet = arrived.is_empty();
            for packet in &arrived {
                self.keep(packet)?;
                if self.args.count == Some(self.packets) {
                    return self.file.flush().map_err(|error| unwritten(self.args, error));
                }
            }
            self.file.flush().map_err(|error| unwritten(self.args, error))?;
            if left.is_zero() {
                return Ok(());
            }
            if quiet && !self.capture.control().is_loaded()? {
                self.follow(filter)?;
            }
        }
        Ok(())
    }

    /// Continues the capture at the gateway that has replaced the one that ended.
    fn follow(&mut self, filter: &CaptureFilter) -> Result {
        let gone = |failure: Failure| Failure::because("the gateway has ended", failure);
        let next = self.args.target.open().map_err(gone)?;
        // End the old capture first. The new gateway may use the same maps, and these have room for
        // only one capture.
        self.lost += self.capture.lost();
        self.capture.end();
        self.capture = next.capture(filter)?;
        self.counted = counted(self.capture.control(), &self.args.reason)?;
        Ok(())
    }

    fn keep(&mut self, packet: &CapturedPacket) -> Result {
        let (event, control) = (&packet.event, self.capture.control());
        let passed =
            if event.dropped { "" } else { "; the packet passed, because this is a dry run" };
        let comment = format!(
            "{}: {}; service {}, source {}{passed}",
            event.reason,
            event.reason.meaning(),
            event.service,
            control.source_of(event.from.ip()),
        );
        let written = Packet {
            time: self.epoch + Duration::from_nanos(event.time_ns),
            interface: event.ifindex,
            frame_len: packet.frame_len,
            frame: &packet.frame,
            dropped: event.dropped,
            comment: &comment,
        };
        let name_of = |index: u32| {
            let interfaces = control.interfaces().unwrap_or_default();
            let found = interfaces.iter().find(|interface| interface.ifindex == index);
            found.map_or_else(|| format!("interface {index}"), |interface| interface.label())
        };
        self.file.packet(&written, name_of).map_err(|error| unwritten(self.args, error))?;
        self.packets += 1;
        *self.by_reason.entry(event.reason).or_default() += 1;
        Ok(())
    }

    fn sum_up(&self) -> Result {
        let lost = self.lost + self.capture.lost();
        let counted = counted(self.capture.control(), &self.args.reason).unwrap_or(self.counted);
        let judged = counted.saturating_sub(self.counted);
        let file = self.args.write.display().to_string();
        if self.args.json {
            return output::json(
                "equic.gateway.capture/1",
                json!({ "file": file, "packets": self.packets, "lost": lost, "judged": judged,
                    "reasons": self.by_reason }),
            );
        }
        let of = if self.args.source.is_none() {
            format!(" of {} dropped packets", number::count(judged.max(self.packets)))
        } else {
            String::new()
        };
        let mut said = format!("{} packets captured{of}", number::count(self.packets));
        if lost > 0 {
            said += &format!(
                "; {} more packets were lost, because they arrived faster than this command could read them",
                number::count(lost)
            );
        }
        for (reason, packets) in &self.by_reason {
            said += &format!("\n  {reason}: {}", number::count(*packets));
        }
        if file == "-" {
            output::notice(said);
            return Ok(());
        }
        output::line(said)
    }
}

/// Returns how many packets the gateway has counted with these reasons. An empty list stands for
/// all reasons that drop packets.
fn counted(control: &Control, reasons: &[Reason]) -> Result<u64> {
    let wanted = |reason: Reason| match reasons {
        [] => reason.drops(),
        some => some.contains(&reason),
    };
    let rows = control.counters()?;
    Ok(rows.iter().filter(|row| wanted(row.reason)).map(|row| row.packets).sum())
}

/// Converts a write error. If the reader has closed the pipe, that is not an error for the user.
fn unwritten(args: &Args, error: io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        return Failure::ClosedPipe;
    }
    Failure::because(format_args!("cannot write {}", args.write.display()), error)
}
