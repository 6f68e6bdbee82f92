//! The envelope of every JSON result: the name of its schema, and when, where and how the result
//! was measured.
//!
//! A schema name such as `equic.demo/1` identifies the structure of `data`. The number after the
//! slash increases when a field changes its meaning or is removed. Adding a field does not change
//! the number, and readers ignore unknown fields.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::SystemTime;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Error of creating, reading or writing a report.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// The name of a schema does not have the form `equic.NAME/VERSION`.
    #[error("`{0}` is not a schema name: write equic.NAME/VERSION, such as equic.demo/1")]
    Name(String),
    /// A timestamp is not a UTC time in the form of RFC 3339.
    #[error("`{0}` is not a time in UTC as of RFC 3339: write it as 2024-05-06T07:08:09Z")]
    Time(String),
    /// The data cannot be encoded as JSON, for example a map whose keys are not strings.
    #[error("the report has no JSON form: {0}")]
    Encode(#[source] serde_json::Error),
    /// The text is not JSON, or does not have the structure that its schema demands.
    #[error("not a report: {0}")]
    Decode(#[source] serde_json::Error),
    /// The report has another schema than the reader supports, or another version of it.
    #[error(
        "the report has the schema `{found}`, but `{expected}` is needed: use the release of eQUIC that wrote it"
    )]
    Mismatch {
        /// Schema that the reader supports.
        expected: SchemaName,
        /// Schema of the report.
        found: SchemaName,
    },
    /// The file could not be written.
    #[error(transparent)]
    Write(#[from] crate::WriteError),
}

/// The name of a schema, including its version, for example `equic.demo/1`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SchemaName(String);

impl FromStr for SchemaName {
    type Err = SchemaError;

    fn from_str(text: &str) -> Result<Self, SchemaError> {
        let parts = text.strip_prefix("equic.").and_then(|rest| rest.split_once('/'));
        let valid = parts.is_some_and(|(name, version)| {
            let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
            !name.is_empty()
                && name.bytes().all(|byte| letter(byte) || b".-_".contains(&byte))
                && !version.starts_with('0')
                && version.bytes().all(|byte| byte.is_ascii_digit())
                && version.parse::<u32>().is_ok()
        });
        if valid { Ok(Self(text.to_owned())) } else { Err(SchemaError::Name(text.to_owned())) }
    }
}

impl TryFrom<String> for SchemaName {
    type Error = SchemaError;

    fn try_from(text: String) -> Result<Self, SchemaError> {
        text.parse()
    }
}

impl From<SchemaName> for String {
    fn from(name: SchemaName) -> Self {
        name.0
    }
}

impl fmt::Display for SchemaName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A UTC time in the format of RFC 3339, for example `2024-05-06T07:08:09Z`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Timestamp(String);

