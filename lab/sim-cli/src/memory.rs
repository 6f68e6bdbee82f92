//! Rejects a scenario that does not fit into memory, before it runs.

use equic_report::number;
use equic_scenario::Scenario;
use equic_scenario::play::memory;

use crate::failure::{Failure, Result};
use crate::{cgroup, output};

/// Returns the number of runs that may run in parallel: `wanted`, or fewer if memory has no room
/// for that many.
///
/// # Errors
/// Fails if memory has no room for a single run.
pub(crate) fn threads<'a>(
    scenarios: impl IntoIterator<Item = &'a Scenario>,
    wanted: usize,
) -> Result<usize> {
    let Some(available) = available() else { return Ok(wanted) };
    let Some(most) = scenarios.into_iter().map(memory).max().filter(|most| *most > 0) else {
        return Ok(wanted);
    };
    let (needed, there) = (number::bytes(most), number::bytes(available));
    let fit = usize::try_from(available / most).unwrap_or(usize::MAX);
    if fit == 0 {
        return Err(Failure::new(format!(
            "each run needs about {needed} of memory, but only {there} is available: use fewer connections, a smaller `size`, \
             or a smaller `window` in `[flow.quic]` or `[flow.tcp]`"
        )));
    }
    if fit < wanted {
        output::notice(format_args!(
            "only {fit} instead of {wanted} runs are made in parallel, because each run needs about {needed} of memory, and only {there} is available"
        ));
    }
    Ok(wanted.min(fit))
}

/// Returns the number of bytes that Linux can give to this process without swapping, within the
/// limits of its control groups. Returns `None` if neither limit is known.
fn available() -> Option<u64> {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| parse(&text));
    [machine, cgroup::available()].into_iter().flatten().min()
}

fn parse(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_available_is_parsed_from_meminfo() {
        let text = "MemTotal:       32000 kB\nMemFree: 7 kB\nMemAvailable:    2000 kB\n";
        assert_eq!(parse(text), Some(2_048_000));
        for other in ["", "MemTotal: 1 kB", "MemAvailable: x kB", "MemAvailable: 1 MB"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn memory_limits_the_runs_in_parallel() {
        let scenario = |size: &str| {
            Scenario::parse(&format!(
                "[network]\ntopology = \"simple\"\nlink = {{ rate = \"10 Gb/s\", delay = \"1 s\" }}\n\
                 [[flow]]\nsize = \"100 GB\"\nquic = {{ window = \"{size}\" }}"
            ))
            .unwrap()
        };
        let (small, large) = (scenario("1 MiB"), scenario("1 GiB"));
        assert!(memory(&large) > 1 << 30 && memory(&small) < 10 << 20);
        assert_eq!(threads([&small], 1).ok(), Some(1));
        // No machine has room for that many runs in parallel, but every machine has room for one.
        let Ok(most) = threads([&small], usize::MAX) else { panic!("one fits") };
        assert!((1..1 << 30).contains(&most), "{most}");
    }
}
