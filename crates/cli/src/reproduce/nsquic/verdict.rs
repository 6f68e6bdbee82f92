//! Judgement of a finding of the thesis.

/// Answer to a finding, for one of the two comparisons.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answer {
    pub held: Held,
    /// Figures that it follows from.
    pub figures: String,
}

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
    /// Today's QUIC against today's TCP, and Google's QUIC against ns-3's TCP of that time; none: not played.
    pub today: Option<Answer>,
    pub then: Option<Answer>,
}

impl Held {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Held::Yes => "holds",
            Held::InPart => "holds in part",
            Held::No => "does not hold",
        }
    }

    /// By a share of cases: nearly all, nearly none.
    pub(super) fn by(share: f64) -> Held {
        match share {
            share if share >= 0.95 => Held::Yes,
            share if share <= 0.05 => Held::No,
            _ => Held::InPart,
        }
    }
}

impl Finding {
    /// Words that the README has for this verdict.
    pub(super) fn judgement(&self) -> &'static str {
        match (self.today.as_ref().map(|one| one.held), self.then.as_ref().map(|one| one.held)) {
            (Some(Held::Yes), _) => "holds today",
            (Some(_), Some(Held::Yes)) => "only against ns-3's defaults",
            (Some(Held::InPart), _) => "in part",
            (Some(Held::No), Some(Held::InPart)) => "in part, against ns-3's defaults",
            (Some(Held::No), _) => "does not hold",
            (None, Some(held)) => held.word(),
            (None, None) => "not played",
        }
    }

    pub(super) fn sentence(&self) -> String {
        let mut text = format!("{} (thesis: {}): {}.", self.claim, self.figure, self.judgement());
        for (name, answer) in
            [("Today's QUIC and TCP", &self.today), ("Google's QUIC and ns-3's TCP", &self.then)]
        {
            if let Some(answer) = answer {
                text += &format!(" {name}: {}.", answer.figures);
            }
        }
        text
    }
}
