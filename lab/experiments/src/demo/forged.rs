//! Summarises the effect of floods from forged sources on newcomers in a few sentences, which are
//! derived from the figures.

use equic_report::number::{self, MISSING};

use super::arms::Arm;
use super::conclusion::{BETTER, UNHURT, floods};
use super::result::ArmResult;

/// The figures of one arm that the sentences need.
#[derive(Clone, Copy, Default)]
struct Figures {
    tried: u64,
    got_in: u64,
    median_ms: Option<f64>,
    p99_ms: Option<f64>,
    /// CPU use of the server, in percent of one CPU.
    cpu_percent: f64,
}

impl Figures {
    fn of(arms: &[ArmResult], wanted: Arm) -> Figures {
        let Some(result) = arms.iter().find(|result| result.arm == wanted) else {
            return Figures::default();
        };
        let cpu_percent = result.server.cpu_percent;
        result.newcomers.as_ref().map_or_else(Figures::default, |newcomers| Figures {
            tried: newcomers.tried,
            got_in: newcomers.got_in,
            median_ms: newcomers.connect_median_ms,
            p99_ms: newcomers.connect_p99_ms,
            cpu_percent,
        })
    }

    fn share(self) -> f64 {
        if self.tried == 0 { 0.0 } else { self.got_in as f64 / self.tried as f64 }
    }

    fn counts(self) -> String {
        let (got_in, tried) = (number::count(self.got_in), number::count(self.tried));
        format!("{got_in} of {tried} ({})", number::percent(self.share()))
    }

    /// Formats the time that newcomers needed to connect, if any newcomer connected.
    fn connect(self) -> String {
        let ms = |ms: Option<f64>| {
            ms.map_or_else(|| MISSING.to_owned(), |ms| number::seconds(ms / 1000.0))
        };
        format!("{} (p99 {})", ms(self.median_ms), ms(self.p99_ms))
    }
}

/// The figures of all arms with newcomers that the sentences need.
#[derive(Clone, Copy)]
struct Shown {
    calm: Figures,
    unprotected: Figures,
    server: Figures,
    gateway: Figures,
    /// Number of Initial packets that the gateway answered with a Retry.
    answered: u64,
}

/// Returns the conclusion about the arms with newcomers, in a few sentences.
pub(super) fn conclude(arms: &[ArmResult]) -> String {
    let of = |wanted| Figures::of(arms, wanted);
    let gateway = arms.iter().find(|result| result.arm == Arm::ForgedGateway);
    let shown = Shown {
        calm: of(Arm::Calm),
        unprotected: of(Arm::ForgedUnprotected),
        server: of(Arm::ForgedServerRetry),
        gateway: of(Arm::ForgedGateway),
        answered: gateway.map_or(0, |result| result.retries.gateway),
    };
    sentences(&floods(arms), shown)
}

fn sentences(floods: &str, shown: Shown) -> String {
    let Shown { calm, unprotected, server, gateway, answered } = shown;
    if calm.got_in == 0 {
        return "No newcomer could connect, even without an attack. This run has no result for newcomers."
            .to_owned();
    }
    let begin = format!(
        "Under {floods} Initials/s from forged sources, this number of newcomers could connect: {} without protection, {} with Retry by the server, ",
        unprotected.counts(),
        server.counts(),
    );
    let best = unprotected.share().max(server.share());
    let (kernel, count) = (gateway.counts(), number::count(answered));
    let end = if answered == 0 {
        format!("and {kernel} behind the gateway, which asked no client to validate its address.")
    } else if gateway.share() <= BETTER * best {
        let than = if BETTER * gateway.share() < best { "fewer than" } else { "about as many as" };
        format!(
            "and {kernel} with Retry in the kernel, where the gateway answered {count} Initials. The gateway let in {than} the best of the other arms."
        )
    } else {
        let but = if gateway.share() < UNHURT * calm.share() { "but only" } else { "and" };
        format!(
            "{but} {kernel} with Retry in the kernel, where the gateway answered {count} Initials."
        )
    };
    let ways = [(gateway, "behind the gateway, "), (server, "with Retry by the server, ")];
    let connect: String = ways
        .iter()
        .filter(|(figures, _)| figures.got_in > 0)
        .map(|(figures, way)| format!("{} {way}", figures.connect()))
        .collect();
    format!(
        "{begin}{end} The successful newcomers connected in {connect}{} without an attack. The server used {} of a CPU when it sent Retry packets itself, and {} behind the gateway.",
        calm.connect(),
        number::percent(server.cpu_percent / 100.0),
        number::percent(gateway.cpu_percent / 100.0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(got_in: u64, cpu_percent: f64) -> Figures {
        let ms = |ms| (got_in > 0).then_some(ms);
        Figures { tried: 120, got_in, median_ms: ms(2.5), p99_ms: ms(9.0), cpu_percent }
    }

    fn said(calm: u64, unprotected: u64, server: u64, gateway: u64, answered: u64) -> String {
        let shown = Shown {
            calm: figures(calm, 20.0),
            unprotected: figures(unprotected, 99.0),
            server: figures(server, 80.0),
            gateway: figures(gateway, 25.0),
            answered,
        };
        sentences("100 k", shown)
    }

    #[test]
    fn forged_conclusion_wording_follows_the_figures() {
        assert_eq!(
            said(120, 0, 30, 120, 400_000),
            "Under 100 k Initials/s from forged sources, this number of newcomers could connect: 0 of 120 (0 %) without protection, 30 of \
             120 (25.0 %) with Retry by the server, and 120 of 120 (100 %) with Retry in the kernel, where the \
             gateway answered 400,000 Initials. The successful newcomers connected in 2.50 ms (p99 9.00 ms) behind the \
             gateway, 2.50 ms (p99 9.00 ms) with Retry by the server, 2.50 ms (p99 9.00 ms) without an attack. The server used 80.0 % of a CPU when it sent Retry packets itself, and 25.0 % behind the gateway."
        );
        let weak = said(120, 0, 30, 90, 400_000);
        assert!(weak.contains("but only 90 of 120 (75.0 %) with Retry in the kernel"), "{weak}");
        assert!(said(120, 0, 30, 118, 1).contains("and 118 of 120 (98.3 %)"));
        for (server, gateway, than) in [
            (120, 120, "about as many as"),
            (118, 120, "about as many as"),
            (0, 0, "about as many as"),
            (120, 60, "fewer than"),
        ] {
            let same = said(120, 0, server, gateway, 400_000);
            assert!(same.contains(&format!("let in {than} the best of the other arms")), "{same}");
            assert_eq!(same.contains("behind the gateway, "), gateway > 0, "{same}");
            assert_eq!(same.contains("with Retry by the server, 2.50"), server > 0, "{same}");
        }
        let calm = said(120, 0, 30, 120, 0);
        assert!(calm.contains("and 120 of 120 (100 %) behind the gateway, which asked no client"));
        assert!(!calm.contains("in the kernel"), "{calm}");
        assert!(said(0, 0, 0, 120, 9).contains("no result for newcomers"));
    }
}
