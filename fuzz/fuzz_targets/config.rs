//! Configuration files, rates, durations and prefixes: wrong text is an error, never a panic.
#![no_main]

use equic_gateway::{Config, Rate, config::parse_prefix, quantity::parse_duration};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(config) = Config::parse(text) {
        config.validate().expect("what parses is valid");
    }
    if let Ok(rate) = text.parse::<Rate>() {
        let _ = rate.to_abi();
        assert_eq!(rate.to_string().parse::<Rate>(), Ok(rate), "a rate reads back as written");
    }
    let _ = parse_duration(text);
    let _ = parse_prefix(text);
});
