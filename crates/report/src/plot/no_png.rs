//! Replacement for `png.rs` in builds without the feature `png`.

use super::PlotError;

/// Always fails.
pub(super) fn render(_svg: &str, _scale: f32) -> Result<Vec<u8>, PlotError> {
    Err(PlotError::NoPng)
}
