//! Shows the result to people, as two tables with explanatory notes.

use equic_report::number::{self, MISSING};
use equic_report::table::{Cell, Column, Table, Tone};

use super::arms::Arm;
use super::conclusion::exact;
use super::newcomers::Newcomers;
use super::plan::DemoPlan;
use super::result::ArmResult;

/// Places that can stop packets and connection attempts, from the network to the application.
const PLACES: [(&str, &str); 3] = [
    ("kernel", "dropped by the gateway"),
    ("socket", "dropped at the socket"),
    ("server", "rejected by the server"),
];
/// If other work uses more than this share of the server's CPU (in percent), a note mentions it.
const DISTURBED: f64 = 10.0;

/// A table that is being built, with one column per arm.
struct Rows<'a> {
    arms: &'a [ArmResult],
    table: Table,
}

impl<'a> Rows<'a> {
    fn new(title: &str, arms: &'a [ArmResult]) -> Rows<'a> {
        let columns = arms.iter().map(|result| Column::number(result.arm.heading()));
        let table = Table::new([Column::text("")].into_iter().chain(columns)).title(title);
        Rows { arms, table }
    }

    fn row(&mut self, name: &str, cell: &dyn Fn(&ArmResult) -> Cell) {
        self.table.row([Cell::new(name)].into_iter().chain(self.arms.iter().map(cell)));
    }

    /// Adds a row about newcomers. Arms without newcomers have an empty cell.
    fn newcomers(&mut self, name: &str, cell: &dyn Fn(&Newcomers) -> Cell) {
        self.row(name, &|result| result.newcomers.as_ref().map_or_else(nothing, cell));
    }

    /// Adds the rate of legitimate requests, compared with the arm without an attack.
    fn requests(&mut self, calm: Arm) {
        let calm = self.arms.iter().find(|result| result.arm == calm);
        let calm = calm.map_or(0.0, |result| result.legitimate.requests_per_s);
        self.row("legitimate requests/s", &|result| {
            let rate = result.legitimate.requests_per_s;
            Cell::new(exact(rate)).tone(tone(result.arm, rate, calm))
        });
    }

    /// Adds failed requests, and the server's CPU use.
    fn failures_and_cpu(&mut self) {
        self.row("  failed requests", &|result| {
            let legitimate = &result.legitimate;
            number::percent_of(legitimate.failures(), legitimate.requests).into()
        });
        self.row("server CPU", &|result| number::percent(result.server.cpu_percent / 100.0).into());
    }

    /// Adds rows with the number of stopped packets, by place and reason.
    fn drops(&mut self) {
        let arms = self.arms;
        for (place, title) in PLACES {
            let sum = |result: &ArmResult| result.dropped(place);
            if arms.iter().all(|result| sum(result) == 0) {
                continue;
            }
            self.row(title, &|result| count(sum(result)));
            for reason in reasons(arms, place) {
                self.row(&format!("  {reason}"), &|result| {
                    let mut drops = result.drops.iter();
                    let found = drops.find(|d| (d.place, &*d.reason) == (place, reason));
                    count(found.map_or(0, |dropped| dropped.count)).tone(Tone::Faint)
                });
            }
        }
    }
}

/// Returns the table about quotas, with one column per arm: the results of legitimate clients, the
/// cost, and the dropped packets by reason.
pub(super) fn quotas(arms: &[ArmResult]) -> Table {
    let mut rows = Rows::new("Attack from the attackers' own addresses", arms);
    rows.requests(Arm::Alone);
    rows.row("  median duration", &|result| ms(result.legitimate.median_ms));
    rows.row("  p99 duration", &|result| ms(result.legitimate.p99_ms));
    rows.failures_and_cpu();
    rows.row("attackers' connections", &|result| {
        result.attack.as_ref().map_or_else(nothing, |a| number::count(a.accepted).into())
    });
    rows.row("flood, Initials/s", &flood);
    rows.drops();
    rows.table
}

/// Returns the table about forged sources, with one column per arm: the number and speed of
/// successful newcomers, and the results of the other clients.
pub(super) fn forged(arms: &[ArmResult]) -> Table {
    let mut rows = Rows::new("\nAttack from forged addresses", arms);
    let calm = arms.iter().find(|result| result.arm == Arm::Calm);
    let calm = calm.and_then(|result| result.newcomers.as_ref()).map_or(0.0, Newcomers::share);
    rows.row("newcomers that got in", &|result| {
        result.newcomers.as_ref().map_or_else(nothing, |newcomers| {
            let text = number::percent_of(newcomers.got_in, newcomers.tried);
            Cell::new(text).tone(tone(result.arm, newcomers.share(), calm))
        })
    });
    let of = |part: String, whole: String| Cell::new(format!("{part} of {whole}"));
    rows.newcomers("  of all newcomers", &|newcomers| {
        of(number::count(newcomers.got_in), number::count(newcomers.tried))
    });
    rows.newcomers("  a second", &|newcomers| {
        of(exact(newcomers.got_in_per_s), exact(newcomers.tried_per_s))
    });
    rows.newcomers("  median to connect", &|newcomers| ms(newcomers.connect_median_ms));
    rows.newcomers("  p99 to connect", &|newcomers| ms(newcomers.connect_p99_ms));
    rows.requests(Arm::Calm);
    rows.failures_and_cpu();
    rows.row("flood, Initials/s", &flood);
    rows.row("Retry by the server", &|result| count(result.retries.server));
    rows.row("Retry by the gateway", &|result| count(result.retries.gateway));
    rows.drops();
    rows.table
}

/// Returns the colour of an arm's figure, from its comparison with the arm without an attack.
fn tone(arm: Arm, figure: f64, calm: f64) -> Tone {
    match arm {
        Arm::Alone | Arm::Calm => Tone::Strong,
        _ if figure >= 0.9 * calm => Tone::Good,
        _ if figure >= 0.5 * calm => Tone::Warning,
        _ => Tone::Bad,
    }
}

fn ms(ms: Option<f64>) -> Cell {
    ms.map_or_else(nothing, |ms| number::seconds(ms / 1000.0).into())
}

fn count(count: u64) -> Cell {
    if count > 0 { number::count(count).into() } else { nothing() }
}

fn flood(result: &ArmResult) -> Cell {
    result.attack.as_ref().map_or_else(nothing, |a| number::si(a.flood_pps, "").into())
}

fn nothing() -> Cell {
    Cell::new(MISSING)
}

/// Returns the reasons for which packets were stopped at a place, in order of first occurrence.
fn reasons<'a>(arms: &'a [ArmResult], place: &str) -> Vec<&'a str> {
    let mut reasons: Vec<&str> = Vec::new();
    for dropped in arms.iter().flat_map(|result| &result.drops).filter(|d| d.place == place) {
        if !reasons.contains(&&*dropped.reason) {
            reasons.push(&dropped.reason);
        }
    }
    reasons
}

