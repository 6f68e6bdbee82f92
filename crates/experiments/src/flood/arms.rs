//! Arms of a comparison.

/// The arms of a comparison: different protections of the server.
pub(super) trait Arms: Copy + PartialEq + 'static {
    /// All arms, in the order of the table.
    const ALL: &'static [Self];
    /// The arm that the others are compared with: its flood has another target.
    const BASELINE: Self;

    /// Name in the table and in the progress bar.
    fn title(self) -> &'static str;
}
