//! Tests that `connection/README.md` describes the routes of a datagram and of a STREAM frame as in
//! the code.

use std::path::{Path, PathBuf};

/// The only call that repeats a part of the route. Packets that arrived before their keys are
/// processed as others are.
const AGAIN: [(&str, &str); 1] = [("replay_waiting", "handle_packet")];

/// A function as a list names it: `function` (a method of `Connection`), or `Type::function`.
#[derive(Debug)]
struct Named {
    owner: String,
    name: String,
    /// File that the list names for the function.
    file: Option<String>,
}

/// Returns the functions of the list below the line `title`, in order.
fn way(title: &str) -> Vec<Named> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/connection/README.md");
    let text = std::fs::read_to_string(file).unwrap();
    let (_, list) = text.split_once(&format!("\n{title}\n\n")).expect("README.md has the list");
    let (list, _) = list.split_once("\n\n").unwrap();
    let list = list.split_whitespace().collect::<Vec<&str>>().join(" ");
    // Every second part is between backticks.
    let parts: Vec<&str> = list.split('`').collect();
    let mut named: Vec<Named> = Vec::new();
    for at in (1..parts.len()).step_by(2) {
        let (before, code) = (parts[at - 1], parts[at]);
        if code.ends_with(".rs") {
            let last = named.last_mut().filter(|_| before == " (");
            last.expect("a file is that of the function before it").file = Some(code.to_owned());
            continue;
        }
        let (owner, name) = code.split_once("::").unwrap_or(("Connection", code));
        // Names in camel case are operations, not functions.
        if name.chars().all(|char| char.is_ascii_lowercase() || char == '_') {
            let (owner, name) = (owner.to_owned(), name.to_owned());
            named.push(Named { owner, name, file: None });
        }
    }
    named
}

/// Collects all sources except tests.
fn sources(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with("tests") || name == "testing.rs" {
            continue;
        }
        if path.is_dir() {
            sources(&path, found);
        } else {
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap().to_owned();
            found.push((path, code));
        }
    }
}

/// Returns the file and the text of a function, from the line with `fn` to its end. In formatted
/// code, the end is a brace at the same indentation as the beginning.
fn body<'a>(sources: &'a [(PathBuf, String)], named: &Named) -> (&'a Path, String) {
    let mut bodies = Vec::new();
    for (path, text) in sources {
        let mut ours = false;
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if line.starts_with("impl") {
                let (_, of) = line.rsplit_once(" for ").unwrap_or(line.split_once(' ').unwrap());
                let of = of.trim_start_matches(|char: char| !char.is_ascii_uppercase());
                ours = of.starts_with(&named.owner)
                    && !of[named.owner.len()..].starts_with(char::is_alphanumeric)
                    || line.contains(&format!("> {}<", named.owner));
            }
            let head = format!("fn {}", named.name);
            let found = line.split_once(&head).filter(|(before, after)| {
                after.starts_with(['(', '<']) && !before.trim_start().starts_with("//")
            });
            if ours && found.is_some() {
                let rest = lines.by_ref().take_while(|line| *line != "    }");
                let whole = std::iter::once(line).chain(rest).collect::<Vec<&str>>().join("\n");
                bodies.push((path.as_path(), whole));
            }
        }
    }
    assert_eq!(bodies.len(), 1, "functions that could be {named:?}");
    bodies.remove(0)
}

/// Returns `true` if the body of a method of `Connection` or of one of its parts calls `callee`.
fn calls(body: &str, callee: &Named) -> bool {
    // Skips the definition, and joins calls that extend over two lines.
    let code: String = body.lines().skip(1).flat_map(|line| line.split_whitespace()).collect();
    let name = &callee.name;
    match callee.owner.as_str() {
        // In a closure that an operation calls, the connection is a parameter.
        "Connection" => ["self", "connection"]
            .iter()
            .any(|receiver| code.contains(&format!("{receiver}.{name}("))),
        owner => {
            let method = format!(".{name}(");
            let mut found = code.match_indices(&method);
            // `Connection` may have a method with the same name.
            found
                .any(|(at, _)| !code[..at].ends_with("self") && !code[..at].ends_with("connection"))
                || code.contains(&format!("{owner}::{name}("))
        }
    }
}

fn check(title: &str, least: usize) {
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    let way = way(title);
    assert!(way.len() >= least, "{title} {way:?}");
    let bodies: Vec<(&Path, String)> = way.iter().map(|named| body(&files, named)).collect();
    for (at, (named, (path, text))) in way.iter().zip(&bodies).enumerate() {
        let says = named.file.as_ref();
        assert!(says.is_none_or(|file| path.ends_with(file)), "{named:?} is in {path:?}");
        let from_outside = text.lines().next().unwrap().trim_start().starts_with("pub fn");
        let called = bodies[..at].iter().any(|(_, before)| calls(before, named));
        assert!(called || from_outside, "no earlier function of the list calls {named:?}");
        // Only calls of `Connection`'s methods are checked. Methods of parts are called from many
        // places, and names such as `write` are not unique.
        for earlier in way[..at].iter().filter(|earlier| earlier.owner == "Connection") {
            let again = AGAIN.contains(&(&named.name, &earlier.name));
            assert!(again || !calls(text, earlier), "{named:?} calls {earlier:?}, back up");
        }
    }
}

#[test]
fn calls_of_a_received_datagram_are_documented() {
    check("**A datagram's way in:**", 18);
}

#[test]
fn calls_of_a_sent_stream_frame_are_documented() {
    check("**A STREAM frame's way out:**", 18);
}
