//! Tests that the files of the crate are in layers: they do not import each other in large cycles.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Largest number of files that may import each other in a cycle.
const MAX_CYCLE: usize = 4;

/// Path of a module from the root of the crate, such as `["log", "writer"]`.
type Module = Vec<String>;

/// Collects the modules below a folder with the text of their files, without tests.
fn read(folder: &Path, parent: &[String], found: &mut BTreeMap<Module, String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if name == "tests" {
            continue;
        }
        let module = match name.as_str() {
            "mod" | "lib" => parent.to_vec(),
            _ => [parent, &[name]].concat(),
        };
        if path.is_dir() {
            read(&path, &module, found);
        } else {
            found.insert(module, code(&std::fs::read_to_string(&path).unwrap()));
        }
    }
}

/// Returns the text of a file without comments and without its module of tests.
fn code(text: &str) -> String {
    let (text, _) = text.split_once("\n#[cfg(test)]\nmod tests {").unwrap_or((text, ""));
    let line = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn is_part_of_name(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

/// Reads a path such as `a::b`, or the tree of a `use` declaration such as `a::{b, c::d}`, and adds
/// each path to `found`. Returns the rest of the text.
fn read_paths<'a>(text: &'a str, before: &[String], found: &mut Vec<Module>) -> &'a str {
    let text = text.trim_start();
    if let Some(list) = text.strip_prefix('{') {
        let mut rest = list.trim_start();
        loop {
            if let Some(rest) = rest.strip_prefix('}') {
                return rest;
            }
            let next = read_paths(rest, before, found);
            // Whatever follows a path in a list, such as `as name`, is skipped.
            let Some(end) = next.find([',', '}']) else { return next };
            rest = next[end..].trim_start_matches(',').trim_start();
        }
    }
    let length = text.find(|char| !is_part_of_name(char)).unwrap_or(text.len());
    let (name, rest) = text.split_at(length);
    let path = if name.is_empty() { before.to_vec() } else { [before, &[name.into()]].concat() };
    match rest.strip_prefix("::") {
        Some(rest) if !name.is_empty() => read_paths(rest, &path, found),
        _ => {
            found.push(path);
            rest
        }
    }
}

/// Returns the paths in a text that begin with one of these names.
fn paths(text: &str, first_names: &[&str]) -> Vec<Module> {
    let mut found = Vec::new();
    for first in first_names {
        for (at, _) in text.match_indices(&format!("{first}::")) {
            let before = text[..at].chars().next_back().unwrap_or(' ');
            if !is_part_of_name(before) && before != ':' {
                read_paths(&text[at..], &[], &mut found);
            }
        }
    }
    found
}

/// Returns the files that each file uses. The root of the crate is left out: it declares all
/// modules and exports their items. An item that is used by its exported path counts as an item of
/// its own file.
fn imports(files: &BTreeMap<Module, String>) -> BTreeMap<Module, BTreeSet<Module>> {
    let root = Module::new();
    let first_names: Vec<&str> =
        files.keys().filter_map(|module| module.first()).map(|name| &**name).collect();
    let exported = paths(&files[&root], &first_names);
    let file_of = |path: &[String]| -> Option<Module> {
        (1..=path.len())
            .rev()
            .map(|end| &path[..end])
            .find(|path| files.contains_key(*path))
            .map(<[_]>::to_vec)
    };
    let mut imports = BTreeMap::new();
    for (module, text) in files.iter().filter(|(module, _)| **module != root) {
        let children: Vec<&str> = files
            .keys()
            .filter(|other| other.len() == module.len() + 1 && other.starts_with(module))
            .filter_map(|other| other.last().map(|name| &**name))
            .collect();
        let mut used = BTreeSet::new();
        for path in paths(text, &[&["crate", "super", "self"], &children[..]].concat()) {
            // `self` is the module. The first `super` is its parent.
            let mut base = module.clone();
            let mut rest = &path[..];
            while let Some((first, after)) = rest.split_first() {
                match first.as_str() {
                    "crate" => base.clear(),
                    "super" => drop(base.pop()),
                    "self" => {}
                    _ => break,
                }
                rest = after;
            }
            let path = [&base, rest].concat();
            let export = || exported.iter().find(|export| export.last() == path.first());
            used.extend(file_of(&path).or_else(|| file_of(export()?)));
        }
        used.remove(module);
        imports.insert(module.clone(), used);
    }
    imports
}

/// Returns all modules that a module uses, directly or through others.
fn reachable(from: &Module, imports: &BTreeMap<Module, BTreeSet<Module>>) -> BTreeSet<Module> {
    let mut reached = BTreeSet::new();
    let mut left = vec![from];
    while let Some(module) = left.pop() {
        for used in imports.get(module).into_iter().flatten() {
            if reached.insert(used.clone()) {
                left.push(used);
            }
        }
    }
    reached
}

/// Returns the largest set of modules of which each uses each other one, directly or through others.
fn largest_cycle(imports: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<String> {
    let reached: BTreeMap<&Module, BTreeSet<Module>> =
        imports.keys().map(|module| (module, reachable(module, imports))).collect();
    let cycle_of = |module: &Module| -> Vec<String> {
        let of_cycle =
            |other: &&Module| reached[module].contains(*other) && reached[*other].contains(module);
        imports.keys().filter(of_cycle).map(|module| module.join("::")).collect()
    };
    imports.keys().map(cycle_of).max_by_key(Vec::len).unwrap_or_default()
}

#[test]
fn imports_form_no_large_cycle() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = BTreeMap::new();
    read(&source, &[], &mut files);
    let imports = imports(&files);
    // Check that the test sees imports of each form.
    let uses = |one: &[&str], other: &[&str]| {
        let module = |path: &[&str]| -> Module { path.iter().map(|name| (*name).into()).collect() };
        imports[&module(one)].contains(&module(other))
    };
    assert!(uses(&["driver"], &["socket"]), "{imports:?}");
    assert!(uses(&["udp"], &["bind"]), "a path in an expression");
    assert!(uses(&["config"], &["aws_lc"]), "an item that the root exports");
    assert!(uses(&["log"], &["log", "writer"]), "a child");
    assert!(imports[&vec!["printable".to_owned()]].is_empty(), "{imports:?}");
    let cycle = largest_cycle(&imports);
    assert!(
        cycle.len() <= MAX_CYCLE,
        "these files import each other: {cycle:?}. Move data that several of them need to a file \
         of a lower layer (`src/lib.rs` lists the layers)"
    );
}

#[test]
fn imports_in_a_cycle_are_found() {
    let file = |name: &str, text: &str| (vec![name.to_owned()], code(text));
    let files = BTreeMap::from([
        (Module::new(), "pub use b::Named;".to_owned()),
        file("a", "use std::io;\nuse crate::{d::{self, Other}, Named as Alias};"),
        file("b", "fn f() { super::c::g(); }"),
        file("c", "use crate::a::{X, Y};\n// use crate::e::Z;"),
        file("d", "/// See [`crate::a`].\nfn f() {}\n#[cfg(test)]\nmod tests {\nuse crate::e::Z;"),
        file("e", "use crate::d::Other;"),
    ]);
    assert_eq!(largest_cycle(&imports(&files)), ["a", "b", "c"]);
}
