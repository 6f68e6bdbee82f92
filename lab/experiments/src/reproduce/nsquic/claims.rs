//! Findings of the nsQUIC thesis with their verdicts. There are two comparisons: today's QUIC with
//! today's TCP, and Google's QUIC with the TCP of ns-3 at the time of the thesis.

use super::data::{Measured, NsQuic, Row};
use super::part::Part;
use super::verdict::{Against, Answer, Finding, Held};

/// Name of today's QUIC among the arms (the compared protocols) of the grids. The constants below
/// name today's TCPs, Google's QUIC, and ns-3's TCP of the thesis' time.
pub(super) const QUIC: &str = "QUIC CUBIC";
pub(super) const CUBIC: &str = "TCP CUBIC";
pub(super) const TODAY: [&str; 6] =
    [CUBIC, "TCP NewReno", "TCP BBR", "TCP BIC", "TCP Vegas", "TCP Westwood+"];
pub(super) const GOOGLE: &str = "Google QUIC";
pub(super) const THEN: &str = "ns-3 CUBIC";
pub(super) const NS3: [&str; 2] = ["ns-3 NewReno", THEN];

/// Returns every finding for which there is data.
pub(super) fn findings(all: &NsQuic) -> Vec<Finding> {
    let findings = [
        faster(all),
        by_size(all),
        errors(all),
        dumbbell(all),
        nodes(all),
        within(all),
        share(all),
        validation(all),
        zero_rtt(all),
    ];
    let played = |one: &Finding| one.today.is_some() || one.then.is_some();
    findings.into_iter().filter(played).collect()
}

/// Returns two numbers of points of the grid: those at which an arm is significantly faster than
/// each of the others, and those at which they can be compared.
fn points_ahead(measured: &Measured, arm: &str, others: &[&str]) -> (usize, usize) {
    let (mut ahead, mut all) = (0, 0);
    for row in measured.rows.iter().filter(|row| row.is("arm", arm)) {
        let Some(own) = row.completion() else { continue };
        let same = |other: &&Row| {
            others.iter().any(|name| other.is("arm", name))
                && row.point.iter().all(|(axis, value)| axis == "arm" || other.is(axis, value))
        };
        let times: Vec<_> = measured.rows.iter().filter(same).map(Row::completion).collect();
        if times.is_empty() {
            continue;
        }
        all += 1;
        // An arm counts as slower if some of its connections did not complete.
        ahead += usize::from(times.iter().flatten().all(|time| own.is_below(time)));
    }
    (ahead, all)
}

fn faster(all: &NsQuic) -> Finding {
    let answer = |arm: &str, others: &[&str]| {
        let parts = [Part::Simple, Part::SimpleLarge].map(|part| all.part(part));
        let sum = |others: &[&str]| {
            let counts = parts.iter().flatten().map(|measured| points_ahead(measured, arm, others));
            counts.fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1))
        };
        let (ahead, points) = sum(others);
        let (first, _) = sum(&others[..1]);
        (points > 0).then(|| Answer {
            held: Held::by(ahead as f64 / points as f64),
            figures: format!(
                "QUIC is faster than all {} variants of TCP at {ahead} of {points} points of the grid, and faster than {} at {first} points",
                others.len(),
                others[0]
            ),
        })
    };
    Finding {
        claim: "In the simple topology, QUIC is faster than every variant of TCP",
        figure: "always",
        today: answer(QUIC, &TODAY),
        then: answer(GOOGLE, &NS3),
        against: Against::Ns3,
    }
}

/// Returns the geometric mean of how many times faster an arm is than another one, over all points
/// that `wanted` accepts.
fn times(
    measured: &Measured,
    arm: &str,
    other: &str,
    wanted: &dyn Fn(&Row) -> bool,
) -> Option<f64> {
    let ratios: Vec<f64> = measured
        .pairs(arm, other)
        .filter(|(row, _)| wanted(row))
        .filter_map(|(row, other)| row.times_faster_than(other))
        .map(f64::ln)
        .collect();
    (!ratios.is_empty()).then(|| (ratios.iter().sum::<f64>() / ratios.len() as f64).exp())
}

/// Returns the values of an axis, each with a figure. Values that have no figure are skipped.
fn along<'a>(
    measured: &'a Measured,
    axis: &str,
    of: impl Fn(&'a str) -> Option<f64>,
) -> Vec<(&'a str, f64)> {
    let values = measured.values(axis).iter().map(String::as_str);
    values.filter_map(|value| Some((value, of(value)?))).collect()
}

