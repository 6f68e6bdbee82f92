//! Detects slow memory copies. glibc before 2.40 uses `rep movsb` for copies above a few kilobytes.
//! On AMD's Zen 3 and 4, this instruction is very slow if source and destination have similar
//! offsets in their pages (glibc bug 30994). TLS records over TCP are copied in this way. Datagrams
//! are too short for it, so this bug makes only TCP slower.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Finding, finding};

/// The environment variable that configures glibc.
pub const TUNABLES: &str = "GLIBC_TUNABLES";
/// Value that makes glibc copy by vector instructions at any length.
pub const WITHOUT_REP_MOVSB: &str = "glibc.cpu.x86_rep_movsb_threshold=1000000000";
/// The first release of glibc that copies fast on these CPUs.
const MENDED: (u32, u32) = (2, 40);

/// Returns the C library of this machine, such as `glibc 2.36`. `None` if it is not glibc.
pub(super) fn library() -> Option<String> {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

pub(super) fn slow(root: &Path, library: Option<&str>, tunables: Option<&str>) -> Option<Finding> {
    let library = library?;
    let (major, minor) = library.strip_prefix("glibc ")?.split_once('.')?;
    let minor: String = minor.chars().take_while(char::is_ascii_digit).collect();
    let is_old = (major.parse().ok()?, minor.parse().ok()?) < MENDED;
    let cpu = fs::read_to_string(root.join("proc/cpuinfo")).ok()?;
    let says = |name: &str, word: &str| {
        let mut lines = cpu.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(field, _)| field.trim() == name);
        found.is_some_and(|(_, value)| value.split_whitespace().any(|one| one == word))
    };
    // Zen 3 is the first generation of AMD's CPUs with the flag fsrm.
    let is_slow = says("vendor_id", "AuthenticAMD") && says("flags", "fsrm");
    let is_set = tunables.is_some_and(|set| set.contains("x86_rep_movsb_threshold"));
    (is_old && is_slow && !is_set).then(|| {
        let found = format!(
            "on this CPU, {library} copies blocks of several kilobytes slowly, which slows down TCP with TLS, but not QUIC"
        );
        finding("copies", true, found, format!("export {TUNABLES}={WITHOUT_REP_MOVSB}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZEN: &str = "vendor_id\t: AuthenticAMD\nflags\t\t: fpu erms fsrm\n";

    fn ask(cpu: &str, library: Option<&str>, tunables: Option<&str>) -> Option<Finding> {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("proc")).unwrap();
        fs::write(folder.path().join("proc/cpuinfo"), cpu).unwrap();
        slow(folder.path(), library, tunables)
    }

    #[test]
    fn doctor_finds_an_old_glibc_on_an_affected_cpu() {
        let found = ask(ZEN, Some("glibc 2.36"), None).unwrap();
        assert!(found.serious && found.help.contains(TUNABLES), "{found:?}");
        assert!(ask(ZEN, Some("glibc 2.39.9000"), Some("glibc.malloc.check=1")).is_some());
    }

    #[test]
    fn doctor_accepts_other_glibc_versions_cpus_and_tunables() {
        assert_eq!(ask(ZEN, Some("glibc 2.40"), None), None);
        assert_eq!(ask(ZEN, Some("glibc 3.0"), None), None);
        assert_eq!(ask(ZEN, None, None), None);
        assert_eq!(ask(ZEN, Some("glibc 2.36"), Some(WITHOUT_REP_MOVSB)), None);
        assert_eq!(ask(&ZEN.replace("AMD", "Other"), Some("glibc 2.36"), None), None);
        assert_eq!(ask(&ZEN.replace("fsrm", ""), Some("glibc 2.36"), None), None);
        assert_eq!(ask("", Some("glibc 2.36"), None), None);
    }
}
