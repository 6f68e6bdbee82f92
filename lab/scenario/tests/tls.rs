//! Compares flows that use TLS with flows without packet protection. Needs the feature `tls`.

use equic_scenario::Scenario;
use equic_scenario::play::{Part, play};
use equic_scenario::results::RunOutcome;

fn run(options: &str, link: &str, seed: u64) -> RunOutcome {
    let text = format!(
        "[network]\ntopology = \"simple\"\n\
         link = {{ rate = \"10 Mb/s\", delay = \"20 ms\", {link} }}\n\
         [[flow]]\nsize = \"300 KB\"\nquic = {{ {options} }}\n"
    );
    let scenario = Scenario::parse(&text).unwrap_or_else(|error| panic!("{error}"));
    play(&scenario, seed, Part::All).unwrap()
}

fn took(run: &RunOutcome) -> f64 {
    let flow = &run.flows[0];
    flow.completion.unwrap_or_else(|| panic!("{flow:?}"))
}

/// Handshakes and packets without protection have the same length as with TLS, so the completion
/// times must be equal.
#[test]
fn tls_takes_as_long_as_its_model() {
    for more in ["", ", resumption = true", ", resumption = true, early_data = true"] {
        let with = run(&format!("protection = \"tls\"{more}"), "", 1);
        let without = run(&format!("protection = \"none\"{more}"), "", 1);
        let ratio = took(&with) / took(&without);
        assert!((0.98..1.02).contains(&ratio), "{more}: {} {}", took(&with), took(&without));
        let packets = |run: &RunOutcome| run.flows[0].packets_sent as f64;
        let ratio = packets(&with) / packets(&without);
        assert!((0.98..1.02).contains(&ratio), "{more}: {} {}", packets(&with), packets(&without));
    }
}

/// Resumption must save the certificate, and early data must save a round trip of 40 ms.
#[test]
fn tls_resumption_and_early_data_save_time() {
    let tls = |more: &str| took(&run(&format!("protection = \"tls\"{more}"), "", 1));
    let (full, resumed) = (tls(""), tls(", resumption = true"));
    let early = tls(", resumption = true, early_data = true");
    assert!(resumed <= full, "{resumed} {full}");
    assert!((0.03..0.05).contains(&(resumed - early)), "{early} {resumed} {full}");
}

#[test]
fn tls_seed_determines_the_run() {
    let lossy = |seed| run("protection = \"tls\"", "loss = \"2 %\", corrupt = \"1 %\"", seed);
    assert_eq!(lossy(1), lossy(1));
    assert_ne!(took(&lossy(1)), took(&lossy(2)));
}
