//! Tests of plots. They check properties of the drawn SVG, and do not compare it with reference
//! pictures.

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::*;
use crate::stats::{Interval, Sample};

fn time() -> Axis {
    Axis::new("time", "s")
}

fn rate() -> Axis {
    Axis::new("requests", "/s")
}

pub(super) fn lines() -> LinePlot {
    LinePlot::new("Throughput", time(), rate())
        .subtitle("four clients")
        .phase(Phase::new("clients alone", 0.0, 10.0))
        .phase(Phase::new("attack, no gateway", 10.0, 20.0).shade(Shade::Alarm))
        .series(Series::new("legitimate", [(0.0, 100.0), (10.0, 90.0), (20.0, 3.0)]))
        .series(Series::new("dropped", [(0.0, 0.0), (10.0, 5.0), (20.0, 2000.0)]))
}

/// Returns the text of all text elements in an SVG document. Panics if the document is not
/// well-formed.
fn texts(svg: &Svg) -> Vec<String> {
    let document = roxmltree::Document::parse(svg.as_str()).expect("well-formed XML");
    let elements = document.descendants().filter(|node| node.has_tag_name("text"));
    elements.map(|node| node.text().unwrap_or_default().trim().to_owned()).collect()
}

fn has(svg: &Svg, text: &str) -> bool {
    texts(svg).iter().any(|found| found == text)
}

fn paths(svg: &Svg) -> Vec<String> {
    let document = roxmltree::Document::parse(svg.as_str()).unwrap();
    let paths = document.descendants().filter(|node| node.has_tag_name("path"));
    paths.map(|node| node.attribute("d").unwrap().to_owned()).collect()
}

/// Returns the points of an SVG path.
fn points(path: &str) -> Vec<(f64, f64)> {
    let numbers: Vec<f64> = path
        .split(|c: char| c.is_ascii_alphabetic() || c == ' ')
        .filter(|text| !text.is_empty())
        .map(|text| text.parse().unwrap())
        .collect();
    numbers.chunks(2).map(|pair| (pair[0], pair[1])).collect()
}

#[test]
fn plot_of_lines_has_title_names_and_units() {
    let svg = lines().draw().unwrap();
    for text in [
        "Throughput",
        "four clients",
        "legitimate",
        "dropped",
        "clients alone",
        "attack, no gateway",
        "time (s)",
        "requests (k/s)",
        "0",
    ] {
        assert!(has(&svg, text), "{text}: {:?}", texts(&svg));
    }
    assert_eq!(paths(&svg).len(), 2);
    assert_eq!(lines().draw().unwrap(), svg, "the same description gives the same text");
}

#[test]
fn plot_of_ecdf_or_bars_has_title_names_and_units() {
    let ecdf = EcdfPlot::new("Durations", Axis::new("duration", "s").log())
        .sample("alone", Sample::from([0.001, 0.002].as_slice()))
        .sample("attack", Sample::default())
        .draw()
        .unwrap();
    let expected =
        ["Durations", "alone (n = 2)", "attack (no values)", "duration (s, log scale)", "p99"];
    for text in expected {
        assert!(has(&ecdf, text), "{text}: {:?}", texts(&ecdf));
    }
    let bars = BarPlot::new("Scenarios", rate(), ["without", "with"])
        .group("flood", [Bar::new(10.0), Bar::new(3000.0)])
        .group("garbage", [Bar::missing()])
        .draw()
        .unwrap();
    for text in ["Scenarios", "without", "with", "flood", "garbage", "10.0 /s", "3.00 k/s", "n/a"] {
        assert!(has(&bars, text), "{text}: {:?}", texts(&bars));
    }
}

