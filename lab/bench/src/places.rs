//! Locates the programs of implementations, and checks that they exist.

use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

use crate::{BenchError, Implementation};

/// Folders and files that replace the placeholders in commands.
#[derive(Clone, Debug)]
pub struct Places {
    /// `{dir}`: the folder that contains the list of implementations.
    pub dir: PathBuf,
    /// `{built}`: the folder of built implementations.
    pub built: PathBuf,
    /// `{equic}`: the path of this program.
    pub equic: PathBuf,
}

impl Places {
    /// Returns a command with its placeholders replaced.
    pub fn fill(&self, words: &[String]) -> Vec<String> {
        let places = [("{dir}", &self.dir), ("{built}", &self.built), ("{equic}", &self.equic)];
        let fill = |word: &String| {
            places.iter().fold(word.clone(), |word, (mark, place)| {
                word.replace(mark, &place.to_string_lossy())
            })
        };
        words.iter().map(fill).collect()
    }

    /// Returns the program of a command: a path, or a bare name that is in PATH.
    ///
    /// # Errors
    /// The path, if this user cannot execute a program there.
    pub fn program(&self, command: &[String]) -> Result<PathBuf, PathBuf> {
        let program = self.fill(command).into_iter().next().map(PathBuf::from).unwrap_or_default();
        let runs = |path: &Path| path.is_file() && access(path, AccessFlags::X_OK).is_ok();
        if program.components().count() > 1 {
            return if runs(&program) { Ok(program) } else { Err(program) };
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut found = std::env::split_paths(&path).map(|folder| folder.join(&program));
        found.find(|found| runs(found)).ok_or(program)
    }

    /// Checks that the program of a command exists, and also the files and folders below `{built}`
    /// and `{dir}` that its arguments name. The program may be an installed interpreter whose
    /// script or classes were not built.
    ///
    /// # Errors
    /// The first path that is missing.
    pub fn complete(&self, command: &[String]) -> Result<(), PathBuf> {
        self.program(command)?;
        let marked = |part: &&str| part.starts_with("{built}") || part.starts_with("{dir}");
        let arguments = command.iter().skip(1);
        // A Java class path consists of several paths.
        for part in arguments.flat_map(|word| word.split(':')).filter(marked) {
            let filled = self.fill(&[part.to_owned()]).concat();
            let (path, there) = match filled.strip_suffix("/*") {
                Some(folder) => {
                    let entries = std::fs::read_dir(folder).map(Iterator::count);
                    (folder.into(), entries.is_ok_and(|count| count > 0))
                }
                None => (PathBuf::from(&filled), Path::new(&filled).exists()),
            };
            if !there {
                return Err(path);
            }
        }
        Ok(())
    }

    /// Checks that everything exists that `one` needs: the programs of its `command`, or, for the
    /// workload `transfer`, its endpoint or scripts. Container images are not checked.
    ///
    /// # Errors
    /// [`BenchError::NotBuilt`].
    pub fn check(&self, one: &Implementation, transfer: bool) -> Result<(), BenchError> {
        let (command, script) = if transfer {
            (&one.endpoint, "scripts/interop.sh build".to_owned())
        } else {
            (&one.command, format!("scripts/bench.sh build {}", one.name))
        };
        let missing = if !command.is_empty() {
            self.complete(command).err()
        } else if let (true, Some(folder)) = (transfer, &one.path) {
            let scripts = ["run-client.sh", "run-server.sh"].map(|script| folder.join(script));
            scripts.into_iter().find(|script| !script.is_file())
        } else {
            None
        };
        let Some(path) = missing else { return Ok(()) };
        let (what, help) = if path.is_file() {
            ("is not executable", format!("`chmod +x {}`", path.display()))
        } else if path.starts_with(&self.built) {
            let help = "in the source tree builds the program; --built selects another folder with built programs";
            ("is missing", format!("`{script}` {help}"))
        } else {
            let help = "build the program, correct its entry in the list of implementations, or omit the implementation";
            ("is missing", help.to_owned())
        };
        // A program name without a slash is searched in PATH.
        let path = match path.components().count() {
            1 => path,
            _ => std::path::absolute(&path).unwrap_or(path),
        };
        Err(BenchError::NotBuilt { name: one.name.clone(), path, what, help })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_complete_requires_files_named_in_arguments() {
        let folder = tempfile::tempdir().unwrap();
        let built = folder.path().join("built");
        std::fs::create_dir_all(built.join("classes")).unwrap();
        let places = Places { dir: folder.path().into(), built: built.clone(), equic: "/".into() };
        let complete = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            places.complete(&words)
        };
        let missing = |words: &[&str]| complete(words).unwrap_err();
        // The interpreter is installed, but the script of the implementation was not built.
        assert_eq!(missing(&["sh", "{built}/run.sh"]), built.join("run.sh"));
        assert_eq!(missing(&["sh", "-c", "{built}/classes/*", "Main"]), built.join("classes"));
        assert_eq!(missing(&["sh", "{built}/nothing/*"]), built.join("nothing"));
        assert_eq!(missing(&["sh", "{dir}:{built}/a.jar"]), built.join("a.jar"));
        assert_eq!(missing(&["{built}/run"]), built.join("run"));
        // A program must be a file with execute permission, and not a folder.
        std::fs::write(built.join("run"), "").unwrap();
        assert_eq!(missing(&["{built}/run"]), built.join("run"));
        assert_eq!(missing(&["{built}/classes"]), built.join("classes"));
        std::fs::write(built.join("classes/Main.class"), "").unwrap();
        for command in [
            &["sh", "{built}/run", "--other", "built/elsewhere"][..],
            &["sh", "-cp", "{built}/classes/*:{dir}", "Main"],
            &["sh"],
        ] {
            assert_eq!(complete(command), Ok(()), "{command:?}");
        }
    }
}
