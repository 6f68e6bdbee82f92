//! The trials and attacks that `equic-lab plugin-demo` shows, small.

use equic_plugin_kit::hostile::ATTACKS;
use equic_plugin_kit::trial::TRIALS;

/// Each plugin helps where it is meant to, pushed to a client that has never seen it, and all that is sent arrives.
#[test]
fn every_trial_gains() {
    for trial in TRIALS {
        let compared = trial.run(17, 4).unwrap_or_else(|error| panic!("{}: {error}", trial.plugin));
        let (without, with) = (&compared.without, &compared.with);
        println!("{}: {} -> {} {}", trial.plugin, without.value, with.value, trial.unit);
        assert!(without.intact && with.intact, "{}", trial.plugin);
        assert!(with.value < 0.97 * without.value, "{}", trial.plugin);
    }
}

/// What means harm is refused, contained or taken off, and the transfer is whole.
#[test]
fn attacks_come_to_nothing() {
    for attack in ATTACKS {
        let outcome =
            attack.run(17, 200_000).unwrap_or_else(|error| panic!("{}: {error}", attack.name));
        println!("{}: {} {} in {:?}", attack.name, outcome.fate.words(), outcome.why, outcome.took);
        assert!(outcome.is_good(), "{outcome:?}");
    }
}
