//! Extracts the plots of `report.html` as separate SVG documents.

use super::{PLOT, STYLE};

/// Maximum length of a file name without its extension.
const NAME: usize = 100;

/// A plot of `report.html`.
#[derive(Clone, Debug, PartialEq)]
pub struct PagePlot {
    /// Name of the file without its extension. It consists of letters, digits and hyphens.
    pub name: String,
    /// The SVG document.
    pub svg: String,
    /// Width and height in pixels.
    pub size: (f32, f32),
}

/// Returns the plots of a page. They are extracted from the finished page, so that the page and the
/// files cannot differ. Text from other programs is escaped in the page, so only a plot can begin
/// with this tag.
#[must_use]
pub fn plots(page: &str) -> Vec<PagePlot> {
    let style = style();
    let mut plots: Vec<PagePlot> = Vec::new();
    for part in page.split("<svg role=\"img\" aria-label=\"").skip(1) {
        let Some(plot) = one(part, &style) else { continue };
        let taken = |name: &str| plots.iter().any(|plot| plot.name == name);
        let mut name = plot.name.clone();
        let mut number = 2;
        while taken(&name) {
            name = format!("{}-{number}", plot.name);
            number += 1;
        }
        plots.push(PagePlot { name, ..plot });
    }
    plots
}

fn one(part: &str, style: &str) -> Option<PagePlot> {
    let (label, rest) = part.split_once('"')?;
    let (_, rest) = rest.split_once("viewBox=\"0 0 ")?;
    let (size, rest) = rest.split_once('"')?;
    let (width, height) = size.split_once(' ')?;
    let (_, rest) = rest.split_once('>')?;
    let (shapes, _) = rest.split_once("</svg>")?;
    // These characters are removed, because XML permits them neither directly nor as references.
    let shapes = shapes.replace(['\u{fffe}', '\u{ffff}'], "");
    let label = label.replace(['\u{fffe}', '\u{ffff}'], "");
    let svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"DejaVu Sans, Verdana, sans-serif\" \
         font-size=\"12\">\n<title>{label}</title>\n<style>\n{style}</style>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n{shapes}\n</svg>\n"
    );
    let size = (width.parse().ok()?, height.parse().ok()?);
    Some(PagePlot { name: file_name(&label), svg, size })
}

/// Returns a label as a file name: in lower case, with hyphens instead of characters that are
/// neither letters nor digits.
fn file_name(label: &str) -> String {
    let mut name = String::new();
    for c in label.chars() {
        if c.is_ascii_alphanumeric() {
            name.push(c.to_ascii_lowercase());
        } else if !name.is_empty() && !name.ends_with('-') {
            name.push('-');
        }
        if name.len() == NAME {
            break;
        }
    }
    let name = name.trim_end_matches('-');
    if name.is_empty() { "plot".to_owned() } else { name.to_owned() }
}

/// Returns the page's style sheet of plots in light colours. CSS variables are replaced, because
/// most SVG programs do not support them.
fn style() -> String {
    let light = STYLE.split_once('}').map_or("", |(root, _)| root);
    let mut variables: Vec<(&str, &str)> = light
        .split([';', '{'])
        .filter_map(|one| one.trim().strip_prefix("--")?.split_once(':'))
        .map(|(name, value)| (name.trim(), value.trim()))
        .collect();
    // The variables can be replaced in any order, because `var(` and `)` delimit each name.
    variables.sort_unstable();
    let mut style = String::new();
    for rule in PLOT.lines().filter(|rule| !rule.contains("{ --c:")) {
        if rule.contains("var(--c)") {
            for series in 0..8 {
                let colour = format!("var(--c{series})");
                style += &format!(".s{series} {}\n", rule.replace("var(--c)", &colour));
            }
        } else {
            style += rule;
            style.push('\n');
        }
    }
    for (name, value) in variables {
        style = style.replace(&format!("var(--{name})"), value);
    }
    style
}

#[cfg(test)]
mod tests {
    use super::super::chart::figure;
    use super::*;

    #[test]
    fn plots_have_unique_file_names_and_no_css_variables() {
        let one = figure(860.0, 120.0, "a/b: <box> plots", "Said.", "<line class=\"grid\"/>");
        let page = format!("<p>&lt;svg role=</p>{one}{one}");
        let plots = plots(&page);
        let names: Vec<&str> = plots.iter().map(|plot| &*plot.name).collect();
        assert_eq!(names, ["a-b-lt-box-gt-plots", "a-b-lt-box-gt-plots-2"]);
        let svg = &plots[0].svg;
        assert!(svg.contains("width=\"860\" height=\"120\"") && svg.contains("class=\"grid\""));
        assert!(!svg.contains("var(") && !svg.contains("--"), "{svg}");
        assert!(svg.contains(".s7 .stroke { fill: none; stroke: #4d4d4d;"), "{svg}");
        assert!(!svg.contains("Said."));
    }

    #[test]
    fn plots_have_file_names_without_separators() {
        for (label, name) in [
            ("../../etc/passwd", "etc-passwd"),
            ("", "plot"),
            ("///", "plot"),
            ("\u{202e}\u{ffff}", "plot"),
            ("Goodput \u{2192} Gbit/s", "goodput-gbit-s"),
        ] {
            assert_eq!(file_name(label), name);
        }
        assert_eq!(file_name(&"long ".repeat(100)).len(), 99);
    }
}
