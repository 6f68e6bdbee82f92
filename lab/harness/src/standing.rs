//! Describes what a process is doing or waiting for, with information from `/proc`. Messages about
//! a process that hangs contain this description.

use std::fs;

use equic_netns::measure::cpu_time;

/// Maximum number of threads that are described.
const THREADS: usize = 8;

/// Describes a process in one line: its CPU time, and for each thread the state and the kernel
/// function in which it waits (proc_pid_stat(5), proc_pid_wchan(5)).
pub(crate) fn standing(pid: u32) -> String {
    let Some(time) = cpu_time(pid) else { return "the process has ended".to_owned() };
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

/// Describes a thread, given its folder in `/proc`, for example as `name S in do_epoll_wait`.
/// Returns `None` if the thread has ended.
fn thread(task: &std::path::Path) -> Option<String> {
    let stat = fs::read_to_string(task.join("stat")).ok()?;
    // The name of the thread may contain parentheses.
    let (before, after) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    let state = after.split_whitespace().next()?;
    // This file is empty or contains 0 if the thread is running, or if the system hides the
    // function.
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
    fn standing_reports_name_and_state_of_a_process() {
        let mut child =
            Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        // The test polls, because nothing reports when the process begins to wait.
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
        assert_eq!(standing(child.id()), "the process has ended");
    }
}
