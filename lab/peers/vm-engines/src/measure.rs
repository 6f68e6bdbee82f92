//! Measured times, and their medians with intervals.

/// Returns the CPU time that `run` takes on this thread, in nanoseconds. Other load on the machine
/// does not count.
pub fn time(mut run: impl FnMut()) -> f64 {
    let start = cpu_time();
    run();
    cpu_time() - start
}

fn cpu_time() -> f64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes one timespec, to which the pointer is valid.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// Repeated measurements of one quantity.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    values: Vec<f64>,
}

impl Measured {
    pub fn push(&mut self, value: f64) {
        self.values.push(value);
    }

    /// Returns the difference between each measurement and that of `other` in the same round.
    pub fn less(&self, other: &Measured) -> Measured {
        let values = self.values.iter().zip(&other.values).map(|(a, b)| a - b);
        Measured { values: values.collect() }
    }

    /// Returns the median and its 95 % interval by order statistics, which does not assume any
    /// distribution of the times.
    pub fn cell(&self) -> String {
        let n = self.values.len();
        if n == 0 {
            return "-".to_owned();
        }
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        let half = 1.96 * (n as f64).sqrt() / 2.0;
        let low = ((n as f64 / 2.0 - half).floor().max(0.0)) as usize;
        let high = ((n as f64 / 2.0 + half).ceil() as usize).min(n - 1);
        format!("{:.1} [{:.1}, {:.1}]", sorted[n / 2], sorted[low], sorted[high])
    }
}
