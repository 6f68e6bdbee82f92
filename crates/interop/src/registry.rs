//! The implementations: a list like `interop/implementations.json`, which is also built into the program.
//!
//! An entry has a URL, roles and a command. The command is started with the runner's environment: ROLE,
//! TESTCASE, REQUESTS (clients), SERVER_PARAMS, CLIENT_PARAMS, SSLKEYLOGFILE, QLOGDIR, and in place of
//! the containers' fixed places WWW, DOWNLOADS, CERTS and PORT (servers). Exit status 127 says that it
//! does not do the case.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::{Case, InteropError};

/// The end of a connection that an implementation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The one that fetches.
    Client,
    /// The one that serves.
    Server,
}

impl Role {
    /// The value of ROLE.
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
    /// Ends of a connection that the implementation can be.
    pub roles: Vec<Role>,
    /// Program and arguments.
    pub command: Vec<String>,
    /// It loads a page with the files in it, instead of fetching each.
    pub browser: bool,
    /// As a server it is held to the RFC where the runner is lenient.
    pub strict: bool,
    /// Cases it cannot do although what it is told does not show it, and why; by role.
    pub declines: BTreeMap<(Role, Case), String>,
}

/// All that are known.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    implementations: Vec<Implementation>,
    /// Entries of the list in the program that a list in a file does not have.
    more: Vec<Implementation>,
}

/// The list of a source tree, relative to its folder. In the current folder it takes the place of the
/// list that is built in.
pub const LIST: &str = "interop/implementations.json";

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
    /// Reads a file. In commands `{dir}` is the folder of the file, `{built}` and `{equic}` are what
    /// was given.
    ///
    /// # Errors
    /// It cannot be read, or is not of the form.
    pub fn read(path: &Path, built: &Path, equic: &Path) -> Result<Registry, InteropError> {
        let text = std::fs::read_to_string(path).map_err(InteropError::file("read", path))?;
        let folder = path.parent().map(Path::to_owned).unwrap_or_else(|| PathBuf::from("."));
        let mut registry = Registry::parse(&text, path, &folder, built, equic)?;
        registry.more = Registry::built_in(&folder, built, equic)?.implementations;
        Ok(registry)
    }

    /// Returns the list in the program. `{dir}` is `dir`, the folder `interop` of a source tree.
    ///
    /// # Errors
    /// The list is not of the form, which a test excludes.
    pub fn built_in(dir: &Path, built: &Path, equic: &Path) -> Result<Registry, InteropError> {
        let text = include_str!("../../../interop/implementations.json");
        Registry::parse(text, Path::new("the list in the program"), dir, built, equic)
    }

    /// Leaves out those whose program is not there, or a file in one of `folders` that their arguments
    /// name, and returns their names.
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
                wrong(format!("{name} declines {case:?}, and there is no such case"))
            })?;
            if entry.command.is_empty() {
                return Err(wrong(format!("{name} has no command")));
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

    /// Has those started with more arguments whose command is this program.
    pub fn add_arguments(&mut self, program: &Path, arguments: &[String]) {
        for one in self.implementations.iter_mut().chain(&mut self.more) {
            if one.command.first().is_some_and(|first| Path::new(first) == program) {
                one.command.extend_from_slice(arguments);
            }
        }
    }

    /// All of them, by name.
    pub fn all(&self) -> &[Implementation] {
        &self.implementations
    }

    /// Returns those of these names, or all of the list if there are no names, that can be `role`. A name
    /// that a list in a file does not have is looked up in the list in the program.
    ///
    /// # Errors
    /// A name that is not known.
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
