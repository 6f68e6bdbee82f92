//! What a process is doing or waiting for, as `/proc` tells it: for the message when it did not do what it should.

use std::fs;

use equic_lab::measure::cpu_time;

/// Threads that are told of, at most.
const THREADS: usize = 8;

/// Describes a process in one line: the CPU time that it has used, and for each of its threads its state and the kernel
/// function that it waits in (proc_pid_stat(5), proc_pid_wchan(5)).
pub(crate) fn standing(pid: u32) -> String {
    let Some(time) = cpu_time(pid) else { return "it has ended".to_owned() };
    let mut threads: Vec<String> = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .filter_map(|task| thread(&task.ok()?.path()))
        .collect();
    threads.sort();
    let more = threads.len().saturating_sub(THREADS);
    threads.truncate(THREADS);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    format!("it has used {:.2} s of CPU time; {}{more}", time.as_secs_f64(), threads.join(", "))
}

/// A thread, given its folder: `name S in do_epoll_wait`; none if it has ended.
fn thread(task: &std::path::Path) -> Option<String> {
    let stat = fs::read_to_string(task.join("stat")).ok()?;
    // A name may have parentheses of its own.
    let (before, after) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    let state = after.split_whitespace().next()?;
    // Empty or 0 where it runs, or where the system does not tell.
    let place = fs::read_to_string(task.join("wchan")).unwrap_or_default();
    let place = match place.trim() {
        "" | "0" => String::new(),
        place => format!(" in {place}"),
    };
    Some(format!("{name} {state}{place}"))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn who_waits_is_told_with_its_name_and_state() {
        let mut child =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        // Until it waits, it may be doing something else: that is looked for again and again, since nothing tells of it.
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut said = standing(child.id());
        while !said.contains("cat S") {
            assert!(Instant::now() < deadline, "{said}");
            std::thread::sleep(Duration::from_millis(5));
            said = standing(child.id());
        }
        assert!(said.starts_with("it has used 0.0"), "{said}");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(standing(child.id()), "it has ended");
    }
}
