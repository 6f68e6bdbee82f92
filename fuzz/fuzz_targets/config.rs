//! Fuzzes the parsers of configuration files, list files, rates, durations and prefixes. Invalid
//! text must give an error and never a panic.
#![no_main]

use equic_gateway::{
    Config, ConfigError, Rate, config::parse_prefix, parse_list, quantity::parse_duration,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match Config::parse(text) {
        Ok(config) => config.validate().expect("what parses is valid"),
        Err(error) => places_are_in(text, &error),
    }
    match parse_list(text.as_bytes()) {
        Ok(list) => assert!(list.len() <= text.lines().count(), "an entry a line"),
        Err(error) => places_are_in(text, &error),
    }
    if let Ok(rate) = text.parse::<Rate>() {
        let _ = rate.to_abi();
        assert_eq!(rate.to_string().parse::<Rate>(), Ok(rate), "a rate reads back as written");
    }
    let _ = parse_duration(text);
    let _ = parse_prefix(text);
});

/// Checks that every problem in the error has a position inside the text.
fn places_are_in(text: &str, error: &ConfigError) {
    let ConfigError::Problems { problems, .. } = error else { panic!("{error:?}") };
    assert!(!problems.is_empty());
    let lines: Vec<&str> = text.split('\n').collect();
    for problem in problems.iter().filter(|problem| problem.line != 0) {
        let line = lines.get(problem.line - 1).expect("the line is there");
        assert!(problem.column <= line.chars().count() + 1, "{problem}");
    }
}
