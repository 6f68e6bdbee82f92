//! The list of implementations, in the format of `lab/peers/bench.json`. That file is also
//! built into the program ([`crate::builtin`]).
//!
//! Entries may have three formats. An entry of this project's format has a command, to which
//! `server` or `client` and the arguments of docs/bench-contract.md are appended. An entry of "QUIC
//! on the Highway" has a `path` with `run-client.sh` and `run-server.sh`. An entry of the QUIC
//! Interop Runner has an `image`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::BenchError;
pub use crate::places::Places;

/// Name of eQUIC in the list. The other implementations are compared with it.
pub const OURS: &str = "equic";

/// An implementation. The placeholders `{dir}`, `{built}` and `{equic}` in its commands are not
/// replaced yet: see [`Places::fill`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Implementation {
    /// Name of the implementation.
    pub name: String,
    /// Address of the implementation's source or home page.
    pub url: String,
    /// Implementations of tier 1 are always compared. Tier 2 has all others.
    pub tier: u8,
    /// Program and first arguments of a command that follows docs/bench-contract.md.
    pub command: Vec<String>,
    /// The protocols that the command speaks.
    pub speaks: Vec<String>,
    /// A program that takes the QUIC Interop Runner's environment variables, for the workload
    /// `transfer`.
    pub endpoint: Vec<String>,
    /// A folder with the scripts of "QUIC on the Highway", for the workload `transfer`.
    pub path: Option<PathBuf>,
    /// A container image of the QUIC Interop Runner, for the workload `transfer`.
    pub image: Option<String>,
    /// True if the implementation is only measured with itself.
    pub solo: bool,
    /// Maximum number of bytes that the implementation can transfer. `None` means no limit.
    pub max_filesize: Option<u64>,
    /// Roles that the implementation can take.
    pub role: Role,
    /// Environment variables that keep its cryptographic library from using the CPU's AES
    /// instructions. `None` if no such variables are known.
    pub aes_off: Option<BTreeMap<String, String>>,
}

/// Roles that an implementation can take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The implementation can only be a client.
    Client,
    /// The implementation can only be a server.
    Server,
    /// Both.
    #[default]
    Both,
}

impl Implementation {
    /// Returns true if the implementation can be a server.
    pub fn serves(&self) -> bool {
        self.role != Role::Client
    }

    /// Returns true if the implementation can be a client.
    pub fn asks(&self) -> bool {
        self.role != Role::Server
    }

    /// Returns true if the implementation's command speaks `protocol`.
    pub fn speaks(&self, protocol: &str) -> bool {
        !self.command.is_empty() && self.speaks.iter().any(|one| one == protocol)
    }

    /// Returns true if the implementation can take part in the workload `transfer`.
    pub fn is_endpoint(&self) -> bool {
        !self.endpoint.is_empty() || self.path.is_some() || self.image.is_some()
    }
}

/// All known implementations.
#[derive(Clone, Debug)]
pub struct Registry {
    implementations: Vec<Implementation>,
    places: Places,
    /// Entries of the built-in list that are missing in a list read from a file.
    more: Vec<Implementation>,
}

/// An entry as written in the list. Fields of the other projects' formats that are not needed here
/// are ignored.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    url: String,
    tier: Option<u8>,
    command: Vec<String>,
    speaks: Option<Vec<String>>,
    endpoint: Vec<String>,
    path: Option<PathBuf>,
    image: Option<String>,
    solo: bool,
    max_filesize: Option<Filesize>,
    role: Role,
    aes_off: Option<BTreeMap<String, String>>,
    /// Roles of the implementation. Only entries for `equic-lab interop` have this field.
    roles: Option<serde_json::Value>,
}

/// A number of bytes, or a text such as `"2GiB"`, as in "QUIC on the Highway".
#[derive(Deserialize)]
#[serde(untagged)]
enum Filesize {
    Bytes(u64),
    Text(String),
}

impl Registry {
    /// Reads a list from a file. If no file is given, returns the built-in list.
    ///
    /// # Errors
    /// Those of [`Registry::read`].
    pub fn open(file: Option<&Path>, built: &Path, equic: &Path) -> Result<Registry, BenchError> {
        match file {
            Some(file) => Registry::read(file, built, equic),
            None => crate::builtin::registry(built, equic),
        }
    }

