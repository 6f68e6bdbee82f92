//! Properties of traces, checked with random texts: some almost valid, and some generated so that
//! they are valid. The fuzz target `trace` checks the same properties.

#[path = "support/laws.rs"]
mod laws;

use equic_net::{Trace, TraceError};
use proptest::prelude::*;

proptest! {
    #[test]
    fn trace_parser_accepts_any_bytes(text in proptest::collection::vec(
        prop_oneof![4 => Just(b'\n'), 12 => b'0'..=b'9', 1 => any::<u8>()], 0..200)
    ) {
        laws::trace(&text);
    }

    /// Generates a trace that is similar to a recording, with bursts, silence and a changing rate.
    #[test]
    fn trace_parser_finds_one_invalid_line(
        gaps in proptest::collection::vec(prop_oneof![6 => 0..3u64, 1 => 0..500u64], 1..500),
        wrong in any::<proptest::sample::Index>(),
    ) {
        let mut moment = 0;
        let mut lines: Vec<String> =
            gaps.iter().map(|gap| { moment += gap; moment.to_string() }).collect();
        lines.push((moment + 1).to_string());
        let text = lines.join("\n") + "\n";
        prop_assert!(Trace::parse(text.as_bytes()).is_ok());
        laws::trace(text.as_bytes());
        let line = wrong.index(lines.len());
        lines[line].push('x');
        let error = Err(TraceError::NotANumber { line: line + 1 });
        prop_assert_eq!(Trace::parse(lines.join("\n").as_bytes()), error);
    }
}
