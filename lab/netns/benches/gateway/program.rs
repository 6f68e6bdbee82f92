//! Measures the XDP program in nanoseconds per packet on each path through it. The results are
//! compared with a program that only passes packets, and with the minimal filter by source address.

use std::time::Duration;

use equic_gateway::{Config, Gateway, Guard, ObjectSource};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use serde::Serialize;

use crate::packets::{self, SOURCE};
use crate::reference::{CALLS, Program, Programs, XDP_DROP};
use crate::{Figure, Result};

const REPEAT: u32 = 20_000;

/// Options that enable all features of the program, with limits that are never reached.
const FEATURES: [(&str, &str); 5] = [
    ("max_connections", "100000"),
    ("new_per_source", "100000000/s"),
    ("new_per_service", "100000000/s"),
    ("packets_per_source", "900000000/s"),
    ("bytes_per_source", "900GB/s"),
];

/// One path through the program.
struct Path {
    what: &'static str,
    expected: Option<&'static str>,
    /// Target: maximum multiple of the reference program's time, or `None` for no target.
    aim: Option<f64>,
    gateway: Gateway,
    /// One packet that is run repeatedly, or several that are run once each. Several are needed if
    /// a second run would follow another path: the packet would be part of the same attempt, or the
    /// program has overwritten it with its answer.
    frames: Vec<Vec<u8>>,
    /// Creates the packets of the next round from a seed. `None` if the same packets are used in
    /// every round.
    next: Option<Next>,
    _held: Vec<Guard>,
    rounds: Vec<Round>,
}

/// Creates packets from a seed.
type Next = Box<dyn Fn(u64) -> Result<Vec<Vec<u8>>>>;

/// Nanoseconds per packet in one round: of a path, and of the programs that it is compared with.
#[derive(Clone, Copy)]
struct Round {
    null: f64,
    reference: f64,
    ours: f64,
}

impl Path {
    fn new(
        object: &ObjectSource,
        what: &'static str,
        expected: Option<&'static str>,
        aim: Option<f64>,
        settings: &[(&str, &str)],
        frame: Vec<u8>,
    ) -> Result<Path> {
        let gateway = Gateway::load(&Config::for_port(443), object.clone())?;
        for (key, value) in settings {
            gateway.control().set(key, value)?;
        }
        let (held, rounds) = (Vec::new(), Vec::new());
        let frames = vec![frame];
        Ok(Path { what, expected, aim, gateway, frames, next: None, _held: held, rounds })
    }

    /// Uses new packets in every round.
    fn each_new(self, next: fn(u64) -> Vec<Vec<u8>>) -> Result<Path> {
        self.each(Box::new(move |seed| Ok(next(seed))))
    }

    /// Like [`Path::each_new`], with a valid token of the gateway in each packet.
    fn each_with_token(self) -> Result<Path> {
        let ring = self.gateway.control().key_ring()?;
        self.each(Box::new(move |seed| packets::with_tokens(&ring, seed)))
    }

    fn each(mut self, next: Next) -> Result<Path> {
        self.frames = next(1)?;
        self.next = Some(next);
        Ok(self)
    }

    fn holding(mut self, connections: usize) -> Result<Path> {
        let service = self.gateway.ledger()?.service_at(0)?;
        let source: std::net::SocketAddr = SOURCE.parse()?;
        self._held = (0..connections).map(|_| service.opened(source)).collect();
        Ok(self)
    }

    /// Measures the path, and just before it the programs that it is compared with.
    fn round(&mut self, programs: &Programs) -> Result<()> {
        let repeat = if self.next.is_some() { 1 } else { REPEAT };
        let (mut null, mut reference, mut ours) = Default::default();
        for frame in &self.frames {
            null += programs.run(Program::Null, frame, repeat)?.1;
            reference += dropping(programs, Program::Reference, frame, repeat)?;
            ours += self.gateway.test_run_repeat(frame, None, repeat)?.duration;
        }
        let each = |time: Duration| time.as_secs_f64() * 1e9 / self.frames.len() as f64;
        let round = Round { null: each(null), reference: each(reference), ours: each(ours) };
        if let Some(next) = &self.next {
            // Every attempt must be a new one, so create new packets.
            self.frames = next(u64::from(ours.subsec_nanos()))?;
        }
        self.rounds.push(round);
        Ok(())
    }

