//! Lists the kernel's BPF programs, maps and links with bpftool(8), to find those that were left
//! behind, and the memory of maps.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::failure::{Failure, Result};

/// Time limit for objects to disappear. The kernel frees maps and programs some time after their
/// last user has ended. On a shared machine, other processes may also still be cleaning up.
const GRACE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(200);

/// Kinds of objects: the name in bpftool's commands, and the name of the ID in /proc/PID/fdinfo.
const KINDS: [(&str, &str); 3] = [("prog", "prog_id"), ("map", "map_id"), ("link", "link_id")];

/// The kind and the ID of a BPF object. The kernel does not reuse IDs.
pub(super) type Object = (&'static str, u64);

/// All BPF objects that exist, with their names.
pub(super) struct Objects(BTreeMap<Object, String>);

impl Objects {
    pub(super) fn now() -> Result<Objects> {
        let mut all = BTreeMap::new();
        for (kind, _) in KINDS {
            for row in bpftool(&[kind, "show"])? {
                let Some(id) = row["id"].as_u64() else { continue };
                let name = row["name"].as_str().or(row["type"].as_str()).unwrap_or_default();
                all.insert((kind, id), name.to_owned());
            }
        }
        Ok(Objects(all))
    }

    /// Returns the objects that exist now but not in `self`, and that no other process holds. Waits
    /// some time for such objects to disappear.
    pub(super) fn left_over(&self) -> Result<Vec<String>> {
        let deadline = Instant::now() + GRACE;
        loop {
            let foreign = held()?;
            let now = Objects::now()?;
            let left: Vec<String> = now
                .0
                .iter()
                .filter(|(object, _)| !self.0.contains_key(object) && !foreign.contains(object))
                .map(|((kind, id), name)| format!("{kind} {id} ({name})"))
                .collect();
            if left.is_empty() || Instant::now() > deadline {
                return Ok(left);
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// Returns the IDs of a program's maps.
pub(super) fn maps_of(program: u64) -> Result<Vec<u64>> {
    let rows = bpftool(&["prog", "show", "id", &program.to_string()])?;
    let ids = rows.first().and_then(|row| row["map_ids"].as_array()).cloned().unwrap_or_default();
    Ok(ids.iter().filter_map(Value::as_u64).collect())
}

/// Returns the kernel memory of these maps, in bytes.
pub(super) fn memory_of(maps: &[u64]) -> Result<u64> {
    let rows = bpftool(&["map", "show"])?;
    let of = |row: &Value| row["id"].as_u64().is_some_and(|id| maps.contains(&id));
    Ok(rows.iter().filter(|row| of(row)).filter_map(|row| row["bytes_memlock"].as_u64()).sum())
}

/// Runs bpftool. Returns the objects that it lists, or the only one that it shows.
fn bpftool(args: &[&str]) -> Result<Vec<Value>> {
    let failed = |why: String| {
        Failure::because(format_args!("`bpftool {}`", args.join(" ")), why)
            .help("on Debian, install the package bpftool, or run `make setup`")
    };
    let mut attempts = 0;
    loop {
        let output = Command::new("bpftool")
            .arg("-j")
            .args(args)
            .output()
            .map_err(|error| failed(error.to_string()))?;
        let value: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        match value {
            Some(Value::Array(rows)) => return Ok(rows),
            // If an object disappears while bpftool creates the list, bpftool reports only an
            // error.
            Some(error) if error.get("error").is_some() && attempts < 20 => attempts += 1,
            Some(one) if one.get("error").is_none() => return Ok(vec![one]),
            _ => {
                let said = [output.stdout, output.stderr].concat();
                return Err(failed(String::from_utf8_lossy(&said).trim().to_owned()));
            }
        }
    }
}

/// Returns the objects that processes other than this one hold, including the maps of held
/// programs. The children of this process have ended.
fn held() -> Result<BTreeSet<Object>> {
    let own = std::process::id();
    let mut held = BTreeSet::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        if pid == own {
            continue;
        }
        // The process may have ended meanwhile.
        let Ok(files) = std::fs::read_dir(entry.path().join("fdinfo")) else { continue };
        for file in files.flatten() {
            let text = std::fs::read_to_string(file.path()).unwrap_or_default();
            held.extend(objects_in(&text));
        }
    }
    for row in bpftool(&["prog", "show"])? {
        if row["id"].as_u64().is_some_and(|id| held.contains(&("prog", id))) {
            let maps = row["map_ids"].as_array().into_iter().flatten();
            held.extend(maps.filter_map(Value::as_u64).map(|id| ("map", id)));
        }
    }
    Ok(held)
}

/// Parses a file of /proc/PID/fdinfo. Returns the BPF objects that the descriptor refers to. If it
/// refers to a link, the file also names the link's program.
fn objects_in(fdinfo: &str) -> Vec<Object> {
    let object = |line: &str| {
        let (key, value) = line.split_once(':')?;
        let (kind, _) = KINDS.iter().find(|(_, name)| *name == key)?;
        Some((*kind, value.trim().parse().ok()?))
    };
    fdinfo.lines().filter_map(object).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bpf_objects_are_parsed_from_fdinfo() {
        let link = "pos:\t0\nflags:\t02000000\nlink_type:\txdp\nlink_id:\t7\nprog_tag:\tab\nprog_id:\t12\n";
        assert_eq!(objects_in(link), [("link", 7), ("prog", 12)]);
        assert_eq!(objects_in("map_type:\t2\nmap_id:\t3\n"), [("map", 3)]);
        assert_eq!(objects_in("pos:\t0\n"), []);
    }
}