impl Timestamp {
    /// Converts `time`, rounded down to seconds. Returns `None` before 1970 and after 9999, because
    /// the format needs a year of four digits.
    #[must_use]
    pub fn new(time: SystemTime) -> Option<Self> {
        const YEAR_10000: u64 = 253_402_300_800;
        let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        (since.as_secs() < YEAR_10000)
            .then(|| Self(humantime::format_rfc3339_seconds(time).to_string()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Timestamp {
    type Err = SchemaError;

    fn from_str(text: &str) -> Result<Self, SchemaError> {
        match humantime::parse_rfc3339(text) {
            Ok(_) => Ok(Self(text.to_owned())),
            Err(_) => Err(SchemaError::Time(text.to_owned())),
        }
    }
}

impl TryFrom<String> for Timestamp {
    type Error = SchemaError;

    fn try_from(text: String) -> Result<Self, SchemaError> {
        text.parse()
    }
}

impl From<Timestamp> for String {
    fn from(time: Timestamp) -> Self {
        time.0
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The machine on which a result was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Kernel release, as reported by `uname -r`.
    pub kernel: String,
    /// Processor architecture as Rust names it: `x86_64`, `aarch64`.
    pub architecture: String,
    /// Processor model, or `unknown` if the kernel does not report it (most ARM machines).
    pub cpu_model: String,
    /// Number of logical processors that are online.
    pub cores: u32,
    /// Memory that the kernel manages, in bytes.
    pub memory_bytes: u64,
}

/// Error from determining the properties of the machine.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// A file of /proc cannot be read.
    #[error("cannot read {}: {source}; is /proc mounted?", path.display())]
    Read {
        /// File that cannot be read.
        path: PathBuf,
        /// Error from the system.
        source: std::io::Error,
    },
    /// A file of /proc lacks an expected entry.
    #[error("{} has no {what}", path.display())]
    Missing {
        /// File that lacks the entry.
        path: PathBuf,
        /// The missing entry.
        what: &'static str,
    },
}

impl Machine {
    /// Describes this machine, from /proc.
    ///
    /// # Errors
    /// Fails with [`MachineError`] if /proc is not mounted or has an unexpected format.
    pub fn read() -> Result<Self, MachineError> {
        Self::read_from(Path::new("/proc"))
    }

    /// Describes a machine from a folder with the layout of /proc, like [`Machine::read`].
    ///
    /// # Errors
    /// Fails as [`Machine::read`] does.
    pub fn read_from(proc: &Path) -> Result<Self, MachineError> {
        let read = |name: &str| {
            let path = proc.join(name);
            // Invalid UTF-8 is replaced here, because the model name comes from the firmware and
            // may contain any bytes.
            std::fs::read(&path)
                .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
                .map_err(|source| MachineError::Read { path, source })
        };
        let missing = |name: &str, what| MachineError::Missing { path: proc.join(name), what };
        let kernel = read("sys/kernel/osrelease")?.trim().to_owned();
        let cpuinfo = read("cpuinfo")?;
        let cores = cpuinfo.lines().filter(|line| field(line, "processor").is_some()).count();
        if cores == 0 {
            return Err(missing("cpuinfo", "line `processor`"));
        }
        let model = ["model name", "Model", "cpu model", "uarch"]
            .iter()
            .find_map(|name| cpuinfo.lines().find_map(|line| field(line, name)))
            .filter(|model| !model.is_empty())
            .unwrap_or("unknown");
        let meminfo = read("meminfo")?;
        let memory = meminfo
            .lines()
            .find_map(|line| {
                field(line, "MemTotal")?.strip_suffix("kB")?.trim().parse::<u64>().ok()
            })
            .ok_or_else(|| missing("meminfo", "line `MemTotal: N kB`"))?;
        Ok(Self {
            kernel,
            architecture: std::env::consts::ARCH.to_owned(),
            cpu_model: model.split_whitespace().collect::<Vec<_>>().join(" "),
            cores: u32::try_from(cores).unwrap_or(u32::MAX),
            memory_bytes: memory.saturating_mul(1024),
        })
    }
}

impl fmt::Display for Machine {
    /// Writes one line: `2 x Intel(R) Xeon(R) CPU, 8.35 GB, Linux 6.1.0 (x86_64)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory = crate::number::bytes(self.memory_bytes);
        let Self { kernel, architecture, cpu_model, cores, .. } = self;
        write!(f, "{cores} x {cpu_model}, {memory}, Linux {kernel} ({architecture})")
    }
}

fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (key, value) = line.split_once(':')?;
    (key.trim() == name).then(|| value.trim())
}

/// A result with the circumstances of its measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report<T> {
    /// Name of the schema, which defines the structure of `data`.
    pub schema: SchemaName,
    /// Time at which the measurement began.
    pub created: Timestamp,
    /// The machine on which the measurement ran.
    pub machine: Machine,
    /// The command line of the measurement, with one element for each argument.
    pub command: Vec<String>,
    /// The result.
    pub data: T,
}

impl<T: Serialize> Report<T> {
    /// Returns the report as indented JSON, with a newline at the end. A number that is not finite
    /// becomes `null`, so a field that can have such a value must be an `Option`.
    ///
    /// # Errors
    /// Fails with [`SchemaError::Encode`] if the data cannot be encoded as JSON.
    pub fn to_json(&self) -> Result<String, SchemaError> {
        let mut text = serde_json::to_string_pretty(self).map_err(SchemaError::Encode)?;
        text.push('\n');
        Ok(text)
    }

    /// Writes the report to a file, as JSON on one line, which suits long series. The file is
    /// replaced atomically.
    ///
    /// # Errors
    /// Fails as [`Report::to_json`] does, and with [`SchemaError::Write`].
    pub fn write_compact(&self, path: impl AsRef<Path>) -> Result<(), SchemaError> {
        let mut text = serde_json::to_string(self).map_err(SchemaError::Encode)?;
        text.push('\n');
        Ok(crate::file::write(path.as_ref(), text.as_bytes())?)
    }

    /// Writes the result of [`Report::to_json`] to a file. The file is replaced atomically.
    ///
    /// # Errors
    /// Fails as [`Report::to_json`] does, and with [`SchemaError::Write`].
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), SchemaError> {
        Ok(crate::file::write(path.as_ref(), self.to_json()?.as_bytes())?)
    }
}

impl<T: DeserializeOwned> Report<T> {
    /// Parses a report with the schema `expected`. The schema is checked before the data. So the
    /// error for another kind of report is [`SchemaError::Mismatch`] and not a parse error.
    ///
    /// # Errors
    /// Fails with [`SchemaError::Decode`] or [`SchemaError::Mismatch`].
    pub fn from_json(text: &str, expected: &SchemaName) -> Result<Self, SchemaError> {
        #[derive(Deserialize)]
        struct Head {
            schema: SchemaName,
        }
        let head: Head = serde_json::from_str(text).map_err(SchemaError::Decode)?;
        if head.schema != *expected {
            return Err(SchemaError::Mismatch { expected: expected.clone(), found: head.schema });
        }
        serde_json::from_str(text).map_err(SchemaError::Decode)
    }
}

#[cfg(test)]
#[path = "schema_tests.rs"]
mod tests;
