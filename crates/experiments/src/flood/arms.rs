//! Arms of a comparison.

/// The arms of a comparison: different protections of the server.
pub(super) trait Arms: Copy + PartialEq + 'static {
    /// All arms, in the order of the table.
    const ALL: &'static [Self];
    /// The arm that the others are compared with. Its flood is sent to another host.
    const BASELINE: Self;

    /// Returns the name in the table and in the progress bar.
    fn title(self) -> &'static str;
}
