//! Captures the messages that libbpf and the verifier print during a call.

use std::cell::RefCell;
use std::sync::Mutex;

use libbpf_rs::{PrintLevel, set_print};

thread_local! {
    static HEARD: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Held by the thread that captures messages, because libbpf has one print function for the whole
/// process.
static LISTENING: Mutex<()> = Mutex::new(());

fn hear(_: PrintLevel, text: String) {
    HEARD.with_borrow_mut(|heard| {
        if let Some(heard) = heard {
            heard.push_str(&text);
        }
    });
}

/// Runs `work`. Also returns the messages that libbpf printed on this thread during the call.
/// Nothing is written to standard error.
pub(crate) fn listen<T>(work: impl FnOnce() -> T) -> (T, String) {
    let _one = LISTENING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let before = set_print(Some((PrintLevel::Info, hear)));
    HEARD.set(Some(String::new()));
    let result = work();
    let heard = HEARD.take().unwrap_or_default();
    set_print(before);
    (result, heard)
}

/// Returns the part of libbpf's messages that is the verifier's log, if there is one.
pub(crate) fn verifier_log(heard: &str) -> Option<&str> {
    let from = heard.find("BEGIN PROG LOAD LOG")?;
    let log = heard[from..].split_once('\n')?.1;
    let end = log.find("END PROG LOAD LOG").unwrap_or(log.len());
    // The line with the end marker begins with the program's name, so the whole line is removed.
    Some(log[..end].rsplit_once('\n').map_or(log, |(log, _)| log).trim())
}

/// Returns the last line of a verifier log that describes the problem. Only statistics follow it.
pub(crate) fn last_useful_line(log: &str) -> &str {
    const STATISTICS: [&str; 6] = [
        "processed ",
        "verification time",
        "stack depth",
        "max_states",
        "peak_states",
        "mark_read",
    ];
    log.lines()
        .rev()
        .map(str::trim)
        .find(|line| !line.is_empty() && !STATISTICS.iter().any(|start| line.starts_with(start)))
        .unwrap_or("the kernel returned no log")
}

/// Returns the last line of libbpf's messages, without its prefix `libbpf: `.
pub(crate) fn last_line(heard: &str) -> &str {
    let line =
        heard.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
    line.trim_start_matches("libbpf: ").trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEARD: &str = "libbpf: prog 'equic_gateway': BPF program load failed: -EACCES\n\
        libbpf: prog 'equic_gateway': -- BEGIN PROG LOAD LOG --\n\
        0: R1=ctx() R10=fp0\n; return *(__u32 *)data; @ bad.c:5\n1: (61) r0 = *(u32 *)(r1 +0)\n\
        invalid access to packet, off=0 size=4, R1(id=0,off=0,r=0)\nR1 offset is outside of the packet\n\
        processed 2 insns (limit 1000000) max_states_per_insn 0 total_states 0\n\
        -- END PROG LOAD LOG --\nlibbpf: failed to load object\n";

    #[test]
    fn log_of_the_verifier_gives_its_last_useful_line() {
        let log = verifier_log(HEARD).expect("there is a log");
        assert!(log.starts_with("0: R1=ctx()"));
        assert!(!log.contains("END PROG"));
        assert_eq!(last_useful_line(log), "R1 offset is outside of the packet");
        assert_eq!(last_line(HEARD), "failed to load object");
        assert_eq!(verifier_log("libbpf: nothing of the kind"), None);
        assert_eq!(last_useful_line("\n"), "the kernel returned no log");
    }

    #[test]
    fn log_capture_is_limited_to_its_thread() {
        let ((), heard) = listen(|| {
            hear(PrintLevel::Warn, "mine\n".to_owned());
            std::thread::scope(|scope| {
                scope.spawn(|| hear(PrintLevel::Warn, "another's\n".to_owned()));
            });
        });
        assert_eq!(heard, "mine\n");
    }
}
