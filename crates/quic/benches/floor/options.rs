//! Arguments of the program.

use std::io;
use std::path::{Path, PathBuf};

/// Directory of the named network namespaces (`ip netns`).
const NAMESPACES: &str = "/run/netns";

/// Arguments of the program.
pub(crate) struct Options {
    pub rounds: usize,
    pub markdown: bool,
    /// Network namespaces of the sender and of the receiver, or `None` if both use loopback.
    pub veth: Option<[PathBuf; 2]>,
}

impl Options {
    /// Parses the arguments. An error says what is wrong, and what to do about it.
    pub(crate) fn parse(words: impl IntoIterator<Item = String>) -> io::Result<Options> {
        let mut options = Options { rounds: 200, markdown: false, veth: None };
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            match &*word {
                // Cargo passes this argument to every benchmark.
                "--bench" => {}
                "--markdown" => options.markdown = true,
                "--rounds" => {
                    let rounds = words.next().and_then(|word| word.parse().ok());
                    options.rounds = rounds
                        .filter(|rounds| *rounds > 0)
                        .ok_or_else(|| wrong("--rounds needs a number above 0".to_owned()))?;
                }
                "--veth" => {
                    let names = [words.next(), words.next()];
                    let [Some(from), Some(to)] = names else {
                        return Err(wrong("--veth needs the names of two namespaces".to_owned()));
                    };
                    options.veth = Some([namespace(&from)?, namespace(&to)?]);
                }
                other => return Err(wrong(format!("unknown argument: {other}"))),
            }
        }
        Ok(options)
    }
}

/// Returns the file of the network namespace with this name. Fails if there is no such file.
fn namespace(name: &str) -> io::Result<PathBuf> {
    let path = Path::new(NAMESPACES).join(name);
    if name.is_empty() || !path.exists() {
        return Err(wrong(format!(
            "--veth: there is no network namespace {name:?}. `ip netns add NAME` makes one; \
             scripts/bench-floor.sh makes two, with veth interfaces between them"
        )));
    }
    Ok(path)
}

fn wrong(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}
