//! A folder for runs of `equic-lab bench run`. Each test has its own.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::common::{EQUIC_LAB, ROOT};

/// A folder with a list of implementations.
pub(crate) struct Scene(tempfile::TempDir);

impl Scene {
    pub(crate) fn new(implementations: &Value) -> Scene {
        let scene = Scene(tempfile::tempdir().unwrap());
        scene.list(implementations);
        scene
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn list(&self, implementations: &Value) {
        let file = self.path().join("implementations.json");
        std::fs::write(file, implementations.to_string()).unwrap();
    }

    pub(crate) fn script(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, format!("#!/bin/bash\n{text}")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    pub(crate) fn out(&self) -> PathBuf {
        self.path().join("out")
    }

    /// Returns a command that runs the benchmark with settings that ignore the CPU use of other
    /// tests.
    pub(crate) fn bench(&self, args: &[&str]) -> Command {
        let mut command = Command::new(EQUIC_LAB);
        command.args(["bench", "run", "--impl", "all"]);
        for (option, usual) in [("--grace", "20"), ("--bytes", "3001")] {
            if !args.contains(&option) {
                command.args([option, usual]);
            }
        }
        command.args(["--max-foreign", "100", "--max-steal", "100"]).args(args);
        command.arg("--implementations-file").arg(self.path().join("implementations.json"));
        command.arg("--out").arg(self.out()).current_dir(ROOT);
        command
    }

    pub(crate) fn samples(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.out().join("samples.jsonl")).unwrap_or_default();
        // During a run, the last line may be incomplete.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Returns an implementation that misbehaves in the way `how`, or that is honest (see liar.sh).
pub(crate) fn liar(how: &str) -> Value {
    let script = format!("{ROOT}/lab/bench/tests/liar.sh");
    json!({ "url": "nowhere", "tier": 1, "command": ["/bin/bash", script, how], "speaks": ["perf"] })
}

/// This project's.
pub(crate) fn ours() -> Value {
    json!({ "url": "here", "tier": 1, "command": ["{equic}", "bench", "endpoint"], "speaks": ["perf", "h3"] })
}
