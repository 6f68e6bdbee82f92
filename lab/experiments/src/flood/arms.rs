//! The trait of arms, which are the variants of an experiment that are compared.

/// The arms of a comparison. Each arm protects the server in another way.
pub(super) trait Arms: Copy + PartialEq + 'static {
    /// All arms, in the order of the table.
    const ALL: &'static [Self];
    /// The baseline, which the other arms are compared with. Its flood is sent to a host other than
    /// the server.
    const BASELINE: Self;

    /// Returns the arm's name in the table and in the progress bar.
    fn title(self) -> &'static str;
}
