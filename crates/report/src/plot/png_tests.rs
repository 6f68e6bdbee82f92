//! Tests of plots as PNG files, with and without the feature `png`.

use super::tests::lines;
use super::*;

#[cfg(feature = "png")]
mod with {
    use equic_testing::ci;
    use resvg::tiny_skia::{Pixmap, PremultipliedColorU8};

    use super::*;

    /// Renders a plot. On a machine without fonts, prints a warning and returns `None`.
    fn png(svg: &Svg, scale: f32) -> Option<Pixmap> {
        match svg.to_png(scale) {
            Ok(bytes) => Some(Pixmap::decode_png(&bytes).expect("a PNG file")),
            Err(error @ PlotError::NoFont) => {
                assert!(!ci::in_ci(), "not skipped in CI: {error}");
                eprintln!("SKIPPED, NOT TESTED: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn png_has_the_size_colours_and_text() {
        let svg = lines().size(800, 400).draw().unwrap();
        for (scale, size) in [(1.0, (800, 400)), (2.0, (1600, 800))] {
            let Some(image) = png(&svg, scale) else { return };
            assert_eq!((image.width(), image.height()), size);
            let pixels = image.pixels();
            let count = |red, green, blue| {
                let same = |p: &&PremultipliedColorU8| {
                    (p.red(), p.green(), p.blue()) == (red, green, blue)
                };
                pixels.iter().filter(same).count()
            };
            assert!(count(0x00, 0x72, 0xb2) > 300, "first line");
            assert!(count(0xd5, 0x5e, 0x00) > 300, "second line");
            assert!(count(0xfd, 0xf0, 0xec) > 10_000, "shaded phase");
            // The rows of the title have dark pixels only if a font drew the text.
            let title = &pixels[..image.width() as usize * (40.0 * scale) as usize];
            assert!(title.iter().filter(|pixel| pixel.red() < 0x60).count() > 200, "title");
        }
    }

    #[test]
    fn png_rejects_impossible_scales() {
        let svg = lines().draw().unwrap();
        for scale in [0.0, -1.0, 0.1, 100.0, f32::NAN, f32::INFINITY] {
            match svg.to_png(scale) {
                Err(PlotError::Size { .. } | PlotError::NoFont) => {}
                other => panic!("{scale}: {other:?}"),
            }
        }
    }

    #[test]
    fn png_and_svg_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let svg = lines().draw().unwrap();
        if png(&svg, 1.0).is_none() {
            return;
        }
        svg.write_png(dir.path().join("a.png"), 1.0).unwrap();
        svg.write_into(dir.path(), "b", 1.0).unwrap();
        for png in ["a.png", "b.png"] {
            let bytes = std::fs::read(dir.path().join(png)).unwrap();
            assert!(bytes.starts_with(b"\x89PNG"), "{png}");
        }
        let text = std::fs::read_to_string(dir.path().join("b.svg")).unwrap();
        assert_eq!(text, svg.as_str());
    }
}

#[cfg(not(feature = "png"))]
#[test]
fn png_without_the_feature_fails_and_the_svg_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let svg = lines().draw().unwrap();
    let error = svg.write_png(dir.path().join("a.png"), 1.0).unwrap_err();
    assert!(matches!(error, PlotError::NoPng));
    assert!(error.to_string().contains("--features png"), "{error}");
    svg.write_into(dir.path(), "b", 1.0).unwrap();
    let names = std::fs::read_dir(dir.path()).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["b.svg"]);
    check_fonts().unwrap();
}
