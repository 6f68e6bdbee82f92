//! Tests the TOML blocks in the documentation. Each block must be accepted by the code that reads
//! such files.

use std::path::{Path, PathBuf};

use equic_gateway::Config;
use equic_plugin::{Manifest, Policy};
use equic_scenario::{Grid, Scenario};

use crate::common::{EQUIC, ROOT, Running};

/// Tables that are added to a scenario, because the pages leave them out.
const NETWORK: &str =
    "[network]\ntopology = \"simple\"\nlink = { rate = \"10 Mb/s\", delay = \"10 ms\" }\n";
const FLOW: &str = "[[flow]]\nsize = \"1 MB\"\n";

/// The kind of file that a TOML block belongs to. It selects the parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Gateway,
    Grid,
    Manifest,
    Policy,
    Rules,
    Scenario,
}

/// Returns the kind of a TOML block, which one of its keys shows.
pub(crate) fn kind(text: &str) -> Option<Kind> {
    const KEYS: [(Kind, &[&str]); 6] = [
        (Kind::Grid, &["[grid]"]),
        (Kind::Rules, &["[[rule]]"]),
        (Kind::Manifest, &["[[operations]]", "capabilities = "]),
        (Kind::Policy, &["[[author]]", "[[log]]", "anyone = "]),
        (Kind::Scenario, &["[network]", "[[flow]]", "[[network.node]]", "[[traffic]]"]),
        (Kind::Gateway, &["[gateway", "[[service", "[ban]", "deny_files = ", "allow_files = "]),
    ];
    let has = |key: &&str| text.lines().any(|line| line.starts_with(*key));
    KEYS.iter().find(|(_, keys)| keys.iter().any(has)).map(|(kind, _)| *kind)
}

/// Returns every page of the documentation, and the readme.
pub(crate) fn pages() -> Vec<PathBuf> {
    let mut pages = files_below("docs", "md");
    pages.push(Path::new(ROOT).join("README.md"));
    pages.sort();
    pages
}

/// Returns the files in this folder of the repository, and in the folders below it, whose name has
/// this ending.
pub(crate) fn files_below(folder: &str, ending: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![Path::new(ROOT).join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|its| its == ending) {
                files.push(path);
            }
        }
    }
    files
}

/// Returns the TOML blocks of a page, each with its first line number. Blocks inside lists lose
/// their indentation.
pub(crate) fn blocks(page: &Path) -> Vec<(usize, String)> {
    let text = std::fs::read_to_string(page).unwrap();
    let mut lines = text.lines().enumerate();
    let mut blocks = Vec::new();
    while let Some((at, line)) = lines.next() {
        if line.trim() != "```toml" {
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        let block = lines.by_ref().map(|(_, line)| line).take_while(|line| line.trim() != "```");
        let block: Vec<&str> = block.map(|line| line.get(indent..).unwrap_or("")).collect();
        blocks.push((at + 2, block.join("\n")));
    }
    blocks
}

/// Returns a block with what the page leaves out.
pub(crate) fn whole(kind: Kind, text: &str) -> String {
    let text = text.replace("\"sha256:...\"", &format!("\"sha256:{}\"", "0".repeat(64)));
    let text = text.replace("\"ed25519:...\"", &format!("\"ed25519:{}\"", "07".repeat(32)));
    let has = |table: &str| text.lines().any(|line| line.starts_with(table));
    match kind {
        Kind::Gateway => match (has("[[service]]"), has("[[service.override]]")) {
            (false, true) => format!("[[service]]\nname = \"web\"\nlisten = [\"443\"]\n{text}"),
            (false, false) => {
                format!("{text}\n[[service]]\nname = \"web\"\nlisten = [\"443\"]\n")
            }
            _ => text,
        },
        Kind::Grid => format!("{text}\n{NETWORK}{FLOW}"),
        Kind::Scenario => {
            let flow = if has("[[flow]]") { "" } else { FLOW };
            let network = if has("[network]") { "" } else { NETWORK };
            format!("{text}\n{flow}{network}")
        }
        Kind::Manifest | Kind::Policy | Kind::Rules => text,
    }
}

/// Parses a block, with what the page leaves out.
pub(crate) fn read(kind: Kind, text: &str, folder: &Path) -> Result<(), String> {
    let text = whole(kind, text);
    match kind {
        Kind::Gateway => Config::parse(&text).map(drop).map_err(|error| error.to_string()),
        Kind::Grid => Grid::parse(&text).map(drop).map_err(|error| error.to_string()),
        Kind::Manifest => {
            Manifest::parse(text.as_bytes()).map(drop).map_err(|error| error.to_string())
        }
        Kind::Policy => Policy::parse(&text).map(drop).map_err(|error| error.to_string()),
        Kind::Rules => {
            let file = folder.join("rules.toml");
            std::fs::write(&file, &text).unwrap();
            let mut serve = std::process::Command::new(EQUIC);
            serve.args(["serve", "--listen", "127.0.0.1:0", "--push"]).arg(file);
            Running::start(serve, &[]).line("serving HTTP/3 on ");
            Ok(())
        }
        Kind::Scenario => {
            Scenario::parse_in(&text, folder).map(drop).map_err(|error| error.to_string())
        }
    }
}

/// Creates the files that the blocks name.
fn files(folder: &Path) {
    for trace in ["LTE-down.trace", "LTE-up.trace"] {
        std::fs::write(folder.join(trace), "1\n5\n9\n").unwrap();
    }
    let manifest = "name = \"cap\"\nversion = \"1.0.0\"\nauthor = \"A\"\nabi = 2\nsteps = 1000\n\
        capabilities = [\"observe\"]\n[[operations]]\noperation = \"UpdateRtt\"\nanchor = \"after\"\n\
        function = \"f\"\n";
    let bundle = equic_plugin::pack(manifest, b"code", None).unwrap();
    for plugin in ["cap.qplug", "ack-delay.qplug", "mine.qplug"] {
        std::fs::write(folder.join(plugin), &bundle).unwrap();
    }
}

#[test]
fn toml_blocks_of_the_documentation_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    files(folder.path());
    let (mut seen, mut wrong) = (Vec::new(), Vec::new());
    for page in pages() {
        for (line, text) in blocks(&page) {
            let at = format!("{}:{line}", page.strip_prefix(ROOT).unwrap().display());
            let Some(kind) = kind(&text) else {
                wrong.push(format!("{at}: nothing reads it"));
                continue;
            };
            seen.push(kind);
            if let Err(error) = read(kind, &text, folder.path()) {
                wrong.push(format!("{at}: {kind:?}: {error}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    seen.sort();
    seen.dedup();
    let all =
        [Kind::Gateway, Kind::Grid, Kind::Manifest, Kind::Policy, Kind::Rules, Kind::Scenario];
    assert_eq!(seen, all);
}

#[test]
fn toml_block_with_a_mistake_is_rejected() {
    let folder = Path::new("");
    for (kind, text) in [
        (Kind::Gateway, "[ban]\ntime = 3\n"),
        (Kind::Grid, "[grid]\n\"network.link.rat\" = [\"1 Mb/s\"]\n"),
        (Kind::Manifest, "[[operations]]\nanchor = \"before\"\n"),
        (Kind::Policy, "[[author]]\nnam = \"ann\"\n"),
        (Kind::Scenario, "[[flow]]\nsize = \"10 MB\"\nspeed = 1\n"),
    ] {
        assert!(read(kind, text, folder).is_err(), "{kind:?}");
    }
}
