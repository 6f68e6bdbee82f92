//! Tests that the table of a connection's parts in `connection/README.md` names its fields and
//! files.

use std::path::{Path, PathBuf};

/// Returns the rows of the table as lists of cells.
fn rows() -> Vec<Vec<String>> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/connection/README.md");
    let text = std::fs::read_to_string(file).unwrap();
    let table = text.lines().skip_while(|line| !line.starts_with("| field | part |")).skip(2);
    let table = table.take_while(|line| line.starts_with('|'));
    let cells = |line: &str| line.trim_matches('|').split(" | ").map(str::to_owned).collect();
    table.map(cells).collect()
}

/// Returns the parts of a text in backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Returns the files or folders with this name in `connection/` or in the folders of the crate.
fn found(name: &str) -> Vec<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let places = [source.join("connection").join(name), source.join(name)];
    places.into_iter().filter(|path| path.exists()).collect()
}

/// Returns `true` if the file, or a file of the folder, has a test.
fn is_tested(path: &Path) -> bool {
    if path.is_dir() {
        return std::fs::read_dir(path).unwrap().any(|entry| is_tested(&entry.unwrap().path()));
    }
    std::fs::read_to_string(path).unwrap().contains("#[test]")
}

#[test]
fn parts_list_every_field_once() {
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
    assert_eq!(
        named, fields,
        "the fields of `Connection` differ from those in src/connection/README.md"
    );
}

#[test]
fn parts_name_existing_files() {
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

/// Parts that contain other parts. These have their own rows, or the text below the table names
/// them. The listed fields may be visible outside of the part.
const HOLDERS: [(&str, &[&str]); 3] = [
    ("Space", &["received", "loss", "crypto_in", "crypto_out", "numbers"]),
    ("ConnectionIds", &["local", "remote"]),
    ("Extensions", &["share", "messages"]),
];

/// Returns the fields of a struct, or `None` if the text does not define it.
fn fields<'a>(text: &'a str, name: &str) -> Option<Vec<&'a str>> {
    let lines: Vec<&str> = text.lines().collect();
    let is_it = |line: &&str| {
        let rest = line.split_once(&format!("struct {name}")).map(|(_, rest)| rest);
        rest.is_some_and(|rest| rest.ends_with('{') && rest.starts_with([' ', '<']))
    };
    let start = lines.iter().position(is_it)?;
    let fields = lines[start + 1..].iter().take_while(|line| !line.starts_with('}'));
    Some(fields.map(|line| line.trim()).filter(|line| !line.starts_with(['/', '#'])).collect())
}

/// Returns the text of a file, or of all files in a folder.
fn texts(path: &Path) -> Vec<String> {
    if path.is_dir() {
        let entries = std::fs::read_dir(path).unwrap();
        return entries.flat_map(|entry| texts(&entry.unwrap().path())).collect();
    }
    vec![std::fs::read_to_string(path).unwrap()]
}

#[test]
fn parts_keep_their_fields_private() {
    let mut seen = 0;
    for row in rows() {
        let names = quoted(&row[1]);
        let (files, parts): (Vec<&str>, Vec<&str>) =
            names.into_iter().partition(|name| name.contains(['.', '/']));
        let texts: Vec<String> =
            files.into_iter().flat_map(found).flat_map(|p| texts(&p)).collect();
        for part in parts {
            // Types that an application reads or sets, or that others implement, and the answer of
            // `ProbeTimer`.
            if ["Event", "Stats", "TransportConfig", "Controller", "LossTimer"].contains(&part) {
                continue;
            }
            let fields = texts.iter().find_map(|text| fields(text, part));
            let Some(fields) = fields else {
                let is_enum = texts.iter().any(|text| text.contains(&format!("enum {part} {{")));
                assert!(is_enum, "no {part} in the files of its row: {row:?}");
                continue;
            };
            let open = HOLDERS.iter().find(|(holder, _)| *holder == part);
            let open = open.map_or(&[][..], |(_, fields)| fields);
            for field in fields.iter().filter(|field| field.starts_with("pub")) {
                let name = field.split_once(": ").unwrap().0.rsplit(' ').next().unwrap();
                // Fields that are visible in `operation/`, which is one part in several files.
                let inside = part == "Extensions" && field.starts_with("pub(super)");
                assert!(inside || open.contains(&name), "{part} has an open field: {field}");
            }
            seen += 1;
        }
    }
    assert!(seen > 25, "{seen}");
}
