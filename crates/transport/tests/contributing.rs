//! Checks the tables of the three example changes in `CONTRIBUTING.md`: every file and test that a
//! table names must exist.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the parts of a text that are in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Collects the texts of all source files in a folder.
fn sources(folder: &Path, texts: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, texts);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            texts.push(std::fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn contributing_names_existing_files() {
    let text = std::fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let mut texts = Vec::new();
    for name in ["wire", "transport", "plugin"] {
        sources(&root().join("crates").join(name), &mut texts);
    }
    // A frame must not need changes in more than eight files.
    for (title, count) in [
        ("### A frame (", 6..=8),
        ("### An operation (", 6..=usize::MAX),
        ("### A transport parameter (", 10..=usize::MAX),
    ] {
        let (_, section) = text.split_once(title).expect(title);
        let rows = section.lines().skip(1).skip_while(|line| !line.starts_with("|---"));
        let rows: Vec<&str> = rows.skip(1).take_while(|line| line.starts_with('|')).collect();
        assert!(count.contains(&rows.len()), "{title} {rows:?}");
        for row in rows {
            let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
            assert_eq!(cells.len(), 3, "{row}");
            let mut folder = PathBuf::new();
            for name in quoted(cells[0]).filter(|name| name.contains(['/', '.'])) {
                // If a name in the table has no folder, the file is in the same folder as the
                // previous one.
                let places =
                    ["crates", "crates/transport/src"].map(|base| root().join(base).join(name));
                let mut places = places.into_iter().chain([folder.join(name)]);
                let there = places.find(|path| path.exists());
                let there = there.unwrap_or_else(|| panic!("{name} does not exist: {row}"));
                folder = there.parent().unwrap().to_owned();
            }
            for name in quoted(cells[2]) {
                let is_test = name.contains('_') && !name.contains(['/', '.']);
                let head = format!("fn {name}(");
                let found = texts.iter().any(|text| text.contains(&head));
                assert!(!is_test || found, "the test {name} does not exist: {row}");
            }
        }
    }
}