/// Returns notes that a reader needs to interpret the figures.
pub(super) fn notes(plan: &DemoPlan, arms: &[ArmResult], forged: &[ArmResult]) -> Vec<String> {
    let mut notes = vec![
        format!(
            "The first flood consists of valid Initials with true source addresses. Each attacker repeats {} different Initials. The parallel clients are real HTTP/3 clients, which hold their connections open.",
            number::count(plan.flood_pool as u64)
        ),
        "In each arm, the measurement starts with the first Initial of the flood, or with the first newcomer, and lasts until the end of the arm. Each arm has a new server. A failure is a request that started in this time and was refused or got no answer. Durations include only successful requests."
            .to_owned(),
        format!(
            "The quotas limit each source address to {} connections at a time and {} new connections. Attempts over a limit are ignored, because this costs a server the least.",
            plan.max_connections, plan.new_per_source
        ),
    ];
    notes.extend(notes_on_forged(plan, forged));
    notes.push(if plan.server_cpu == plan.other_cpu {
        "This machine has only one CPU, which all programs share. With two CPUs, the differences between the arms would be larger."
            .to_owned()
    } else {
        format!(
            "The server runs on CPU {}, and all other programs run on CPU {}, where the attackers have the lowest priority (nice 19). Therefore legitimate clients lose requests because of the server, not because of a lack of CPU time.",
            plan.server_cpu, plan.other_cpu
        )
    });
    notes.push(
        "On veth, the kernel's receive work, including XDP, runs on the sender's CPU. With a network card, it \
         runs on the receiver's CPU."
            .to_owned(),
    );
    if arms.iter().any(|result| result.gateway_native == Some(false)) {
        notes.push(
            "The gateway was attached in generic mode, in which each packet costs more CPU time than in native mode."
                .to_owned(),
        );
    }
    for result in arms.iter().chain(forged) {
        let server = &result.server;
        let others = server.cpu_busy_percent - server.cpu_percent - server.cpu_softirq_percent;
        if others > DISTURBED && plan.server_cpu != plan.other_cpu {
            notes.push(format!(
                "Other programs used {others:.0} % of the server's CPU during `{}`. The results of this arm would be better on an idle machine.",
                result.title
            ));
        }
    }
    notes
}

/// Returns additional notes about the attack from forged sources.
fn notes_on_forged(plan: &DemoPlan, arms: &[ArmResult]) -> Vec<String> {
    let mut notes = vec![
        format!(
            "The second flood consists of the same Initials, each from a random address of {}. Limits per source do not stop them, and no client reads the answers.",
            plan.forged
        ),
        format!(
            "Newcomers are real HTTP/3 clients that are new to the server: {} in each arm, {} per second, whether or not earlier newcomers connected. Each newcomer has a separate socket and connection, and one of {} addresses. The newcomers start when the flood has reached its full rate. A newcomer that gets no answer within {} counts as failed. Legitimate clients continue as before.",
            number::count(plan.newcomers.into()),
            plan.newcomers_per_s,
            plan.newcomers_addresses,
            number::seconds(f64::from(plan.timeout_ms) / 1000.0),
        ),
        format!(
            "\"Retry by the server\" is `equic serve` with its defaults: with 100 or more unfinished handshakes, the server sends Retry packets. In all other arms, this is turned off (--retry never). The gateway has the limits above and `retry = \"adaptive\"`: if more than {} come from unvalidated addresses, the gateway answers Initials itself, up to answers_per_service = \"{}\".",
            plan.retry_above, plan.answers_per_service
        ),
    ];
    if arms.iter().any(|result| result.gateway_native == Some(false)) {
        notes.push(
            "The gateway that sends Retry packets is attached in generic mode, in which each packet costs more CPU time. In native mode on veth, the packets that the program sends back would be lost."
                .to_owned(),
        );
    }
    notes
}
