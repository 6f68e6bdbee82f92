//! Helper functions for the tests of this crate.

/// Decodes hexadecimal digits.
pub(crate) fn hex(digits: &str) -> Vec<u8> {
    assert!(digits.len().is_multiple_of(2), "the number of digits is even");
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("the digits are hexadecimal"))
        .collect()
}
