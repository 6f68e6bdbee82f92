//! The built-in list of implementations, and the search for the source tree in which they were
//! built.
//!
//! The command works in any folder. It starts programs that are either in `equic` itself
//! (`{equic}`), or were built in a source tree. The user gives the folder of that tree (`--built`),
//! or it is found from the path of this program.

use std::path::{Path, PathBuf};

use crate::{BenchError, Places, Registry};

/// Path of the list of implementations, relative to a source tree. If the current folder has such a
/// file, it replaces the built-in list.
pub const LIST: &str = "lab/peers/bench.json";
/// Folder of built implementations, relative to a source tree.
const BUILT: &str = "target/servers";
/// How messages name the built-in list.
const NAME: &str = "the built-in list";

/// Returns the built-in list. `{dir}` is the folder `lab/peers` of the source tree.
///
/// # Errors
/// [`BenchError::Registry`]. A test checks that this does not happen.
pub fn registry(built: &Path, equic: &Path) -> Result<Registry, BenchError> {
    let dir = tree(equic).unwrap_or_else(here).join("lab/peers");
    let places = Places { dir, built: built.to_owned(), equic: equic.to_owned() };
    Registry::parse(include_str!("../../peers/bench.json"), Path::new(NAME), places)
}

/// Returns the list of implementations in the current folder, or `None` if that folder is not a
/// source tree.
#[must_use]
pub fn list_here() -> Option<PathBuf> {
    let list = here().join(LIST);
    list.is_file().then_some(list)
}

/// Returns the folder of the built implementations: in the current folder, or in the source tree
/// from which this program runs.
#[must_use]
pub fn built(equic: &Path) -> PathBuf {
    let here = here().join(BUILT);
    if here.is_dir() {
        return here;
    }
    let tree = tree(equic).map(|tree| tree.join(BUILT));
    tree.filter(|built| built.is_dir()).unwrap_or(here)
}

/// Returns the source tree to which the program `target/PROFILE/equic` belongs, or `None` if the
/// program is in another folder.
///
/// Other folders above the program are not searched, because anyone could put a list of programs
/// into `/tmp`.
#[must_use]
pub fn tree(equic: &Path) -> Option<PathBuf> {
    let target = equic.parent()?.parent()?;
    let tree = target.parent()?;
    let is_tree = target.file_name()? == "target" && tree.join(LIST).is_file();
    is_tree.then(|| tree.to_owned())
}

fn here() -> PathBuf {
    std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builtin_list_has_the_implementations_of_the_tree() {
        let registry = registry(Path::new("/built"), Path::new("/bin/equic")).unwrap();
        let names: Vec<&str> = registry.all().iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names[0], "equic");
        for name in ["tcp", "quinn", "quic-go", "sendfile"] {
            assert!(names.contains(&name), "{names:?}");
        }
        let alone = ["equic"].map(|name| name.to_owned());
        let ours = registry.select(&alone).unwrap().remove(0);
        assert_eq!(registry.places().fill(&ours.command)[0], "/bin/equic");
    }

    #[test]
    fn builtin_tree_is_found_from_a_target_folder_only() {
        let folder = tempfile::tempdir().unwrap();
        let tree_of = |program: &str| tree(&folder.path().join(program));
        assert_eq!(tree_of("target/release/equic"), None);
        std::fs::create_dir_all(folder.path().join("lab/peers")).unwrap();
        std::fs::write(folder.path().join(LIST), "{}").unwrap();
        assert_eq!(tree_of("target/release/equic").as_deref(), Some(folder.path()));
        for elsewhere in ["equic", "release/equic", "bin/release/equic", "target/a/b/equic"] {
            assert_eq!(tree_of(elsewhere), None, "{elsewhere}");
        }
        assert_eq!(tree(Path::new("equic")), None);
        // A program in `target/release` of a tree finds that tree, whatever the current folder is.
        let program = folder.path().join("target/release/equic");
        std::fs::create_dir_all(folder.path().join(BUILT)).unwrap();
        assert_eq!(built(&program), folder.path().join(BUILT));
        assert_eq!(built(Path::new("/bin/equic")), here().join(BUILT));
    }
}
