//! Runs the trials and the attacks of `equic-lab plugin-demo` with a smaller amount of work.

use equic_plugin_kit::hostile::ATTACKS;
use equic_plugin_kit::trial::TRIALS;

/// Each plugin must improve the result of its trial, although the client has never seen the plugin,
/// and all data must arrive intact.
#[test]
fn demo_trials_improve_their_result() {
    for trial in TRIALS {
        let compared = trial.run(17, 4).unwrap_or_else(|error| panic!("{}: {error}", trial.plugin));
        let (without, with) = (&compared.without, &compared.with);
        println!("{}: {} -> {} {}", trial.plugin, without.value, with.value, trial.unit);
        assert!(without.intact && with.intact, "{}", trial.plugin);
        assert!(with.value < 0.97 * without.value, "{}", trial.plugin);
    }
}

/// Each malicious plugin must be refused, contained or detached, and the transfer must complete.
#[test]
fn demo_attacks_are_contained() {
    for attack in ATTACKS {
        let outcome =
            attack.run(17, 200_000).unwrap_or_else(|error| panic!("{}: {error}", attack.name));
        println!("{}: {} {} in {:?}", attack.name, outcome.fate.words(), outcome.why, outcome.took);
        assert!(outcome.is_good(), "{outcome:?}");
    }
}
