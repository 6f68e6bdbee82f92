//! Types for verdicts on findings of the nsQUIC thesis.

/// Verdict on a finding, from one of the two comparisons.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answer {
    pub held: Held,
    /// The measured figures that support the verdict.
    pub figures: String,
}

/// Verdict on whether a finding holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    Yes,
    InPart,
    No,
}

/// A finding of the thesis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Finding {
    /// The finding in the words of the thesis, shortened.
    pub claim: &'static str,
    /// The figure that the thesis gives.
    pub figure: &'static str,
    /// Verdict for today's QUIC compared with today's TCP, or `None` if it was not measured. `then`
    /// is the verdict for Google's QUIC compared with ns-3's TCP of the thesis' time.
    pub today: Option<Answer>,
    pub then: Option<Answer>,
    /// The TCP that Google's QUIC is compared with in the field `then`.
    pub against: Against,
}

/// A TCP that Google's QUIC is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Against {
    /// ns-3's TCP at the time of the thesis.
    Ns3,
    /// Today's TCP, which is used if the finding was not measured with that of ns-3.
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

    /// Returns the verdict for the share of cases in which the finding holds: nearly all, nearly
    /// none, or a share in between.
    pub(super) fn by(share: f64) -> Held {
        match share {
            share if share >= 0.95 => Held::Yes,
            share if share <= 0.05 => Held::No,
            _ => Held::InPart,
        }
    }
}

impl Finding {
    /// Returns the words for this verdict in the README.
    pub(super) fn judgement(&self) -> &'static str {
        let (today, then) = (self.today.as_ref(), self.then.as_ref());
        match (today.map(|one| one.held), then.map(|one| one.held)) {
            (Some(Held::Yes), _) => "holds today",
            (Some(_), Some(Held::Yes)) => match self.against {
                Against::Ns3 => "holds only if TCP has ns-3's default settings",
                Against::Today => "holds only for Google's QUIC, compared with today's TCP",
            },
            (Some(Held::InPart), _) => "holds in part today",
            (Some(Held::No), Some(Held::InPart)) => match self.against {
                Against::Ns3 => "holds in part, and only if TCP has ns-3's default settings",
                Against::Today => {
                    "holds in part, and only for Google's QUIC, compared with today's TCP"
                }
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
