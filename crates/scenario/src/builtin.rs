//! Scenarios that come with the simulator, by name.

use crate::model::Scenario;

/// A scenario that can be run by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuiltIn {
    /// The name.
    pub name: &'static str,
    /// Its description, as a file would have it.
    pub text: &'static str,
}

macro_rules! built_in {
    ($($name:literal)*) => {
        &[$(BuiltIn { name: $name, text: include_str!(concat!("builtin/", $name, ".toml")) }),*]
    };
}

/// All scenarios, in the order of their names.
pub fn built_in() -> &'static [BuiltIn] {
    built_in!("cross-traffic" "dumbbell" "fairness" "imc17" "late-comer" "lossy" "parking-lot" "quic-and-tcp" "simple" "wireless")
}

impl BuiltIn {
    /// The scenario of this name, if there is one.
    pub fn find(name: &str) -> Option<BuiltIn> {
        built_in().iter().copied().find(|one| one.name == name)
    }

    /// Names that are near this one.
    pub fn near(name: &str) -> Vec<&'static str> {
        crate::problem::similar(name, built_in().iter().map(|one| one.name))
    }

    /// The scenario.
    ///
    /// # Panics
    /// Never: tests read them all.
    pub fn scenario(&self) -> Scenario {
        Scenario::parse(self.text).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_can_be_read_and_say_what_they_are() {
        for one in built_in() {
            assert!(!one.scenario().description.is_empty(), "{}", one.name);
            assert_eq!(BuiltIn::find(one.name), Some(*one));
        }
        assert!(built_in().is_sorted_by_key(|one| one.name));
        assert_eq!(BuiltIn::near("dumbell"), ["dumbbell"]);
    }
}
