//! Arms of any comparison.

/// Arms of a comparison: who protects the server.
pub(super) trait Arms: Copy + PartialEq + 'static {
    /// All of them, in the order of the table.
    const ALL: &'static [Self];
    /// The one that all others are compared with: the flood is sent to somebody else.
    const BASELINE: Self;

    /// Name in the table and in the progress bar.
    fn title(self) -> &'static str;
}
