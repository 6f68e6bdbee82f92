//! The descriptors of this process's links and programs, as /proc tells them.

use std::collections::HashMap;
use std::ffi::c_int;
use std::fs;

/// The link to an interface, and the program it attaches.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) link: c_int,
    pub(super) program: Option<c_int>,
}

/// The XDP link of this process to an interface; None where /proc does not tell.
pub(super) fn of_link(if_index: u32) -> Option<Found> {
    let descriptors = fs::read_dir("/proc/self/fdinfo").ok()?.filter_map(|entry| {
        let entry = entry.ok()?;
        let number = entry.file_name().to_str()?.parse().ok()?;
        Some((number, fs::read_to_string(entry.path()).ok()?))
    });
    find(descriptors, if_index)
}

fn find(descriptors: impl Iterator<Item = (c_int, String)>, if_index: u32) -> Option<Found> {
    let mut programs = HashMap::new();
    let mut link = None;
    for (number, text) in descriptors {
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            Some(line.trim())
        };
        let program = field("prog_id").and_then(|id| id.parse::<u32>().ok());
        let interface = field("ifindex").and_then(|index| index.parse::<u32>().ok());
        if field("link_type") == Some("xdp") && interface == Some(if_index) {
            link = Some((number, program));
        } else if let (Some(_), Some(program)) = (field("prog_type"), program) {
            programs.insert(program, number);
        }
    }
    let (link, program) = link?;
    Some(Found { link, program: program.and_then(|id| programs.get(&id).copied()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: &str = "pos:\t0\nflags:\t02\nmnt_id:\t26\n";
    const PROGRAM: &str = "pos:\t0\nprog_type:\t6\nprog_jited:\t1\nprog_tag:\t0123456789abcdef\nmemlock:\t4096\nprog_id:\t77\n";
    const LINK: &str = "pos:\t0\nlink_type:\txdp\nlink_id:\t3\nprog_tag:\t0123456789abcdef\nprog_id:\t77\nifindex:\t5\n";

    fn in_order(texts: &[&str], if_index: u32) -> Option<Found> {
        find(
            texts.iter().enumerate().map(|(number, text)| (number as c_int, (*text).to_owned())),
            if_index,
        )
    }

    #[test]
    fn link_and_program_are_found_in_any_order() {
        assert_eq!(in_order(&[OTHER, PROGRAM, LINK], 5), Some(Found { link: 2, program: Some(1) }));
        assert_eq!(in_order(&[LINK, OTHER, PROGRAM], 5), Some(Found { link: 0, program: Some(2) }));
        assert_eq!(in_order(&[OTHER, LINK], 5), Some(Found { link: 1, program: None }));
        assert_eq!(in_order(&[OTHER, PROGRAM, LINK], 6), None);
        assert_eq!(in_order(&[OTHER, PROGRAM], 5), None);
    }

    #[test]
    fn this_process_has_no_link() {
        assert_eq!(of_link(1), None);
    }
}
