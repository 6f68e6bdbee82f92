//! The list of implementations, in the format of `lab/peers/interop.json`. That file is also
//! built into the program.
//!
//! An entry has a URL, roles and a command. The command gets the environment variables of the QUIC
//! Interop Runner: ROLE, TESTCASE, REQUESTS (clients), SERVER_PARAMS, CLIENT_PARAMS, SSLKEYLOGFILE,
//! QLOGDIR. WWW, DOWNLOADS, CERTS and PORT (servers) replace paths and ports that are fixed in
//! containers. With exit status 127, the command says that it does not support the case.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::{Case, InteropError};

/// Role of an implementation: client or server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The implementation fetches files.
    Client,
    /// The implementation serves files.
    Server,
}

impl Role {
    /// Returns the value of the environment variable ROLE.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Client => "client",
            Role::Server => "server",
        }
    }
}

/// An implementation.
#[derive(Clone, Debug)]
pub struct Implementation {
    /// Its name.
    pub name: String,
    /// Address of the implementation's web page.
    pub url: String,
    /// Roles that the implementation supports.
    pub roles: Vec<Role>,
    /// Program and arguments of the command.
    pub command: Vec<String>,
    /// True if the implementation is a browser. It loads a page that contains the files, instead of
    /// fetching each file.
    pub browser: bool,
    /// True if the implementation, as a server, must follow the RFCs even where the QUIC Interop
    /// Runner is lenient.
    pub strict: bool,
    /// Cases that the implementation does not support although its exit status does not say so, by
    /// role, with the reasons.
    pub declines: BTreeMap<(Role, Case), String>,
}

/// All known implementations.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    implementations: Vec<Implementation>,
    /// Entries of the built-in list that are missing in a list read from a file.
    more: Vec<Implementation>,
}

/// Path of the list of implementations, relative to a source tree. If the current folder has such a
/// file, it replaces the built-in list.
pub const LIST: &str = "lab/peers/interop.json";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    url: String,
    roles: Vec<Role>,
    command: Vec<String>,
    #[serde(default)]
    browser: bool,
    #[serde(default)]
    strict: bool,
    #[serde(default)]
    declines: BTreeMap<Role, BTreeMap<String, String>>,
}

impl Registry {
    /// Reads a list from a file. In commands, `{dir}` is the folder of the file. `{built}` and
    /// `{equic}` are the given paths.
    ///
    /// # Errors
    /// The file cannot be read, or its content is invalid.
    pub fn read(path: &Path, built: &Path, equic: &Path) -> Result<Registry, InteropError> {
        let text = std::fs::read_to_string(path).map_err(InteropError::file("read", path))?;
        let folder = path.parent().map(Path::to_owned).unwrap_or_else(|| PathBuf::from("."));
        let mut registry = Registry::parse(&text, path, &folder, built, equic)?;
        registry.more = Registry::built_in(&folder, built, equic)?.implementations;
        Ok(registry)
    }

    /// Returns the built-in list. In commands, `{dir}` becomes `dir`, which is the folder
    /// `lab/peers` of a source tree.
    ///
    /// # Errors
    /// The list is invalid. A test checks that this does not happen.
    pub fn built_in(dir: &Path, built: &Path, equic: &Path) -> Result<Registry, InteropError> {
        let text = include_str!("../../peers/interop.json");
        Registry::parse(text, Path::new("the built-in list"), dir, built, equic)
    }

    /// Removes the implementations that are not built: their program does not exist, or a file in
    /// one of `folders` that their arguments name does not exist. Returns the names of the removed
    /// implementations.
    pub fn retain_built(&mut self, folders: &[&Path]) -> Vec<String> {
        let mut without = Vec::new();
        self.implementations.retain(|one| {
            let there = |(index, word): (usize, &String)| {
                let needed =
                    index == 0 || folders.iter().any(|dir| Path::new(word).starts_with(dir));
                !needed || Path::new(word).is_file()
            };
            let built = one.command.iter().enumerate().all(there);
            if !built {
                without.push(one.name.clone());
            }
            built
        });
        without
    }

    fn parse(
        text: &str,
        path: &Path,
        folder: &Path,
        built: &Path,
        equic: &Path,
    ) -> Result<Registry, InteropError> {
        let wrong = |reason: String| InteropError::Registry { path: path.to_owned(), reason };
        let entries: BTreeMap<String, Entry> =
            serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let places = [("{dir}", folder), ("{built}", built), ("{equic}", equic)];
        let mut implementations = Vec::new();
        for (name, entry) in entries {
            let declines = declined(&entry.declines).map_err(|case| {
                wrong(format!(
                    "the implementation {name} declines {case:?}, which is not a test case"
                ))
            })?;
            if entry.command.is_empty() {
                return Err(wrong(format!("the implementation {name} has no command")));
            }
            let fill = |word: &String| {
                places.iter().fold(word.clone(), |word, (mark, place)| {
                    word.replace(mark, &place.to_string_lossy())
                })
            };
            implementations.push(Implementation {
                name,
                url: entry.url,
                roles: entry.roles,
                command: entry.command.iter().map(fill).collect(),
                browser: entry.browser,
                strict: entry.strict,
                declines,
            });
        }
        Ok(Registry { implementations, more: Vec::new() })
    }

    /// Appends arguments to the commands of those implementations whose program is `program`.
    pub fn add_arguments(&mut self, program: &Path, arguments: &[String]) {
        for one in self.implementations.iter_mut().chain(&mut self.more) {
            if one.command.first().is_some_and(|first| Path::new(first) == program) {
                one.command.extend_from_slice(arguments);
            }
        }
    }

    /// Returns all implementations, ordered by name.
    pub fn all(&self) -> &[Implementation] {
        &self.implementations
    }

    /// Returns the implementations with these names that support `role`. If there are no names,
    /// selects from the whole list. If a list from a file has no such name, the built-in list is
    /// searched.
    ///
    /// # Errors
    /// A name is unknown.
    pub fn select(
        &self,
        names: &[String],
        role: Role,
    ) -> Result<Vec<&Implementation>, InteropError> {
        let has = |name: &str| self.implementations.iter().any(|known| known.name == name);
        let more: Vec<&Implementation> = self.more.iter().filter(|one| !has(&one.name)).collect();
        for name in names {
            if !has(name) && !more.iter().any(|one| one.name == *name) {
                let known = self.implementations.iter().chain(more.iter().copied());
                let known: Vec<&str> = known.map(|known| known.name.as_str()).collect();
                let known = known.join(", ");
                return Err(InteropError::Unknown { name: name.clone(), known });
            }
        }
        let wanted = |one: &&Implementation| names.is_empty() || names.contains(&one.name);
        let of_list = self.implementations.iter().filter(wanted);
        let more = more.into_iter().filter(|one| names.contains(&one.name));
        let can = |one: &&Implementation| one.roles.contains(&role);
        Ok(of_list.chain(more).filter(can).collect())
    }
}

fn declined(
    entry: &BTreeMap<Role, BTreeMap<String, String>>,
) -> Result<BTreeMap<(Role, Case), String>, String> {
    let mut declines = BTreeMap::new();
    for (role, cases) in entry {
        for (case, why) in cases {
            let found = Case::named(case).ok_or_else(|| case.clone())?;
            declines.insert((*role, found), why.clone());
        }
    }
    Ok(declines)
}