/// Lists figures with the values of an axis, such as `1.20 at 1 MB, 1.30 at 10 MB`.
fn listed(figures: &[(&str, f64)], at: &str) -> String {
    let shown: Vec<String> =
        figures.iter().map(|(value, figure)| format!("{figure:.2} {at} {value}")).collect();
    shown.join(", ")
}

fn by_size(all: &NsQuic) -> Finding {
    let answer = |arm: &str, other: &str| {
        let parts = [Part::Simple, Part::SimpleLarge].map(|part| all.part(part));
        let by_size: Vec<(&str, f64)> = parts
            .into_iter()
            .flatten()
            .flat_map(|measured| {
                along(measured, "flow.size", |size| {
                    times(measured, arm, other, &|row| row.is("flow.size", size))
                })
            })
            .collect();
        let ((_, first), (_, last)) = (by_size.first()?, by_size.last()?);
        let held = match last / first {
            growth if growth > 1.1 && *last > 1.0 => Held::Yes,
            growth if growth > 1.0 && *last > 1.0 => Held::InPart,
            _ => Held::No,
        };
        Some(Answer {
            held,
            figures: format!(
                "{other}'s time divided by QUIC's, geometric mean over the grid: {}",
                listed(&by_size, "at")
            ),
        })
    };
    Finding {
        claim: "The difference grows with the size of the transfer",
        figure: "grows",
        today: answer(QUIC, CUBIC),
        then: answer(GOOGLE, THEN),
        against: Against::Ns3,
    }
}

fn errors(all: &NsQuic) -> Finding {
    let answer = |arm: &str, other: &str| {
        let measured = all.part(Part::Errors)?;
        let by_size = along(measured, "flow.size", |size| {
            let point = [("flow.size", size), ("network.link.loss", "1 %")];
            measured.row(arm, &point)?.times_faster_than(measured.row(other, &point)?)
        });
        let most = by_size.iter().map(|(_, times)| *times).fold(0.0, f64::max);
        let held = match most {
            most if most >= 8.0 => Held::Yes,
            most if most >= 2.0 => Held::InPart,
            _ => Held::No,
        };
        (!by_size.is_empty()).then(|| Answer {
            held,
            figures: format!("{other}'s time divided by QUIC's: {}", listed(&by_size, "at")),
        })
    };
    Finding {
        claim: "With 1 % of errors, QUIC needs a tenth of TCP's time",
        figure: "a tenth of TCP's time",
        today: answer(QUIC, CUBIC),
        then: answer(GOOGLE, "ns-3 NewReno"),
        against: Against::Ns3,
    }
}

fn dumbbell(all: &NsQuic) -> Finding {
    let answer = |arm: &str, other: &str| {
        let of = |part| times(all.part(part)?, arm, other, &|_| true);
        let (simple, dumbbell) = (of(Part::Simple)?, of(Part::Dumbbell)?);
        let change = (dumbbell / simple).max(simple / dumbbell);
        let held = match change {
            change if change < 1.15 => Held::Yes,
            change if change < 1.5 => Held::InPart,
            _ => Held::No,
        };
        Some(Answer {
            held,
            figures: format!(
                "{other}'s time divided by QUIC's: {simple:.2} in the simple topology, {dumbbell:.2} in the dumbbell"
            ),
        })
    };
    Finding {
        claim: "The dumbbell gives the same results as the simple topology",
        figure: "similar",
        today: answer(QUIC, CUBIC),
        then: answer(GOOGLE, THEN),
        against: Against::Ns3,
    }
}

fn nodes(all: &NsQuic) -> Finding {
    let answer = |arm: &str, other: &str| {
        let measured = all.part(Part::Nodes)?;
        let by_nodes = along(measured, "nodes", |nodes| {
            let point = [("nodes", nodes)];
            measured.row(arm, &point)?.times_faster_than(measured.row(other, &point)?)
        });
        let ahead = by_nodes.iter().filter(|(_, times)| *times > 1.02).count();
        (!by_nodes.is_empty()).then(|| Answer {
            held: Held::by(ahead as f64 / by_nodes.len() as f64),
            figures: format!("{other}'s time divided by QUIC's: {}", listed(&by_nodes, "with")),
        })
    };
    Finding {
        claim: "QUIC is faster for every number of nodes, from 4 to 100",
        figure: "always",
        today: answer(QUIC, CUBIC),
        then: answer(GOOGLE, THEN),
        against: Against::Ns3,
    }
}