    /// Checks that every packet got the expected verdict.
    fn check(&self, rounds: usize) -> Result<()> {
        let Some(expected) = self.expected else { return Ok(()) };
        for row in self.gateway.control().counters()? {
            let share = row.packets as f64 / (rounds * self.frames.len()) as f64;
            if row.reason.name() != expected && share > 0.001 {
                let other = row.reason.name();
                return Err(
                    format!("{}: packets ended as `{other}`, not {expected}", self.what).into()
                );
            }
        }
        Ok(())
    }
}

/// Returns the mean time that a program takes to drop the frame.
fn dropping(programs: &Programs, which: Program, frame: &[u8], repeat: u32) -> Result<Duration> {
    match programs.run(which, frame, repeat)? {
        (XDP_DROP, time) => Ok(time),
        (verdict, _) => Err(format!("{which:?} says {verdict} where it should drop").into()),
    }
}

/// Returns the paths through a program whose service has only the options in `settings`.
fn paths(object: &ObjectSource) -> Result<Vec<Path>> {
    let path = |what, expected, aim, settings: &[(&str, &str)], frame| {
        Path::new(object, what, expected, aim, settings, frame)
    };

    let limit = [("max_connections", "4"), ("handshake_timeout", "100ms")];
    let strict = [("max_connections", "4"), ("policy", "strict")];
    let denied =
        path("denied source", Some("denied"), Some(2.5), &FEATURES, packets::short_header())?;
    denied.gateway.control().deny("198.51.100.0/24".parse()?, None)?;
    let all = path(
        "established, every feature on",
        Some("established"),
        None,
        &FEATURES,
        packets::short_header(),
    )?;
    all.gateway.control().deny("203.0.113.0/24".parse()?, None)?;
    let mut paths = vec![
        path("not to a service", None, None, &[], packets::elsewhere())?,
        path("established, no limits", Some("established"), None, &[], packets::short_header())?,
        all,
        denied,
        // The source has not opened a connection for a while, so the program does not look it up in
        // the table of handshakes. A long flood from a source over its quota leads to this state.
        path("over quota, policy new", Some("quota"), Some(2.5), &limit, packets::initial(1, 2))?
            .holding(5)?,
        path(
            "over quota, policy strict",
            Some("quota_strict"),
            Some(2.5),
            &strict,
            packets::short_header(),
        )?
        .holding(5)?,
        path("new connection, through all buckets", Some("new"), None, &FEATURES, Vec::new())?
            .each_new(packets::openings)?,
    ];
    paths.extend(proving(object)?);
    Ok(paths)
}

/// Returns the paths that verify addresses and connection IDs, and those that answer.
fn proving(object: &ObjectSource) -> Result<Vec<Path>> {
    let path = |what, expected, aim, settings: &[(&str, &str)], frame| {
        Path::new(object, what, expected, aim, settings, frame)
    };

    let ids = [&FEATURES[..], &[("check_ids", "true")]].concat();
    let retry = [&FEATURES[..], &[("retry", "always"), ("answers_per_service", "off")]].concat();
    let versions =
        [&FEATURES[..], &[("version_negotiation", "true"), ("answers_per_service", "off")]]
            .concat();
    let mut all = path(
        "established, every feature and ID check",
        Some("established"),
        Some(4.0),
        &ids,
        Vec::new(),
    )?;
    all.gateway.control().deny("203.0.113.0/24".parse()?, None)?;
    all.frames = vec![packets::to_proven_id(&all.gateway.control().key_ring()?)?];
    let mut id = path("forged short header", Some("forged_id"), Some(3.0), &ids, Vec::new())?;
    id.frames = vec![packets::forged(&id.gateway.control().key_ring()?)?];
    let mut forged =
        path("token that does not hold", Some("bad_token"), Some(6.0), &retry, Vec::new())?;
    forged.frames = vec![packets::with_forged_token(&forged.gateway.control().key_ring()?)?];
    Ok(vec![
        all,
        id,
        forged,
        path("token that holds, connection let in", Some("proved"), Some(6.0), &retry, vec![])?
            .each_with_token()?,
        path("Retry made", Some("retry_sent"), Some(12.0), &retry, vec![])?
            .each_new(packets::openings)?,
        path(
            "Version Negotiation made",
            Some("version_negotiation_sent"),
            Some(6.0),
            &versions,
            Vec::new(),
        )?
        .each_new(packets::of_unknown_version)?,
    ])
}

/// Cost of a path through the XDP program, or of a program that it is compared with.
#[derive(Serialize)]
pub(crate) struct Row {
    pub what: &'static str,
    /// Nanoseconds per packet.
    pub nanos: Figure,
    /// Time as a multiple of the program that only passes packets, in the same round.
    pub times_null: Figure,
    /// Time as a multiple of the reference program, in the same round.
    pub times_reference: Figure,
    /// Target: maximum multiple of the reference program's time, or `None` for no target.
    pub aim: Option<f64>,
    /// Time divided by that of the program in `--object FILE`, in the same round. `None` without
    /// this option.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times_other: Option<Figure>,
}

