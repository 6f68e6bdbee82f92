//! `equic gateway set --save`: writes changed settings of a running gateway back to its
//! configuration file.
//!
//! The file is edited rather than generated again, so its comments, order and white space stay
//! (crate `toml_edit`). The new file replaces the old one in one step, and only if the old one is
//! the configuration in force. To make this check possible, a process that reads a configuration
//! stores the file's fingerprint in the gateway.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use equic_gateway::{
    Change, Config, Control, Setting, SettingValue, read_regular, read_regular_text,
};
use nix::fcntl::{Flock, FlockArg};
use toml_edit::{DocumentMut, Item, Table, TableLike, Value};

use super::attributes;
use crate::failure::{Failure, Result};

/// Returns a fingerprint of a text (FNV-1a), which is never 0. It is not cryptographic. Only a
/// process that may write the file could exploit a collision, and it would gain nothing by that.
pub(super) fn fingerprint(text: &[u8]) -> u64 {
    let hash = text.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    hash.max(1)
}

/// Returns the fingerprint of a file, or `None` if the file cannot be read.
pub(super) fn fingerprint_of(path: &Path) -> Option<u64> {
    read_regular(path, Config::MAX_BYTES).ok().map(|text| fingerprint(&text))
}

/// A configuration file that is about to be replaced. If the value is dropped before
/// [`Saving::finish`], the temporary file is removed.
pub(super) struct Saving {
    path: PathBuf,
    temporary: PathBuf,
    before: u64,
    after: u64,
    done: bool,
    // Lock on the temporary file. If two processes save at once, the second one gets an error.
    _alone: Flock<File>,
}

impl Saving {
    /// Writes the changed configuration to a temporary file next to the configuration file. Neither
    /// the configuration file nor the live settings change yet.
    pub(super) fn prepare(control: &Control, settings: &[Setting]) -> Result<Saving> {
        let path = file_of(control)?;
        let cannot = |why: &dyn std::fmt::Display| {
            let what = format!("nothing was changed: cannot save to {}", path.display());
            Failure::because(what, why)
        };
        let temporary = beside(&path);
        let owner = std::fs::metadata(&path).map_err(|error| cannot(&error))?.uid();
        let alone = open_exclusively(&temporary, owner).map_err(|error| cannot(&error))?;
        // From here on, dropping `saving` removes the temporary file.
        let mut saving = Saving {
            path: path.clone(),
            temporary,
            before: 0,
            after: 0,
            done: false,
            _alone: alone,
        };
        let text = read_regular_text(&path, Config::MAX_BYTES).map_err(|error| cannot(&error))?;
        saving.before = fingerprint(text.as_bytes());
        if control.noted_config() != Some(saving.before) {
            return Err(changed(&path));
        }
        let edited = edit(&text, settings).map_err(|failure| cannot(&failure))?;
        saving.after = fingerprint(edited.as_bytes());
        saving.write(&edited).map_err(|error| cannot(&error))?;
        Ok(saving)
    }

    fn write(&self, text: &str) -> std::io::Result<()> {
        let replaced = File::open(&self.path)?;
        let old = replaced.metadata()?;
        let mut file: &File = &self._alone;
        file.set_len(0)?;
        file.write_all(text.as_bytes())?;
        std::os::unix::fs::fchown(file, Some(old.uid()), Some(old.gid()))?;
        attributes::keep(&replaced, file)?;
        // Set the mode last, because setting an access control list changes it.
        file.set_permissions(std::fs::Permissions::from_mode(old.mode() & 0o7777))?;
        file.sync_all()
    }

    /// Replaces the old file by the changed one.
    pub(super) fn finish(self, control: &Control) -> Result<Saved> {
        self.put_in_place(
            |fingerprint| control.note_config(fingerprint),
            |folder| File::open(folder)?.sync_all(),
        )
    }

