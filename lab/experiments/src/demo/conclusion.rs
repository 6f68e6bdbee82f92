//! Summarises the arms with quotas in one sentence, which is derived from the figures.

use equic_report::number;

use super::arms::Arm;
use super::plan::DemoPlan;
use super::result::ArmResult;

/// If at least this share of the undisturbed figure is left, the sentence does not mention a loss.
pub(super) const UNHURT: f64 = 0.95;
/// The gateway counts as better than the other protections if its figure is larger by this factor.
pub(super) const BETTER: f64 = 1.05;

/// The figures for the sentence: successful requests per second of legitimate clients.
#[derive(Clone, Copy)]
struct Figures {
    alone: f64,
    unprotected: f64,
    user_space: f64,
    gateway: f64,
}

/// Returns the conclusion about the arms with quotas, in one sentence.
pub(super) fn conclude(plan: &DemoPlan, arms: &[ArmResult]) -> String {
    let of = |wanted: Arm| arms.iter().find(|result| result.arm == wanted);
    let rate = |wanted: Arm| of(wanted).map_or(0.0, |result| result.legitimate.requests_per_s);
    let figures = Figures {
        alone: rate(Arm::Alone),
        unprotected: rate(Arm::Unprotected),
        user_space: rate(Arm::UserSpace),
        gateway: rate(Arm::Gateway),
    };
    let gateway = of(Arm::Gateway);
    let dropped = gateway.map_or(0, |result| result.dropped("kernel"));
    let attack = format!(
        "Under an attack of {} Initials/s and {} parallel clients from {} attackers",
        floods(arms),
        number::count(u64::from(plan.connections_per_attacker) * plan.attackers as u64),
        plan.attackers,
    );
    sentence(&attack, plan.clients, figures, dropped)
}

/// Returns the flood rates of all arms, in Initial packets per second.
pub(super) fn floods(arms: &[ArmResult]) -> String {
    let attacks = arms.iter().filter_map(|arm| arm.attack.as_ref());
    range(&attacks.map(|attack| attack.flood_pps).collect::<Vec<_>>())
}

/// Formats rates as one number if all are nearly equal, otherwise as the smallest and the largest.
fn range(floods: &[f64]) -> String {
    let least = floods.iter().copied().fold(f64::INFINITY, f64::min);
    let most = floods.iter().copied().fold(0.0, f64::max);
    if least >= UNHURT * most {
        number::si(most, "")
    } else {
        format!("{} to {}", number::si(least, ""), number::si(most, ""))
    }
}

fn sentence(attack: &str, clients: usize, figures: Figures, dropped: u64) -> String {
    let Figures { alone, unprotected, user_space, gateway } = figures;
    if alone <= 0.0 {
        return "The legitimate clients got no answer, even without an attack. This run has no result."
            .to_owned();
    }
    let share = |rate: f64| number::percent(rate / alone);
    let went = |rate: f64| if rate < UNHURT * alone { "fell to" } else { "stayed at" };
    let figure = |rate: f64| format!("{} ({})", exact(rate), share(rate));
    let begin = format!(
        "{attack}, the rate of {} requests/s of {clients} legitimate clients {} {} without protection, {} {} with quotas in the server",
        exact(alone),
        went(unprotected),
        figure(unprotected),
        went(user_space),
        figure(user_space),
    );
    let end = format!("{} with the same quotas in the kernel", figure(gateway));
    let dropped = number::count(dropped);
    if gateway > BETTER * unprotected.max(user_space) {
        let kept = if gateway < UNHURT * alone { "but only fell to" } else { "and stayed at" };
        format!("{begin}, {kept} {end}, where the gateway dropped {dropped} packets.")
    } else {
        format!(
            "{begin}, and {} {end}. In this run, the gateway dropped {dropped} packets, and was no better than the other arms under attack.",
            went(gateway),
        )
    }
}

/// Formats a number of requests per second, with decimals if it is small.
pub(super) fn exact(rate: f64) -> String {
    if rate > 0.0 && rate < 10.0 {
        format!("{rate:.1}")
    } else {
        number::count(rate.round() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(alone: f64, unprotected: f64, user_space: f64, gateway: f64) -> String {
        sentence("Under attack", 4, Figures { alone, unprotected, user_space, gateway }, 1_234_567)
    }

    #[test]
    fn conclusion_states_flood_rates_as_a_figure_or_a_range() {
        assert_eq!(range(&[99_000.0, 100_000.0]), "100 k");
        assert_eq!(range(&[80_500.0, 180_000.0, 100_000.0]), "80.5 k to 180 k");
    }

    #[test]
    fn conclusion_wording_follows_the_figures() {
        assert_eq!(
            said(1000.0, 2.5, 480.0, 991.0),
            "Under attack, the rate of 1,000 requests/s of 4 legitimate clients fell to 2.5 (0.2 %) without \
             protection, fell to 480 (48.0 %) with quotas in the server, and stayed at 991 (99.1 %) \
             with the same quotas in the kernel, where the gateway dropped 1,234,567 packets."
        );
        let weak = said(1000.0, 0.0, 100.0, 700.0);
        assert!(weak.contains("but only fell to 700 (70.0 %)"), "{weak}");
        let unhurt = said(1000.0, 10.0, 999.0, 1001.0);
        assert!(unhurt.contains("stayed at 999 (99.9 %) with quotas in the server"), "{unhurt}");
        assert!(unhurt.contains("no better than the other arms under attack"), "{unhurt}");
        let worse = said(1000.0, 10.0, 500.0, 300.0);
        assert!(worse.contains("fell to 300 (30.0 %)"), "{worse}");
        assert!(worse.contains("no better than the other arms under attack"), "{worse}");
        assert!(said(0.0, 0.0, 0.0, 0.0).contains("This run has no result."));
    }
}
