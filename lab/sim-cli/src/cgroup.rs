//! Reads the memory limit of this process's control groups (versions 1 and 2), for example that of
//! a container.

use std::path::{Path, PathBuf};

/// The files and keys of one version of the memory controller.
struct Files {
    limit: &'static str,
    usage: &'static str,
    /// The key in `memory.stat` for the page cache. The kernel drops the page cache before it kills
    /// a process.
    cache: &'static str,
}

const V1: Files = Files {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    cache: "total_inactive_file",
};

const V2: Files = Files { limit: "memory.max", usage: "memory.current", cache: "inactive_file" };

/// Returns the number of bytes that this process can still allocate within the limits of its
/// control groups. Returns `None` if no group has a limit that can be read.
pub(crate) fn available() -> Option<u64> {
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    let mounts = read(Path::new("/proc/self/mountinfo"))?;
    left(&mounts, &read(Path::new("/proc/self/cgroup"))?, &read)
}

/// Like [`available`], but gets the texts of `/proc/self/mountinfo` and `/proc/self/cgroup`, and a
/// function that reads files.
fn left(mounts: &str, groups: &str, read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
    mounts.lines().filter_map(|mount| of_mount(mount, groups, read)).min()
}

/// Returns the smallest number of bytes that a control group of this mount leaves. The groups are
/// that of the process and its parents, up to the root.
fn of_mount(mount: &str, groups: &str, read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
    let (before, after) = mount.split_once(" - ")?;
    let (root, point) = (before.split(' ').nth(3)?, before.split(' ').nth(4)?);
    let mut after = after.split(' ');
    let (kind, options) = (after.next()?, after.nth(1).unwrap_or(""));
    let files = match kind {
        "cgroup2" => V2,
        "cgroup" if options.split(',').any(|option| option == "memory") => V1,
        _ => return None,
    };
    // A line has the form `number:controllers:path`. In version 2, the controllers are empty.
    let group = groups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let own = match kind {
            "cgroup2" => controllers.is_empty(),
            _ => controllers.split(',').any(|one| one == "memory"),
        };
        own.then_some(path)
    })?;
    // The mount shows only the groups below its root. In a container, the path in
    // `/proc/self/cgroup` may not be below this root. The container's own group is then at the
    // root.
    let within = Path::new(group).strip_prefix(unescape(root)).unwrap_or(Path::new(""));
    let point = PathBuf::from(unescape(point));
    let own = point.join(within);
    own.ancestors()
        .take_while(|folder| folder.starts_with(&point))
        .filter_map(|folder| of_group(folder, &files, read))
        .min()
}

fn of_group(folder: &Path, files: &Files, read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
    let number = |name: &str| read(&folder.join(name))?.trim().parse::<u64>().ok();
    // Without a limit, the file contains `max`, or a number that is larger than any memory.
    let limit = number(files.limit)?;
    let usage = number(files.usage).unwrap_or(0);
    let stat = read(&folder.join("memory.stat")).unwrap_or_default();
    let cache = stat.lines().find_map(|line| line.strip_prefix(files.cache)?.trim().parse().ok());
    Some(limit.saturating_sub(usage.saturating_sub(cache.unwrap_or(0))))
}

/// Decodes a path of `/proc/self/mountinfo`, in which blanks and backslashes are written as octal
/// numbers.
fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(files: &'static [(&'static str, &'static str)]) -> impl Fn(&Path) -> Option<String> {
        move |path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| (*text).to_owned())
        }
    }

    const TWO: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
    const ONE: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                       36 31 0:33 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n";

    #[test]
    fn cgroup_2_limit_is_the_least_of_all_parents() {
        let read = with(&[
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/b/memory.current", "10\n"),
            ("/sys/fs/cgroup/a/memory.max", "1000\n"),
            ("/sys/fs/cgroup/a/memory.current", "700\n"),
            ("/sys/fs/cgroup/a/memory.stat", "anon 600\ninactive_file 100\n"),
        ]);
        assert_eq!(left(TWO, "0::/a/b\n", &read), Some(400));
        assert_eq!(left(TWO, "0::/\n", &read), None);
        assert_eq!(left(TWO, "4:memory:/a\n", &read), None);
    }

    #[test]
    fn cgroup_1_limit_is_that_of_the_memory_controller() {
        let read = with(&[
            ("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1000\n"),
            ("/sys/fs/cgroup/memory/x/memory.usage_in_bytes", "900\n"),
            ("/sys/fs/cgroup/memory/x/memory.stat", "cache 9\ntotal_inactive_file 50\n"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("/sys/fs/cgroup/devices/y/memory.limit_in_bytes", "1\n"),
        ]);
        let groups = "5:devices:/y\n4:cpu,memory:/x\n0::/\n";
        assert_eq!(left(ONE, groups, &read), Some(150));
    }

    #[test]
    fn cgroup_of_a_container_is_at_the_root_of_its_mount() {
        let read = with(&[
            ("/sys/fs/cgroup/memory.max", "500"),
            ("/sys/fs/cgroup/memory.current", "600"),
            ("/with blank/memory.max", "7"),
        ]);
        let inside = "30 23 0:26 /docker/77 /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        for groups in ["0::/docker/77", "0::/../../..", "0::/elsewhere"] {
            assert_eq!(left(inside, groups, &read), Some(0), "{groups}");
        }
        let blank = "30 23 0:26 / /with\\040blank ro shared:1 - cgroup2 cgroup rw\n";
        assert_eq!(left(blank, "0::/", &read), Some(7));
    }

    #[test]
    fn cgroup_files_that_are_invalid_give_no_limit() {
        let read = with(&[("/sys/fs/cgroup/memory.max", "x")]);
        for mounts in ["", "x", "- cgroup2", "1 2 3 4 5 - cgroup2", TWO] {
            for groups in ["", "0", "0:", "0::", "0::/", ":::"] {
                assert_eq!(left(mounts, groups, &read), None, "{mounts} {groups}");
            }
        }
    }
}