fn within(all: &NsQuic) -> Finding {
    let answer = |arm: &str| {
        let rows = all.part(Part::Within)?.rows.iter().filter(|row| row.is("arm", arm));
        let jain: Vec<f64> = rows.filter_map(|row| Some(row.jain?.mean)).collect();
        let least = jain.iter().copied().reduce(f64::min)?;
        let share = jain.iter().filter(|jain| **jain >= 0.95).count() as f64 / jain.len() as f64;
        Some(Answer {
            held: Held::by(share),
            figures: format!("Jain's index of two connections of {arm} is {least:.3} or more"),
        })
    };
    Finding {
        claim: "Flows of one protocol share fairly",
        figure: "Jain near 1",
        today: answer(QUIC),
        then: answer(GOOGLE),
        against: Against::Ns3,
    }
}

fn share(all: &NsQuic) -> Finding {
    let answer = |arm: &str| {
        let measured = all.part(Part::Fairness)?;
        let by_size = along(measured, "flow.size", |size| {
            let path = [("network.link.rate", "10 Mb/s"), ("network.link.loss", "0 %")];
            Some(measured.row(arm, &[("flow.size", size), path[0], path[1]])?.share?.mean)
        });
        let (_, small) = by_size.first()?;
        let held = match *small {
            share if share >= 2.9 => Held::Yes,
            share if share >= 1.5 => Held::InPart,
            _ => Held::No,
        };
        Some(Answer {
            held,
            figures: format!(
                "QUIC's goodput divided by TCP's at 10 Mb/s: {} ({arm})",
                listed(&by_size, "at")
            ),
        })
    };
    Finding {
        claim: "If QUIC and TCP share a link, QUIC has several times TCP's rate in transfers of 100 KB",
        figure: "3.6 times TCP's rate",
        today: answer("QUIC CUBIC, TCP CUBIC"),
        then: answer("Google QUIC, ns-3 CUBIC"),
        against: Against::Ns3,
    }
}

fn validation(all: &NsQuic) -> Finding {
    let answer = |arm: &str| {
        let row = all.part(Part::Imc17)?.row(arm, &[("network.link.queue", "30 KB")])?;
        let rate = |flow: usize| Some(row.flows.get(flow)?.goodput?.mean / 1e6);
        let (share, quic, tcp) = (row.share?.mean, rate(0)?, rate(1)?);
        let held = match share {
            share if share >= 1.6 => Held::Yes,
            share if share >= 1.2 => Held::InPart,
            _ => Held::No,
        };
        Some(Answer {
            held,
            figures: format!(
                "QUIC gets {quic:.2} Mb/s and TCP gets {tcp:.2} Mb/s, a factor of {share:.2} ({arm})"
            ),
        })
    };
    Finding {
        claim: "As measured for \"Taking a Long Look at QUIC\", QUIC gets far more than half of a link that it shares with TCP",
        figure: "QUIC 2.71 Mb/s, TCP 1.62 Mb/s",
        today: answer("QUIC CUBIC, TCP CUBIC"),
        then: answer("Google QUIC, TCP CUBIC"),
        against: Against::Today,
    }
}

fn zero_rtt(all: &NsQuic) -> Finding {
    let answer = || {
        let measured = all.part(Part::ZeroRtt)?;
        let by_size = along(measured, "flow.size", |size| {
            let path = [("network.link.delay", "50 ms"), ("network.link.loss", "0 %")];
            let point = [("flow.size", size), path[0], path[1]];
            let (with, without) =
                (measured.row("QUIC 0-RTT", &point), measured.row("QUIC", &point));
            with?.times_faster_than(without?)
        });
        let faster = by_size.iter().filter(|(_, times)| *times > 1.05).count();
        (!by_size.is_empty()).then(|| Answer {
            held: Held::by(faster as f64 / by_size.len() as f64),
            figures: format!(
                "time with a full handshake divided by the time with 0-RTT, with a delay of 50 ms: {}",
                listed(&by_size, "at")
            ),
        })
    };
    Finding {
        claim: "0-RTT, which the thesis did not simulate, makes QUIC even faster",
        figure: "not simulated",
        today: answer(),
        then: None,
        against: Against::Ns3,
    }
}

