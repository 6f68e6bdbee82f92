//! Conversion of SVG to PNG, with the fonts of the machine.

use std::sync::{Arc, OnceLock};

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{self, fontdb};

use super::{MAX_SIDE, MIN_SIDE, PlotError};

/// Font families in order of preference. The layout is designed for the first one.
const FAMILIES: [&str; 6] =
    ["DejaVu Sans", "Verdana", "Bitstream Vera Sans", "Noto Sans", "Liberation Sans", "Arial"];

/// Returns the fonts of this machine. They are loaded only once, because loading takes longer than
/// drawing a plot.
fn fonts() -> Result<Arc<fontdb::Database>, PlotError> {
    static FONTS: OnceLock<Arc<fontdb::Database>> = OnceLock::new();
    if let Some(fonts) = FONTS.get() {
        return Ok(Arc::clone(fonts));
    }
    let mut database = fontdb::Database::new();
    database.load_system_fonts();
    let fonts = choose(database)?;
    Ok(Arc::clone(FONTS.get_or_init(|| fonts)))
}

/// Makes the best installed font family the default for `sans-serif`.
fn choose(mut database: fontdb::Database) -> Result<Arc<fontdb::Database>, PlotError> {
    let known = FAMILIES.into_iter().map(str::to_owned).find(|family| {
        let families = [fontdb::Family::Name(family)];
        database.query(&fontdb::Query { families: &families, ..Default::default() }).is_some()
    });
    let any = || database.faces().find_map(|face| face.families.first().map(|name| name.0.clone()));
    let family = known.or_else(any).ok_or(PlotError::NoFont)?;
    database.set_sans_serif_family(family);
    Ok(Arc::new(database))
}

/// Renders an SVG document with the fonts of this machine, with `scale` pixels per SVG pixel.
pub(super) fn render(svg: &str, scale: f32) -> Result<Vec<u8>, PlotError> {
    render_with(svg, scale, &fonts()?)
}

fn render_with(svg: &str, scale: f32, fonts: &Arc<fontdb::Database>) -> Result<Vec<u8>, PlotError> {
    let refused = |error: &dyn std::fmt::Display| PlotError::Render(error.to_string());
    let options = usvg::Options { fontdb: Arc::clone(fonts), ..Default::default() };
    let tree = usvg::Tree::from_str(svg, &options).map_err(|error| refused(&error))?;
    // The conversion to an integer saturates and turns NaN into 0. Both values are rejected below,
    // because they are out of range.
    let side = |length: f32| (length * scale).round() as u32;
    let (width, height) = (side(tree.size().width()), side(tree.size().height()));
    let range = MIN_SIDE..=MAX_SIDE;
    if !range.contains(&width) || !range.contains(&height) {
        return Err(PlotError::Size { width, height });
    }
    let mut pixels = Pixmap::new(width, height).ok_or(PlotError::Size { width, height })?;
    resvg::render(&tree, Transform::from_scale(scale, scale), &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| refused(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn png_error_without_fonts_names_a_package() {
        let error = choose(fontdb::Database::new()).unwrap_err();
        assert!(matches!(error, PlotError::NoFont));
        assert!(error.to_string().contains("fonts-dejavu-core"), "{error}");
    }

    #[test]
    fn png_rejects_invalid_svg() {
        let fonts = Arc::new(fontdb::Database::new());
        for bad in ["", "<svg", "<html/>"] {
            assert!(matches!(render_with(bad, 1.0, &fonts), Err(PlotError::Render(_))), "{bad}");
        }
    }
}
