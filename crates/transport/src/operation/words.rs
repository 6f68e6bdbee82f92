//! Converts typed values to 64-bit words, which hooks read and write, and back.

use std::time::Duration;

use crate::Timestamp;

/// The word that stands for "no time".
const NEVER: u64 = u64::MAX;

/// A type whose values fit into one 64-bit word.
pub(crate) trait Word: Copy {
    /// Returns the value as a word.
    fn to_word(self) -> u64;

    /// Returns the value that a word stands for. Returns `None` if the word, which a hook has
    /// written, is not valid.
    fn from_word(word: u64) -> Option<Self>;
}

/// The type of an operation's inputs or outputs: `()`, one word, or a tuple of words. Its array has
/// exactly as many words as the value, because initializing a larger array would cost as much as
/// the call itself.
pub(crate) trait AbiValue: Copy {
    /// An array with one element for each word of the value.
    type Array: AsRef<[u64]> + AsMut<[u64]>;

    /// The array to which a hook writes its answer, initialized with zeros.
    const ZEROS: Self::Array;

    /// Returns the value as words.
    fn to_words(self) -> Self::Array;

    /// Returns the value that the words stand for. Returns `None` if a hook has written a word that
    /// is not valid.
    fn from_words(words: &Self::Array) -> Option<Self>;
}

impl AbiValue for () {
    type Array = [u64; 0];

    const ZEROS: [u64; 0] = [];

    #[inline]
    fn to_words(self) -> [u64; 0] {
        []
    }

    #[inline]
    fn from_words(_words: &[u64; 0]) -> Option<()> {
        Some(())
    }
}

impl<W: Word> AbiValue for W {
    type Array = [u64; 1];

    const ZEROS: [u64; 1] = [0];

    #[inline]
    fn to_words(self) -> [u64; 1] {
        [self.to_word()]
    }

    #[inline]
    fn from_words(words: &[u64; 1]) -> Option<W> {
        W::from_word(words[0])
    }
}

macro_rules! one_word {
    ($($type:ty: $value:ident => $store:expr, $word:ident => $load:expr;)+) => {
        $(impl Word for $type {
            #[inline]
            fn to_word(self) -> u64 {
                let $value = self;
                $store
            }

            #[inline]
            fn from_word($word: u64) -> Option<$type> {
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
    ($($count:literal: ($($name:ident),+);)+) => {
        $(impl<$($name: Word),+> AbiValue for ($($name,)+) {
            type Array = [u64; $count];

            const ZEROS: [u64; $count] = [0; $count];

            #[inline]
            #[expect(non_snake_case, reason = "a value has its type parameter's name")]
            fn to_words(self) -> [u64; $count] {
                let ($($name,)+) = self;
                [$($name.to_word()),+]
            }

            #[inline]
            #[expect(non_snake_case, reason = "a word has the name of its value's type parameter")]
            fn from_words(words: &[u64; $count]) -> Option<Self> {
                let [$($name),+] = *words;
                Some(($($name::from_word($name)?,)+))
            }
        })+
    };
}

tuples! {
    2: (A, B);
    3: (A, B, C);
    4: (A, B, C, D);
    5: (A, B, C, D, E);
    6: (A, B, C, D, E, F);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hook_words_round_trip() {
        let value = (7u64, true, Some(Timestamp::from_nanos(9)), None::<u64>);
        let words = value.to_words();
        assert_eq!(words, [7, 1, 9, u64::MAX]);
        assert_eq!(AbiValue::from_words(&words), Some(value));
        assert_eq!(<(u64, bool)>::from_words(&[7, 2]), None, "2 is not a boolean");
        assert_eq!(u16::from_words(&[1 << 16]), None);
        assert_eq!(<(u64, u32)>::ZEROS, [0, 0]);
    }
}
