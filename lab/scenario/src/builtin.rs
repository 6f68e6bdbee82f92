//! The built-in scenarios, by name.

use crate::model::Scenario;

/// A built-in scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuiltIn {
    /// Name of the scenario.
    pub name: &'static str,
    /// The scenario description, in the form of a file's content.
    pub text: &'static str,
}

macro_rules! built_in {
    ($($name:literal)*) => {
        &[$(BuiltIn { name: $name, text: include_str!(concat!("builtin/", $name, ".toml")) }),*]
    };
}

/// Returns all built-in scenarios, sorted by name.
pub fn built_in() -> &'static [BuiltIn] {
    built_in!("cross-traffic" "dumbbell" "fairness" "imc17" "late-comer" "lossy" "parking-lot" "quic-and-tcp" "simple" "wireless")
}

impl BuiltIn {
    /// Returns the scenario of this name, or `None`.
    pub fn find(name: &str) -> Option<BuiltIn> {
        built_in().iter().copied().find(|one| one.name == name)
    }

    /// Returns the names of built-in scenarios that are similar to this name.
    pub fn near(name: &str) -> Vec<&'static str> {
        crate::problem::similar(name, built_in().iter().map(|one| one.name))
    }

    /// Parses the scenario.
    ///
    /// # Panics
    /// Never panics in practice, because tests parse every built-in scenario.
    pub fn scenario(&self) -> Scenario {
        Scenario::parse(self.text).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builtin_scenarios_can_be_parsed_and_have_a_description() {
        for one in built_in() {
            assert!(!one.scenario().description.is_empty(), "{}", one.name);
            assert_eq!(BuiltIn::find(one.name), Some(*one));
        }
        assert!(built_in().is_sorted_by_key(|one| one.name));
        assert_eq!(BuiltIn::near("dumbell"), ["dumbbell"]);
    }
}