    /// Reads a list from a file. In commands, `{dir}` is the folder of the file. `{built}` and
    /// `{equic}` are the given paths.
    ///
    /// # Errors
    /// [`BenchError::Read`] and [`BenchError::Registry`].
    pub fn read(path: &Path, built: &Path, equic: &Path) -> Result<Registry, BenchError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| BenchError::Read { path: path.to_owned(), source })?;
        let dir = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let dir = std::path::absolute(dir)
            .map_err(|source| BenchError::Read { path: path.to_owned(), source })?;
        let places = Places { dir, built: built.to_owned(), equic: equic.to_owned() };
        let mut registry = Registry::parse(&text, path, places)?;
        registry.more = crate::builtin::registry(built, equic)?.standing_alone();
        Ok(registry)
    }

    /// Parses a list. `path` is the list's name in error messages.
    pub(crate) fn parse(text: &str, path: &Path, places: Places) -> Result<Registry, BenchError> {
        let wrong = |reason: String| BenchError::Registry { path: path.to_owned(), reason };
        let entries: BTreeMap<String, Entry> =
            serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let mut implementations = entries
            .into_iter()
            .map(|(name, entry)| implementation(name, entry, &places).map_err(wrong))
            .collect::<Result<Vec<_>, _>>()?;
        // eQUIC is first, because the others are compared with it.
        implementations.sort_by_key(|one| one.name != OURS);
        Ok(Registry { implementations, places, more: Vec::new() })
    }

    /// Returns the implementations with `{dir}` replaced in their commands, so that a list in
    /// another folder can contain them.
    fn standing_alone(self) -> Vec<Implementation> {
        let dir = self.places.dir.to_string_lossy();
        let fill = |words: &mut Vec<String>| {
            for word in words {
                *word = word.replace("{dir}", &dir);
            }
        };
        let mut implementations = self.implementations;
        for one in &mut implementations {
            fill(&mut one.command);
            fill(&mut one.endpoint);
        }
        implementations
    }

    /// Returns all implementations, eQUIC first.
    pub fn all(&self) -> &[Implementation] {
        &self.implementations
    }

    /// Returns the folders and files that replace the placeholders in commands.
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// Returns the implementations with these names, or the whole list if there are no names.
    /// `tier1`, `tier2` and `all` stand for several implementations of the list. If a list from a
    /// file has no such name, the built-in list is searched.
    ///
    /// # Errors
    /// [`BenchError::Unknown`].
    pub fn select(&self, names: &[String]) -> Result<Vec<Implementation>, BenchError> {
        let is = |one: &Implementation, name: &str| match name {
            "all" => true,
            "tier1" => one.tier == 1,
            "tier2" => one.tier == 2,
            name => one.name == name,
        };
        let has = |name: &str| self.implementations.iter().any(|known| is(known, name));
        let is_more =
            |one: &&Implementation| names.iter().any(|name| one.name == *name && !has(name));
        for name in names {
            if !has(name) && !self.more.iter().any(|one| one.name == *name) {
                let known = self.implementations.iter().map(|known| known.name.as_str());
                let more = self.more.iter().map(|more| more.name.as_str()).filter(|one| !has(one));
                let known: Vec<&str> = known.chain(more).chain(["tier1", "tier2", "all"]).collect();
                let known = known.join(", ");
                return Err(BenchError::Unknown { name: name.clone(), known });
            }
        }
        let wanted =
            |one: &&Implementation| names.is_empty() || names.iter().any(|name| is(one, name));
        let of_list = self.implementations.iter().filter(wanted);
        let mut chosen: Vec<Implementation> =
            of_list.chain(self.more.iter().filter(is_more)).cloned().collect();
        chosen.sort_by_key(|one| one.name != OURS);
        Ok(chosen)
    }
}