#[test]
fn plot_escapes_names() {
    let hostile = "</text><script>&\"'\u{0}\u{1b}]]>\u{fffe} <!--";
    let svg =
        LinePlot::new(hostile, Axis::new(hostile, hostile), Axis::new(hostile, hostile).log())
            .subtitle(hostile)
            .phase(Phase::new(hostile, 0.0, 1.0))
            .series(Series::new(hostile, [(0.0, 1.0), (1.0, 2.0)]))
            .draw()
            .unwrap();
    let document = roxmltree::Document::parse(svg.as_str()).unwrap();
    assert!(!document.descendants().any(|node| node.has_tag_name("script") || node.is_comment()));
}

#[test]
fn plot_rejects_impossible_sizes() {
    for (width, height) in [(0, 0), (199, 600), (1200, 10_001)] {
        let error = lines().size(width, height).draw().unwrap_err();
        assert!(matches!(error, PlotError::Size { .. }), "{error}");
    }
}

#[test]
fn plot_without_data_is_an_error_that_names_the_plot() {
    let nan = Series::new("s", [(0.0, f64::NAN), (f64::INFINITY, 1.0)]);
    let error = LinePlot::new("Throughput", time(), rate()).series(nan).draw().unwrap_err();
    assert!(matches!(error, PlotError::Empty(_)) && error.to_string().contains("Throughput"));
    let ecdf = EcdfPlot::new("E", time()).sample("s", Sample::default());
    assert!(matches!(ecdf.draw(), Err(PlotError::Empty(_))));
    for bars in [
        BarPlot::new("B", rate(), ["s"]),
        BarPlot::new("B", rate(), [] as [&str; 0]).group("g", [1.0]),
        BarPlot::new("B", rate(), ["s"]).group("g", [f64::NAN]),
    ] {
        assert!(matches!(bars.draw(), Err(PlotError::Empty(_))));
    }
    let zeros = Series::new("s", [(0.0, 0.0), (1.0, -1.0)]);
    let error = LinePlot::new("T", time(), rate().log()).series(zeros).draw().unwrap_err();
    assert!(
        matches!(error, PlotError::NothingPositive(_)) && error.to_string().contains("requests")
    );
}

#[test]
fn plot_has_a_gap_at_a_point_that_is_not_finite() {
    let series = [(0.0, 1.0), (1.0, 2.0), (2.0, f64::NAN), (3.0, 1.0), (4.0, 4.0), (5.0, f64::NAN)];
    let svg = LinePlot::new("T", time(), rate()).series(Series::new("s", series)).draw().unwrap();
    assert_eq!(paths(&svg)[0].matches('M').count(), 2);
    assert_eq!(points(&paths(&svg)[0]).len(), 4);
}

#[test]
fn plot_lines_are_to_scale() {
    let series = Series::new("s", [(0.0, 0.0), (5.0, 50.0), (10.0, 100.0)]);
    let svg = LinePlot::new("T", time(), rate()).series(series).draw().unwrap();
    let at = points(&paths(&svg)[0]);
    assert!((at[1].0 - f64::midpoint(at[0].0, at[2].0)).abs() < 0.02, "{at:?}");
    assert!((at[1].1 - f64::midpoint(at[0].1, at[2].1)).abs() < 0.02, "{at:?}");
    assert!(at[0].1 > at[2].1, "up is more");
    let series = Series::new("s", [(0.0, 1.0), (5.0, 10.0), (10.0, 100.0)]);
    let svg = LinePlot::new("T", time(), rate().log()).series(series).draw().unwrap();
    let at = points(&paths(&svg)[0]);
    assert!((at[1].1 - f64::midpoint(at[0].1, at[2].1)).abs() < 0.02, "{at:?}");
}