#[cfg(test)]
mod tests {
    use super::super::data::{Flow, Mean};
    use super::super::scale::{Axis, Scale, Size};
    use super::*;

    fn row(arm: &str, size: &str, loss: &str, seconds: f64) -> Row {
        let point = [("arm", arm), ("flow.size", size), ("network.link.loss", loss)];
        let point = point.map(|(axis, value)| (axis.to_owned(), value.to_owned())).into();
        let completion = Some(Mean { mean: seconds, low: seconds * 0.99, high: seconds * 1.01 });
        let flow =
            Flow { name: "x".to_owned(), connections: 3, completed: 3, completion, goodput: None };
        Row { point, flows: vec![flow], jain: None, share: None }
    }

    fn played(part: Part, rows: Vec<Row>) -> NsQuic {
        let axes = vec![Axis {
            name: "flow.size".to_owned(),
            values: vec!["100 KB".to_owned(), "1 MB".to_owned()],
            of: 6,
        }];
        let scale = Scale { size: Size::Quick, seeds: None, large_seeds: None, parts: vec![part] };
        NsQuic { scale, parts: vec![Measured { part, runs: 1, of: 2, axes, rows }] }
    }

    #[test]
    fn claim_on_errors_holds_only_with_ns3_defaults() {
        let mut rows = Vec::new();
        for (arm, seconds) in [(QUIC, 1.0), (CUBIC, 1.1), (GOOGLE, 1.0), ("ns-3 NewReno", 9.0)] {
            rows.push(row(arm, "1 MB", "1 %", seconds));
        }
        let finding = errors(&played(Part::Errors, rows));
        assert_eq!(finding.judgement(), "holds only if TCP has ns-3's default settings");
        assert_eq!(
            finding.today.as_ref().unwrap().figures,
            "TCP CUBIC's time divided by QUIC's: 1.10 at 1 MB"
        );
        assert!(finding.sentence().contains("QUIC's: 9.00 at 1 MB"), "{}", finding.sentence());
    }

    /// Checks the wording for the setting that is named after the paper. The paper used Linux' TCP,
    /// not that of ns-3, so both comparisons use today's TCP.
    #[test]
    fn claim_on_imc17_compares_with_todays_tcp() {
        let shared = |arm: &str, share: f64| {
            let mut row = row(arm, "-", "0 %", 1.0);
            row.point.insert("network.link.queue".to_owned(), "30 KB".to_owned());
            row.share = Some(Mean { mean: share, low: share, high: share });
            for flow in &mut row.flows {
                flow.goodput = row.share;
            }
            row.flows.push(row.flows[0].clone());
            row
        };
        let rows =
            vec![shared("QUIC CUBIC, TCP CUBIC", 0.9), shared("Google QUIC, TCP CUBIC", 2.1)];
        let finding = validation(&played(Part::Imc17, rows));
        assert_eq!(finding.judgement(), "holds only for Google's QUIC, compared with today's TCP");
        let told = finding.sentence();
        assert!(
            told.contains("Google's QUIC and today's TCP: ") && !told.contains("ns-3"),
            "{told}"
        );
    }

    #[test]
    fn claim_on_speed_needs_intervals_apart_from_all_others() {
        let mut rows = Vec::new();
        for (size, bbr) in [("100 KB", 3.0), ("1 MB", 1.01)] {
            rows.push(row(QUIC, size, "0 %", 1.0));
            rows.push(row(CUBIC, size, "0 %", 2.0));
            rows.push(row("TCP BBR", size, "0 %", bbr));
        }
        let all = played(Part::Simple, rows);
        let finding = faster(&all);
        let today = finding.today.clone().unwrap();
        assert_eq!(today.held, Held::InPart);
        assert!(today.figures.contains("at 1 of 2 points"), "{}", today.figures);
        assert!(today.figures.ends_with("TCP CUBIC at 2 points"), "{}", today.figures);
        assert_eq!((finding.judgement(), finding.then), ("holds in part today", None));
        // Findings for which there is no data are omitted.
        let claims: Vec<_> = findings(&all).iter().map(|one| one.figure).collect();
        assert_eq!(claims, ["always", "grows"]);
    }
}