fn implementation(name: String, entry: Entry, places: &Places) -> Result<Implementation, String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
    // The name becomes part of folder names, such as `a_b`.
    if name.is_empty() || name.starts_with('.') || !name.chars().all(allowed) {
        return Err(format!(
            "{name:?} is not a valid name of an implementation: use letters, digits and -_.+"
        ));
    }
    if ["tier1", "tier2", "all"].contains(&name.as_str()) {
        return Err(format!(
            "an implementation cannot be called {name}, because this word selects several implementations"
        ));
    }
    if entry.roles.is_some() {
        return Err(format!(
            "{name} has the field `roles` of `equic-lab interop`: use the fields `role` and `speaks` here"
        ));
    }
    let path = entry.path.map(|path| places.dir.join(path));
    if entry.command.is_empty()
        && entry.endpoint.is_empty()
        && path.is_none()
        && entry.image.is_none()
    {
        return Err(format!(
            "the entry of {name} needs a command, an endpoint, a path or an image"
        ));
    }
    // Implementations without a command for docs/bench-contract.md are in the second tier.
    let tier = entry.tier.unwrap_or(if entry.command.is_empty() { 2 } else { 1 });
    if !(1..=2).contains(&tier) {
        return Err(format!("{name} has the tier {tier}: use 1 or 2"));
    }
    let max_filesize = match entry.max_filesize {
        None => None,
        Some(Filesize::Bytes(bytes)) => Some(bytes),
        Some(Filesize::Text(text)) => match crate::sweep::bytes(&text) {
            Some(bytes) => Some(bytes),
            None => return Err(format!("{name}: {text:?} is not a file size")),
        },
    };
    Ok(Implementation {
        name,
        url: entry.url,
        tier,
        command: entry.command,
        // All adapters in lists without this field speak these protocols.
        speaks: entry.speaks.unwrap_or_else(|| vec!["perf".to_owned(), "h3".to_owned()]),
        endpoint: entry.endpoint,
        path,
        image: entry.image,
        solo: entry.solo,
        max_filesize,
        role: entry.role,
        aes_off: entry.aes_off,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Registry, BenchError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list.json");
        std::fs::write(&path, text).unwrap();
        Registry::read(&path, Path::new("/built"), Path::new("/bin/equic"))
    }

    #[test]
    fn registry_reads_all_three_formats() {
        let registry = read(
            r#"{"zebra": {"url": "u", "tier": 1, "io": "native", "command": ["{built}/z", "{dir}"]},
                "lsquic": {"path": "lsquic", "solo": true, "max_filesize": "2GiB"},
                "ngtcp2": {"image": "ngtcp2/ngtcp2", "url": "v", "role": "client"},
                "equic": {"url": "", "tier": 1, "command": ["{equic}"], "speaks": ["perf"]}}"#,
        )
        .unwrap();
        let [ours, lsquic, ngtcp2, zebra] = registry.all() else { panic!("{registry:?}") };
        assert_eq!((ours.name.as_str(), &ours.speaks[..]), ("equic", &["perf".to_owned()][..]));
        assert!(lsquic.solo && lsquic.is_endpoint() && !lsquic.speaks("perf"));
        assert_eq!(lsquic.max_filesize, Some(2 << 30));
        assert!(ngtcp2.asks() && !ngtcp2.serves() && ngtcp2.tier == 2);
        assert!(zebra.speaks("perf") && zebra.speaks("h3") && !zebra.speaks("perf-tcp"));
        let dir = registry.places().dir.to_string_lossy().into_owned();
        assert_eq!(registry.places().fill(&zebra.command), ["/built/z", &dir]);
        let names = |words: &[&str]| -> Vec<String> {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            registry.select(&words).unwrap().into_iter().map(|one| one.name).collect()
        };
        assert_eq!(names(&["tier1"]), ["equic", "zebra"]);
        assert_eq!(names(&["tier2", "zebra"]), ["lsquic", "ngtcp2", "zebra"]);
        assert_eq!(names(&[]), names(&["all"]));
        let unknown = registry.select(&["nobody".to_owned()]).unwrap_err().to_string();
        assert!(unknown.contains("equic, lsquic"), "{unknown}");
    }

    #[test]
    fn registry_rejects_invalid_lists() {
        for (text, why) in [
            ("[]", "list.json"),
            (r#"{"a": {"url": ""}}"#, "the entry of a needs a command"),
            (r#"{"a/b": {"image": "x"}}"#, "is not a valid name"),
            (r#"{"tier1": {"image": "x"}}"#, "selects several"),
            (r#"{"a": {"image": "x", "tier": 3}}"#, "tier 3"),
            (r#"{"a": {"command": ["x"], "roles": ["client"]}}"#, "of `equic-lab interop`"),
            (r#"{"a": {"image": "x", "max_filesize": "big"}}"#, "not a file size"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