#[test]
fn plot_bars_are_to_scale() {
    let svg = BarPlot::new("B", rate(), ["a", "b"])
        .group("g", [Bar::new(50.0).interval(Interval { low: 40.0, high: 60.0 }), Bar::new(-25.0)])
        .draw()
        .unwrap();
    let document = roxmltree::Document::parse(svg.as_str()).unwrap();
    let height = |colour: &str| -> f64 {
        let bars = document.descendants().filter(|node| node.attribute("fill") == Some(colour));
        // The legend has a rectangle of the same colour, so the highest rectangle is the bar.
        let heights = bars.map(|node| node.attribute("height").unwrap().parse().unwrap());
        heights.fold(0.0, f64::max)
    };
    assert!((height("#0072b2") / height("#d55e00") - 2.0).abs() < 0.01);
}

#[test]
fn plot_of_a_large_distribution_is_a_small_file() {
    let sample: Sample = (0..500_000).map(|i| 1e-3 + f64::from(i) * 1e-8).collect();
    let svg = EcdfPlot::new("E", time()).sample("s", sample).draw().unwrap();
    assert!(svg.as_str().len() < 200_000, "{} bytes", svg.as_str().len());
}

#[test]
fn plot_is_written_to_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let svg = lines().draw().unwrap();
    svg.write_svg(dir.path().join("a.svg")).unwrap();
    assert_eq!(std::fs::read_to_string(dir.path().join("a.svg")).unwrap(), svg.as_str());
    assert!(matches!(svg.write_svg("/nonexistent/a.svg"), Err(PlotError::Write(_))));
}

/// The test prints its seed. To replay a run, set EQUIC_SEED to this seed.
#[test]
fn plot_of_random_data_stays_inside_its_frame() {
    let seed = std::env::var("EQUIC_SEED")
        .map_or_else(|_| rand::random(), |seed| seed.parse().expect("EQUIC_SEED is a number"));
    println!("EQUIC_SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    for round in 0..300 {
        let (width, height) = (rng.random_range(200..2000), rng.random_range(200..1200));
        let magnitude = 10_f64.powf(rng.random_range(-12.0..15.0));
        let mut value = || match rng.random_range(0..12) {
            0 => 0.0,
            1 => f64::NAN,
            2 => f64::MAX,
            3 => -magnitude,
            4 => rng.random_range(0.0..1.0) * 1e-9 * magnitude,
            _ => rng.random_range(0.0..1.0) * magnitude,
        };
        let values: Vec<(f64, f64)> = (0..40).map(|_| (value(), value())).collect();
        let log = rng.random_bool(0.5);
        let axis = |title: &str| {
            let axis = Axis::new(title, "s");
            if log { axis.log() } else { axis }
        };
        let mut plot = LinePlot::new("A plot", axis("x"), axis("y")).size(width, height);
        for (index, chunk) in values.chunks(rng.random_range(1..20)).enumerate() {
            plot = plot
                .series(Series::new(format!("series number {index}"), chunk.iter().copied()))
                .phase(Phase::new("some phase", chunk[0].0, chunk[0].1));
        }
        let sample = values.iter().map(|value| value.1).filter(|value| *value < 1e99).collect();
        let ecdf = EcdfPlot::new("E", axis("x")).size(width, height).sample("s", sample);
        let bars =
            values.iter().take(4).fold(
                BarPlot::new("B", axis("y"), ["a", "b"]).size(width, height),
                |bars, (a, b)| bars.group("g", [*a, *b]),
            );
        for (kind, drawn) in [plot.draw(), ecdf.draw(), bars.draw()].into_iter().enumerate() {
            let svg = match drawn {
                Ok(svg) => svg,
                Err(PlotError::Empty(_) | PlotError::NothingPositive(_)) => continue,
                Err(error) => panic!("round {round}, kind {kind}: {error}"),
            };
            texts(&svg);
            assert!(
                !svg.as_str().contains("NaN") && !svg.as_str().contains("inf"),
                "round {round}"
            );
            for (x, y) in paths(&svg).iter().flat_map(|path| points(path)) {
                let inside = (0.0..=f64::from(width)).contains(&x) && y >= 0.0;
                assert!(inside, "round {round}, kind {kind}: {x} {y} in {width} x {height}");
            }
        }
    }
}
