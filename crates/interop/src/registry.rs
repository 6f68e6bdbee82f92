//! The implementations: `interop/implementations.json`, or a file like it.
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
}

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
        let wrong = |reason: String| InteropError::Registry { path: path.to_owned(), reason };
        let entries: BTreeMap<String, Entry> =
            serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        let folder = path.parent().map(Path::to_owned).unwrap_or_else(|| PathBuf::from("."));
        let places = [("{dir}", &*folder), ("{built}", built), ("{equic}", equic)];
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
        Ok(Registry { implementations })
    }

    /// Has those started with more arguments whose command is this program.
    pub fn add_arguments(&mut self, program: &Path, arguments: &[String]) {
        for one in &mut self.implementations {
            if one.command.first().is_some_and(|first| Path::new(first) == program) {
                one.command.extend_from_slice(arguments);
            }
        }
    }

    /// All of them, by name.
    pub fn all(&self) -> &[Implementation] {
        &self.implementations
    }

    /// Those of these names, or all if there are no names, that can be `role`.
    ///
    /// # Errors
    /// A name that is not known.
    pub fn select(
        &self,
        names: &[String],
        role: Role,
    ) -> Result<Vec<&Implementation>, InteropError> {
        for name in names {
            if !self.implementations.iter().any(|known| known.name == *name) {
                let known: Vec<&str> =
                    self.implementations.iter().map(|known| known.name.as_str()).collect();
                let known = known.join(", ");
                return Err(InteropError::Unknown { name: name.clone(), known });
            }
        }
        let wanted = |one: &&Implementation| names.is_empty() || names.contains(&one.name);
        let can = |one: &&Implementation| one.roles.contains(&role);
        Ok(self.implementations.iter().filter(wanted).filter(can).collect())
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
