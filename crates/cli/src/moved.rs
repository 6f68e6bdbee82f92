//! Names of commands that now belong to `equic-lab`. For one release, `equic` rejects them and
//! prints the new name.

use std::ffi::OsString;

/// The program that has these commands now, and also the name of its Debian package.
const PROGRAM: &str = "equic-lab";

/// The words of each old command, and the words of the command that replaces it.
const MOVED: &[(&[&str], &str)] = &[
    (&["demo"], "demo"),
    (&["bench"], "bench"),
    (&["interop"], "interop"),
    (&["interop-endpoint"], "interop-endpoint"),
    (&["reproduce"], "reproduce"),
    (&["sim"], "sim"),
    (&["lab", "soak"], "soak"),
    (&["lab", "bench"], "gateway-bench"),
    (&["lab", "sweep"], "net clean"),
    (&["lab"], "net"),
    (&["plugin", "demo"], "plugin-demo"),
    (&["plugin", "bench"], "plugin-bench"),
];

/// Returns an error message if the arguments start with a command that has moved. If the new
/// program is neither in this program's directory nor on `PATH`, the message names its package.
pub(crate) fn notice(arguments: impl Iterator<Item = OsString>) -> Option<String> {
    let new = new_name(arguments)?;
    let package = if equic_console::program::find(PROGRAM).is_some() {
        String::new()
    } else {
        format!(", in the Debian package {PROGRAM}")
    };
    Some(format!("this command is now `{PROGRAM} {new}`{package}"))
}

fn new_name(arguments: impl Iterator<Item = OsString>) -> Option<&'static str> {
    let words: Vec<OsString> = arguments.take(2).collect();
    let begins = |(old, _): &&(&[&str], &str)| {
        words.len() >= old.len() && old.iter().zip(&words).all(|(old, word)| word == old)
    };
    MOVED.iter().find(begins).map(|(_, new)| *new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_name_is_matched_by_its_longest_form() {
        let new = |words: &[&str]| new_name(words.iter().map(OsString::from));
        assert_eq!(new(&["lab", "bench", "--forged"]), Some("gateway-bench"));
        assert_eq!(new(&["lab", "up", "bench"]), Some("net"));
        assert_eq!(new(&["lab"]), Some("net"));
        assert_eq!(new(&["plugin", "bench"]), Some("plugin-bench"));
        for other in [&["plugin"][..], &["plugin", "run"], &["gateway", "bench"], &["benc"], &[]] {
            assert_eq!(new(other), None, "{other:?}");
        }
    }
}
