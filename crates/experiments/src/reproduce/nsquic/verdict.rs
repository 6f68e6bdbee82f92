//! Verdict on a finding of the thesis.

/// Answer about a finding, for one of the two comparisons.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answer {
    pub held: Held,
    /// Figures that support the answer.
    pub figures: String,
}

/// Whether a finding holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    Yes,
    InPart,
    No,
}

/// A finding of the thesis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Finding {
    /// The thesis' words, shortened.
    pub claim: &'static str,
    /// The thesis' figure.
    pub figure: &'static str,
    /// Answer for today's QUIC against today's TCP, or `None` if it was not measured. The next
    /// field is the answer for Google's QUIC against ns-3's TCP of that time.
    pub today: Option<Answer>,
    pub then: Option<Answer>,
    /// The TCP that Google's QUIC is compared with in `then`.
    pub against: Against,
}

/// A TCP for comparison with Google's QUIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Against {
    /// ns-3's TCP of that time.
    Ns3,
    /// Today's TCP, because the finding was not measured with ns-3.
    Today,
}

impl Held {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Held::Yes => "holds",
            Held::InPart => "holds in part",
            Held::No => "does not hold",
        }
    }

    /// Judges by the share of cases in which the finding holds: nearly all, nearly none, or in
    /// between.
    pub(super) fn by(share: f64) -> Held {
        match share {
            share if share >= 0.95 => Held::Yes,
            share if share <= 0.05 => Held::No,
            _ => Held::InPart,
        }
    }
}

impl Finding {
    /// Returns the words for this judgement in the README.
    pub(super) fn judgement(&self) -> &'static str {
        let (today, then) = (self.today.as_ref(), self.then.as_ref());
        match (today.map(|one| one.held), then.map(|one| one.held)) {
            (Some(Held::Yes), _) => "holds today",
            (Some(_), Some(Held::Yes)) => match self.against {
                Against::Ns3 => "only against ns-3's defaults",
                Against::Today => "only for Google's QUIC, against today's TCP",
            },
            (Some(Held::InPart), _) => "in part",
            (Some(Held::No), Some(Held::InPart)) => match self.against {
                Against::Ns3 => "in part, against ns-3's defaults",
                Against::Today => "in part, for Google's QUIC, against today's TCP",
            },
            (Some(Held::No), _) => "does not hold",
            (None, Some(held)) => held.word(),
            (None, None) => "not simulated",
        }
    }

    pub(super) fn sentence(&self) -> String {
        let mut text = format!("{} (thesis: {}): {}.", self.claim, self.figure, self.judgement());
        let then = match self.against {
            Against::Ns3 => "Google's QUIC and ns-3's TCP",
            Against::Today => "Google's QUIC and today's TCP",
        };
        for (name, answer) in [("Today's QUIC and TCP", &self.today), (then, &self.then)] {
            if let Some(answer) = answer {
                text += &format!(" {name}: {}.", answer.figures);
            }
        }
        text
    }
}
