//! Typed values as 64-bit words and back.

use std::time::Duration;

use crate::Timestamp;

/// The most words that go into or come out of an operation.
pub(crate) const MAX_WORDS: usize = 8;

/// No moment, as a word.
const NEVER: u64 = u64::MAX;

/// Type that can be an operation's inputs or outputs, as 64-bit words.
pub(crate) trait Words: Copy {
    /// Number of words that a value takes.
    const COUNT: usize;

    /// Writes itself to the first [`Words::COUNT`] words.
    fn store(self, words: &mut [u64]);

    /// Reads itself; none: a hook has written what cannot be.
    fn load(words: &[u64]) -> Option<Self>;
}

impl Words for () {
    const COUNT: usize = 0;

    fn store(self, _words: &mut [u64]) {}

    fn load(_words: &[u64]) -> Option<()> {
        Some(())
    }
}

macro_rules! one_word {
    ($($type:ty: $value:ident => $store:expr, $word:ident => $load:expr;)+) => {
        $(impl Words for $type {
            const COUNT: usize = 1;

            fn store(self, words: &mut [u64]) {
                let $value = self;
                if let Some(first) = words.first_mut() {
                    *first = $store;
                }
            }

            fn load(words: &[u64]) -> Option<$type> {
                let $word = *words.first()?;
                $load
            }
        })+
    };
}

one_word! {
    u64: value => value, word => Some(word);
    u32: value => value.into(), word => u32::try_from(word).ok();
    u16: value => value.into(), word => u16::try_from(word).ok();
    u8: value => value.into(), word => u8::try_from(word).ok();
    usize: value => value as u64, word => usize::try_from(word).ok();
    bool: value => value.into(), word => (word <= 1).then_some(word == 1);
    Timestamp: value => value.as_nanos(), word => Some(Timestamp::from_nanos(word));
    Duration: value => u64::try_from(value.as_nanos()).unwrap_or(u64::MAX),
        word => Some(Duration::from_nanos(word));
    Option<Timestamp>: value => value.map_or(NEVER, Timestamp::as_nanos),
        word => Some((word != NEVER).then(|| Timestamp::from_nanos(word)));
    Option<u64>: value => value.unwrap_or(NEVER), word => Some((word != NEVER).then_some(word));
}

macro_rules! tuples {
    ($(($($name:ident),+);)+) => {
        $(impl<$($name: Words),+> Words for ($($name,)+) {
            const COUNT: usize = 0 $(+ $name::COUNT)+;

            #[expect(non_snake_case, reason = "a value has its type parameter's name")]
            fn store(self, words: &mut [u64]) {
                let ($($name,)+) = self;
                let mut rest = words;
                $(
                    let (own, others) = rest.split_at_mut($name::COUNT.min(rest.len()));
                    $name.store(own);
                    rest = others;
                )+
                let _ = rest;
            }

            fn load(words: &[u64]) -> Option<Self> {
                let mut rest = words;
                let value = ($({
                    let (own, others) = rest.split_at_checked($name::COUNT)?;
                    rest = others;
                    $name::load(own)?
                },)+);
                let _ = rest;
                Some(value)
            }
        })+
    };
}

tuples! {
    (A, B);
    (A, B, C);
    (A, B, C, D);
    (A, B, C, D, E);
    (A, B, C, D, E, F);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let value = (7u64, true, Some(Timestamp::from_nanos(9)), None::<u64>);
        let mut words = [0; MAX_WORDS];
        value.store(&mut words);
        assert_eq!(words, [7, 1, 9, u64::MAX, 0, 0, 0, 0]);
        assert_eq!(<(u64, bool, Option<Timestamp>, Option<u64>)>::load(&words), Some(value));
        assert_eq!(bool::load(&[2]), None, "neither true nor false");
        assert_eq!(u16::load(&[1 << 16]), None);
        assert_eq!(<(u64, u64)>::load(&[1]), None);
    }
}
