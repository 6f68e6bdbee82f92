//! The table of a connection's parts in `docs/transport.md` says what is there.

use std::path::{Path, PathBuf};

/// Rows of the table, by cells.
fn rows() -> Vec<Vec<String>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/transport.md");
    let text = std::fs::read_to_string(file).unwrap();
    let table = text.lines().skip_while(|line| !line.starts_with("| field | part |")).skip(2);
    let table = table.take_while(|line| line.starts_with('|'));
    let cells = |line: &str| line.trim_matches('|').split(" | ").map(str::to_owned).collect();
    table.map(cells).collect()
}

/// Parts of a text in backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Files or folders of this name: of `connection/`, or of the crate's own folders.
fn found(name: &str) -> Vec<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let places = [source.join("connection").join(name), source.join(name)];
    places.into_iter().filter(|path| path.exists()).collect()
}

/// True if there is a test in the file, or in one of the folder's.
fn is_tested(path: &Path) -> bool {
    if path.is_dir() {
        return std::fs::read_dir(path).unwrap().any(|entry| is_tested(&entry.unwrap().path()));
    }
    std::fs::read_to_string(path).unwrap().contains("#[test]")
}

#[test]
fn every_field_is_in_one_row() {
    let source = include_str!("../mod.rs");
    let fields = source.split_once("\npub struct Connection {\n").unwrap().1;
    let fields = fields.split_once("\n}").unwrap().0.lines().map(str::trim);
    let fields = fields.filter(|line| !line.starts_with("//") && !line.starts_with('#'));
    let name = |line: &str| {
        let name = line.split_once(": ").unwrap().0;
        name.rsplit(' ').next().unwrap().to_owned()
    };
    let mut fields: Vec<String> = fields.map(name).collect();
    let rows = rows();
    let mut named: Vec<String> =
        rows.iter().flat_map(|row| quoted(&row[0])).map(str::to_owned).collect();
    fields.sort();
    named.sort();
    assert!(fields.len() > 20, "{fields:?}");
    assert_eq!(named, fields, "fields of `Connection`, and those in docs/transport.md");
}

#[test]
fn files_of_the_table_are_there() {
    for row in rows() {
        let [_, part, _, changes, tests] = &row[..] else { panic!("not five cells: {row:?}") };
        let names = |cell| quoted(cell).into_iter().filter(|name| name.contains(['.', '/']));
        for name in names(part).chain(names(changes)).chain(names(tests)) {
            assert!(!found(name).is_empty(), "there is no {name}: {row:?}");
        }
        if tests.contains("there") {
            assert!(names(part).flat_map(found).any(|path| is_tested(&path)), "no test: {row:?}");
        }
        for name in names(tests) {
            assert!(found(name).iter().any(|path| is_tested(path)), "no test in {name}: {row:?}");
        }
    }
}
