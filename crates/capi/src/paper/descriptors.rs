//! Finds the file descriptors of this process's BPF links in /proc. The signal callbacks of the
//! paper's API need them, because the gateway crate does not expose its links.

use std::ffi::c_int;
use std::fs;

/// Returns the file descriptor of the link between this program and this interface, or `None` if
/// /proc does not show one.
pub(super) fn of_link(program: u32, if_index: u32) -> Option<c_int> {
    let wanted = [
        ("link_type", "xdp".to_owned()),
        ("prog_id", program.to_string()),
        ("ifindex", if_index.to_string()),
    ];
    fs::read_dir("/proc/self/fdinfo").ok()?.find_map(|entry| {
        let entry = entry.ok()?;
        let number = entry.file_name().to_str()?.parse().ok()?;
        let text = fs::read_to_string(entry.path()).ok()?;
        wanted.iter().all(|(name, value)| field(&text, name) == Some(value)).then_some(number)
    })
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptor_fields_match_whole_words() {
        let text = "pos:\t0\nlink_type:\txdp\nlink_id:\t3\nprog_id:\t77\nifindex:\t5\n";
        assert_eq!(field(text, "link_type"), Some("xdp"));
        assert_eq!(field(text, "prog_id"), Some("77"));
        assert_eq!(field(text, "prog"), None);
        assert_eq!(field("", "prog_id"), None);
    }

    #[test]
    fn descriptor_of_a_missing_link_is_none() {
        assert_eq!(of_link(1, 1), None);
    }
}