    /// Implements [`Saving::finish`]. `note` receives the fingerprint of the new file. `sync`
    /// flushes a directory to disk.
    fn put_in_place(
        mut self,
        note: impl FnOnce(u64),
        sync: impl FnOnce(&Path) -> std::io::Result<()>,
    ) -> Result<Saved> {
        if fingerprint_of(&self.path) != Some(self.before) {
            return Err(Failure::new(format!(
                "another process changed {} in the meantime, so the new settings are in force, but not saved: add them to the file by hand",
                self.path.display()
            )));
        }
        std::fs::rename(&self.temporary, &self.path).map_err(|error| {
            let what = format!(
                "the settings are in force, but could not be saved to {}",
                self.path.display()
            );
            Failure::because(what, error)
        })?;
        self.done = true;
        // The rename has succeeded. All readers see the new file, even if the following steps fail.
        note(self.after);
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        Ok(Saved { path: self.path.clone(), unsure: sync(folder).err() })
    }
}

/// A configuration file that has been replaced.
#[derive(Debug)]
pub(super) struct Saved {
    pub(super) path: PathBuf,
    /// Error of flushing the file to disk, or `None`. After an error, a power failure may lose the
    /// new file.
    unsure: Option<std::io::Error>,
}

impl Saved {
    /// Returns a warning that a power failure may lose the new file, or `None` if it is safely on
    /// disk.
    pub(super) fn durability_warning(&self) -> Option<String> {
        let error = self.unsure.as_ref()?;
        Some(format!(
            "the settings are in force and saved to {}; after a power failure the file may be the old one, because its folder could not be written to disk: {error}",
            self.path.display()
        ))
    }
}

impl Drop for Saving {
    fn drop(&mut self) {
        if !self.done {
            // The temporary file is no longer needed. If it cannot be removed, the next process
            // that saves reuses it.
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}

/// Returns the path of a gateway's configuration file, with symbolic links resolved.
fn file_of(control: &Control) -> Result<PathBuf> {
    let report = control.report().filter(equic_gateway::Report::is_alive);
    let named = report.and_then(|report| Some((report.pid, report.config?)));
    let Some((pid, path)) = named else {
        return Err(Failure::new(
            "nothing was changed, because this gateway was started without a configuration file",
        )
        .help("omit --save, or start the gateway with `equic gateway run --config FILE`"));
    };
    // The path may be relative to the working directory of the process that runs the gateway.
    let from = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
    let path = from.join(path);
    path.canonicalize().map_err(|error| {
        Failure::because(format_args!("nothing was changed: cannot find {}", path.display()), error)
    })
}

fn changed(path: &Path) -> Failure {
    Failure::new(format!(
        "nothing was changed, because {} was edited after the gateway had read it",
        path.display()
    ))
    .help("apply the file with `equic gateway reload`, then repeat this command")
}

/// Opens and locks the temporary file. A file that a killed process left behind is reused if it
/// belongs to this user, or to `owner`, the owner of the configuration file.
fn open_exclusively(temporary: &Path, owner: u32) -> std::io::Result<Flock<File>> {
    let busy = || {
        std::io::Error::other(
            "another process is saving settings to the configuration file: try again",
        )
    };
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        // If a FIFO has the name of the temporary file, open(2) must not block.
        .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK)
        .open(temporary)?;
    let file = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|_| busy())?;
    let (held, there) = (file.metadata()?, std::fs::metadata(temporary)?);
    // The previous holder of the lock may have renamed the locked file to its final name. Then
    // another file has the temporary name now.
    if (held.dev(), held.ino()) != (there.dev(), there.ino()) {
        return Err(busy());
    }
    let ours = [nix::unistd::geteuid().as_raw(), owner].contains(&held.uid());
    if !ours || held.nlink() != 1 || !held.is_file() {
        let why = format!("an unrelated file is in the way: {}", temporary.display());
        return Err(std::io::Error::other(why));
    }
    Ok(file)
}

fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.equic-new"))
}

/// Returns the text of the configuration with these settings changed, and everything else
/// unchanged.
fn edit(text: &str, settings: &[Setting]) -> Result<String> {
    let mut wanted = Config::parse(text)?;
    let mut document: DocumentMut = text
        .parse()
        .map_err(|error| Failure::because("the configuration file is not valid TOML", error))?;
    for setting in settings {
        for change in wanted.set(setting)? {
            let service = change.service.as_deref();
            let table = table_of(&mut document, service).ok_or_else(|| {
                let place =
                    service.map_or("gateway".to_owned(), |name| format!("service `{name}`"));
                Failure::new(format!("the file has no table for the {place}"))
            })?;
            put(table, &change);
        }
    }
    let edited = document.to_string();
    // Never write a text that does not parse to the wanted configuration.
    if Config::parse(&edited)? != wanted {
        return Err(Failure::new(
            "--save cannot edit this configuration file, because of the way it is written: edit the file by hand",
        ));
    }
    Ok(edited)
}