impl Row {
    fn new(what: &'static str, aim: Option<f64>, rounds: &[Round]) -> Result<Row> {
        Ok(Row {
            times_other: None,
            what,
            nanos: Figure::of(rounds.iter().map(|round| round.ours))?,
            times_null: Figure::ratio(rounds.iter().map(|round| (round.null, round.ours)))?,
            times_reference: Figure::ratio(
                rounds.iter().map(|round| (round.reference, round.ours)),
            )?,
            aim,
        })
    }
}

/// Nanoseconds per packet of the reference program and its variants, in one round.
struct Bases {
    null: f64,
    reference: f64,
    no_calls: f64,
    more_calls: f64,
}

impl Bases {
    fn measure(programs: &Programs, frame: &[u8]) -> Result<Bases> {
        let nanos = |time: Duration| time.as_secs_f64() * 1e9;
        let dropping = |which| dropping(programs, which, frame, REPEAT).map(nanos);
        Ok(Bases {
            null: nanos(programs.run(Program::Null, frame, REPEAT)?.1),
            reference: dropping(Program::Reference)?,
            no_calls: dropping(Program::NoCalls)?,
            more_calls: dropping(Program::MoreCalls)?,
        })
    }
}

/// All measured costs of programs.
#[derive(Serialize)]
pub(crate) struct Costs {
    /// Costs of the reference program and its variants.
    pub references: Vec<Row>,
    /// Costs of each path through the gateway's program.
    pub paths: Vec<Row>,
    /// Nanoseconds per call of a function that does nothing.
    pub call_nanos: Figure,
}

fn references(bases: &[Bases]) -> Result<Vec<Row>> {
    type Read = fn(&Bases) -> f64;
    let rows: [(&str, Read); 3] = [
        ("reference: parse, look the source up, drop", |bases| bases.reference),
        ("reference without a call", |bases| bases.no_calls),
        ("reference with 16 calls more", |bases| bases.more_calls),
    ];
    let row = |(what, read): (&'static str, Read)| {
        let rounds: Vec<Round> = bases
            .iter()
            .map(|bases| Round { null: bases.null, reference: bases.reference, ours: read(bases) })
            .collect();
        Row::new(what, None, &rounds)
    };
    rows.into_iter().map(row).collect()
}

/// Measures every path `rounds` times, in random order. If another object is given, also measures
/// its paths in the same rounds.
pub(crate) fn measure(
    rounds: usize,
    other: Option<&ObjectSource>,
    rng: &mut SmallRng,
    tell: &dyn Fn(usize),
) -> Result<Costs> {
    let source: std::net::SocketAddr = SOURCE.parse()?;
    let programs = Programs::load(source.ip())?;
    let mut others = other.map(paths).transpose()?.unwrap_or_default();
    let (mut paths, mut bases) = (paths(&ObjectSource::Embedded)?, Vec::new());
    let frame = packets::short_header();
    // One index more than there are paths. The last one stands for the variants of the reference
    // program.
    let mut order: Vec<usize> = (0..=paths.len()).collect();
    for round in 0..rounds {
        order.shuffle(rng);
        for index in &order {
            match paths.get_mut(*index) {
                Some(path) => {
                    let mut both = [Some(path), others.get_mut(*index)];
                    both.shuffle(rng);
                    for path in both.into_iter().flatten() {
                        path.round(&programs)?;
                    }
                }
                None => bases.push(Bases::measure(&programs, &frame)?),
            }
        }
        tell(round + 1);
    }
    let mut rows = Vec::new();
    for (index, path) in paths.iter().enumerate() {
        path.check(rounds)?;
        let mut row = Row::new(path.what, path.aim, &path.rounds)?;
        if let Some(other) = others.get(index) {
            other.check(rounds)?;
            let pairs = other.rounds.iter().zip(&path.rounds);
            row.times_other = Some(Figure::ratio(pairs.map(|(a, b)| (a.ours, b.ours)))?);
        }
        rows.push(row);
    }
    let call = |bases: &Bases| (bases.more_calls - bases.reference) / f64::from(CALLS);
    Ok(Costs {
        references: references(&bases)?,
        paths: rows,
        call_nanos: Figure::of(bases.iter().map(call))?,
    })
}
