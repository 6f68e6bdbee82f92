//! Programs of this workspace that tests run.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;
use std::sync::OnceLock;

/// A program of this workspace, in the directory that the running test was built into.
#[derive(Clone, Copy, Debug)]
pub struct Tested {
    index: usize,
}

/// Names of the programs, and the packages that contain them.
const PROGRAMS: [(&str, &str); 2] = [("equic", "equic-cli"), ("equic-lab", "equic-lab-cli")];

impl Tested {
    pub(crate) const EQUIC: Tested = Tested { index: 0 };
    pub(crate) const EQUIC_LAB: Tested = Tested { index: 1 };

    /// Returns the path of the program.
    ///
    /// # Panics
    /// The program was not built. The message says how to build it.
    #[must_use]
    pub fn path(self) -> &'static str {
        static PATHS: [OnceLock<String>; 2] = [const { OnceLock::new() }; 2];
        PATHS[self.index].get_or_init(|| {
            let test = std::env::current_exe().expect("a test has a path");
            // Cargo puts tests into target/PROFILE/deps, and programs into target/PROFILE.
            let folder = test.ancestors().skip(1).find(|folder| !folder.ends_with("deps"));
            let folder = folder.expect("a test is in a folder");
            self.in_folder(folder).unwrap_or_else(|missing| panic!("{missing}"))
        })
    }

    fn in_folder(self, folder: &Path) -> Result<String, String> {
        let (name, package) = PROGRAMS[self.index];
        let program = folder.join(name);
        if program.is_file() {
            return Ok(program.to_str().expect("the target folder is UTF-8").to_owned());
        }
        let release = if folder.ends_with("release") { " --release" } else { "" };
        Err(format!(
            "this test needs {}, which does not exist: first run `cargo build{release} -p {package}`",
            program.display()
        ))
    }
}

impl AsRef<OsStr> for Tested {
    fn as_ref(&self) -> &OsStr {
        self.path().as_ref()
    }
}

impl fmt::Display for Tested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_that_is_missing_is_named_with_its_package() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().join("release");
        std::fs::create_dir(&folder).unwrap();
        let missing = Tested::EQUIC_LAB.in_folder(&folder).unwrap_err();
        assert!(missing.ends_with("`cargo build --release -p equic-lab-cli`"), "{missing}");
        std::fs::write(folder.join("equic"), "").unwrap();
        assert!(Tested::EQUIC.in_folder(&folder).unwrap().ends_with("/release/equic"));
    }
}