/// Returns the table of a service, or the table `[gateway]`. Creates `[gateway]` if it does not
/// exist.
fn table_of<'a>(
    document: &'a mut DocumentMut,
    service: Option<&str>,
) -> Option<&'a mut dyn TableLike> {
    let Some(service) = service else {
        return document.entry("gateway").or_insert(Item::Table(Table::new())).as_table_like_mut();
    };
    let named = |table: &dyn TableLike| {
        table.get("name").and_then(Item::as_str).is_some_and(|name| name == service)
    };
    match document.get_mut("service")? {
        Item::ArrayOfTables(tables) => {
            let found = tables.iter_mut().find(|table| named(&**table));
            found.map(|table| table as &mut dyn TableLike)
        }
        Item::Value(Value::Array(tables)) => {
            let mut tables = tables.iter_mut().filter_map(Value::as_inline_table_mut);
            let found = tables.find(|table| named(&**table));
            found.map(|table| table as &mut dyn TableLike)
        }
        _ => None,
    }
}

/// Changes a value in place, keeping the comment after the value. If the key does not exist, adds
/// it.
fn put(table: &mut dyn TableLike, change: &Change) {
    let mut new = match &change.new_value {
        SettingValue::Flag(on) => Value::from(*on),
        SettingValue::Number(number) => Value::from(i64::try_from(*number).unwrap_or(i64::MAX)),
        _ => Value::from(change.new.as_str()),
    };
    match table.get_mut(change.key).and_then(Item::as_value_mut) {
        Some(old) => {
            *new.decor_mut() = old.decor().clone();
            *old = new;
        }
        None => drop(table.insert(change.key, Item::Value(new))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(text: &str, settings: &[&str]) -> Result<String> {
        let settings: Vec<Setting> =
            settings.iter().map(|pair| Setting::parse_pair(pair).unwrap()).collect();
        edit(text, &settings)
    }

    const FILE: &str = "# Ours.
deny = [ \"192.0.2.0/24\" ] # them

[gateway]
name = 'edge'   # quoted otherwise

[[service]]
name = \"web\"
listen = [\"443\"]
max_connections = 100 # since the attack
# The end.

[[service]]
name = \"dns\"
listen = [\"853\"]
";

    #[test]
    fn only_what_is_set_changes() {
        let text = edited(FILE, &["web.max_connections=7", "dry_run=on", "lease=2s"]).unwrap();
        let wanted = FILE
            .replace("max_connections = 100 #", "max_connections = 7 #")
            .replace("otherwise\n", "otherwise\ndry_run = true\nlease = \"2s\"\n");
        assert_eq!(text, wanted);
        let all = edited(FILE, &["new_per_source=20/s burst 40"]).unwrap();
        assert_eq!(all.matches("new_per_source = \"20/s burst 40\"").count(), 2, "{all}");
        assert_eq!(edited(FILE, &["web.max_connections=100"]).unwrap(), FILE);
    }

    #[test]
    fn tables_in_a_line_are_edited_too() {
        let text = "service = [{ name = \"web\", listen = [\"443\"], dry_run = true }]\n";
        let wanted = text.replace("true", "false");
        assert_eq!(edited(text, &["web.dry_run=off"]).unwrap(), wanted);
        let with = edited(text, &["lease=3s"]).unwrap();
        assert_eq!(with, format!("{text}\n[gateway]\nlease = \"3s\"\n"));
    }

    /// Creates a configuration file with the content `before`, and a pending replacement of it by
    /// `after`.
    fn saving(folder: &Path, before: &str, after: &str) -> Saving {
        let path = folder.join("equic.toml");
        std::fs::write(&path, before).unwrap();
        saving_at(path, before, after)
    }

    fn saving_at(path: PathBuf, before: &str, after: &str) -> Saving {
        let temporary = beside(&path);
        let alone = open_exclusively(&temporary, nix::unistd::geteuid().as_raw()).unwrap();
        let (before, fingerprint) = (fingerprint(before.as_bytes()), fingerprint(after.as_bytes()));
        let saving =
            Saving { path, temporary, before, after: fingerprint, done: false, _alone: alone };
        saving.write(after).unwrap();
        saving
    }

    #[test]
    fn a_file_in_its_place_is_saved_even_if_its_folder_cannot_be_synced() {
        let folder = tempfile::tempdir().unwrap();
        let mut noted = 0;
        let saved = saving(folder.path(), "old", "new")
            .put_in_place(
                |fingerprint| noted = fingerprint,
                |_| Err(std::io::Error::other("no disk")),
            )
            .unwrap();
        assert_eq!(std::fs::read_to_string(&saved.path).unwrap(), "new");
        assert_eq!(noted, fingerprint(b"new"), "or the next one to save would be refused");
        let doubt = saved.durability_warning().unwrap();
        assert!(doubt.contains("saved to") && doubt.contains("no disk"), "{doubt}");
        let saving = saving(folder.path(), "old", "new");
        assert!(saving.put_in_place(|_| (), |_| Ok(())).unwrap().durability_warning().is_none());
    }

    /// After the replacement, the same users must be able to read the file as before.
    #[test]
    fn access_control_lists_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("equic.toml");
        std::fs::write(&path, "old").unwrap();
        if !attributes::tests::set(&path, "system.posix_acl_access", &attributes::tests::acl()) {
            return;
        }
        saving_at(path.clone(), "old", "new").put_in_place(|_| (), |_| Ok(())).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(attributes::tests::acl_of(&path), Some(attributes::tests::acl()));
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
    }

    #[test]
    fn a_file_that_is_not_in_its_place_is_not_saved() {
        let folder = tempfile::tempdir().unwrap();
        let saving = saving(folder.path(), "old", "new");
        std::fs::write(&saving.path, "theirs").unwrap();
        let (path, temporary) = (saving.path.clone(), saving.temporary.clone());
        let refused = saving.put_in_place(|_| panic!("not saved"), |_| panic!("not saved"));
        assert!(refused.unwrap_err().to_string().contains("not saved"));
        assert_eq!(std::fs::read_to_string(path).unwrap(), "theirs");
        assert!(!temporary.exists());
    }

    #[test]
    fn only_an_own_leftover_is_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let (other, temporary) = (folder.path().join("other"), folder.path().join("new"));
        let me = nix::unistd::geteuid().as_raw();
        std::fs::write(&other, "precious").unwrap();
        std::fs::hard_link(&other, &temporary).unwrap();
        assert!(open_exclusively(&temporary, me).is_err(), "it has another name too");
        std::fs::remove_file(&temporary).unwrap();
        std::os::unix::fs::symlink(&other, &temporary).unwrap();
        assert!(open_exclusively(&temporary, me).is_err(), "it is somewhere else");
        std::fs::remove_file(&temporary).unwrap();
        nix::unistd::mkfifo(&temporary, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(open_exclusively(&temporary, me).is_err(), "a pipe, that nobody reads");
        std::fs::remove_file(&temporary).unwrap();
        std::fs::write(&temporary, "left").unwrap();
        assert!(open_exclusively(&temporary, me).is_ok());
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "precious");
        if me != 0 {
            assert!(!equic_testing::ci::in_ci(), "giving files away takes root");
            eprintln!("SKIPPED: giving files away takes root");
            return;
        }
        // A process was killed after it had given the temporary file to the owner of the
        // configuration.
        std::os::unix::fs::chown(&temporary, Some(4242), None).unwrap();
        assert!(open_exclusively(&temporary, 4242).is_ok());
        assert!(open_exclusively(&temporary, 4243).is_err());
    }

    #[test]
    fn what_cannot_be_edited_is_refused() {
        assert!(edited(FILE, &["mail.max_connections=7"]).is_err());
        assert!(edited("service = 1", &["max_connections=7"]).is_err());
        assert!(edited("[", &["max_connections=7"]).is_err());
    }
}
