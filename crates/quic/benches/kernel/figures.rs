//! Figures of the rounds, and tables of these figures.

/// Results of the rounds for one way: nanoseconds per datagram for sending and receiving.
pub(crate) struct Figures {
    pub name: &'static str,
    rounds: Vec<[f64; 2]>,
}

impl Figures {
    pub(crate) fn new(name: &'static str) -> Figures {
        Figures { name, rounds: Vec::new() }
    }

    pub(crate) fn push(&mut self, round: [f64; 2]) {
        self.rounds.push(round);
    }

    fn of(&self, part: impl Fn(&[f64; 2]) -> f64) -> Median {
        Median::of(self.rounds.iter().map(part))
    }

    /// Returns the ratio of a part to the same part of another way, compared round by round.
    fn to(&self, other: &Figures, part: impl Fn(&[f64; 2]) -> f64) -> Median {
        let pairs = self.rounds.iter().zip(&other.rounds);
        Median::of(pairs.map(|(own, other)| part(own) / part(other)))
    }
}

/// A median with its 95 % confidence interval.
pub(crate) struct Median {
    pub value: f64,
    pub low: f64,
    pub high: f64,
}

impl Median {
    pub(crate) fn of(figures: impl Iterator<Item = f64>) -> Median {
        let mut sorted: Vec<f64> = figures.collect();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len() as f64;
        // Each figure is below the median with probability 1/2, whatever the distribution. The
        // bounds are therefore ranks of a binomial distribution.
        let half = 0.98 * count.sqrt();
        let rank = |at: f64| sorted[(at.max(0.0) as usize).min(sorted.len() - 1)];
        let middle = (sorted[(sorted.len() - 1) / 2] + sorted[sorted.len() / 2]) / 2.0;
        let low = rank((count / 2.0 - half).floor());
        Median { value: middle, low, high: rank((count / 2.0 + half).ceil()) }
    }

    pub(crate) fn nanoseconds(&self) -> String {
        format!("{:.0} [{:.0}, {:.0}]", self.value, self.low, self.high)
    }

    fn ratio(&self) -> String {
        format!("{:.3} [{:.3}, {:.3}]", self.value, self.low, self.high)
    }
}

/// Prints a table with one line for each way. The last column is the ratio of sending and receiving
/// together to the way that `base` names.
pub(crate) fn print(all: &[&Figures], base: &str, markdown: bool) {
    let base = all.iter().find(|figures| figures.name == base);
    let both = |round: &[f64; 2]| round[0] + round[1];
    let lines = all.iter().map(|figures| {
        [
            figures.name.to_owned(),
            figures.of(|round| round[0]).nanoseconds(),
            figures.of(|round| round[1]).nanoseconds(),
            figures.of(both).nanoseconds(),
            base.map(|base| figures.to(base, both).ratio()).unwrap_or_default(),
        ]
    });
    table(["way", "send", "receive", "both", "both, to the first"], lines, markdown);
}

/// Prints a table with a header and lines.
pub(crate) fn table<const N: usize>(
    head: [&str; N],
    lines: impl Iterator<Item = [String; N]>,
    markdown: bool,
) {
    let line = |words: [String; N]| {
        if markdown {
            println!("| {} |", words.join(" | "));
            return;
        }
        let (first, rest) = words.split_first().expect("a table has columns");
        let rest: String = rest.iter().map(|word| format!("{word:>24}")).collect();
        println!("{first:<46}{rest}");
    };
    line(head.map(str::to_owned));
    if markdown {
        println!("| --- |{}", " ---: |".repeat(N - 1));
    }
    lines.for_each(line);
}
