//! Tests transparency logs: which proofs are valid, which logs policies require, and what a monitor
//! finds.

mod common;

use std::fs;
use std::path::Path;

use common::{bundle, key, manifest};
use equic_plugin::transparency::{Alarm, Entry, Log, LogError, MAX_HEAD, TreeHead, check};
use equic_plugin::{
    Bundle, BundleError, Origin, Policy, PolicyError, Refusal, decide, sign, staple,
};
use tempfile::TempDir;

const NOW: u64 = 1_800_000_000;
/// Seeds of the signing keys: the log's, another log's, and those of two authors.
const LOG: u8 = 1;
const OTHER: u8 = 2;
const ANN: u8 = 7;
const BEN: u8 = 8;
/// Number of bytes before the manifest of a signed bundle, and before the hashes of a staple.
const SIGNED: usize = 16 + 96;
const STAPLE: usize = 120;

/// Returns a signed bundle of a plugin with this patch number in its version.
fn plugin(author: u8, patch: usize) -> Vec<u8> {
    let text = manifest(r#""observe""#, "", "").replace("1.2.3", &format!("1.2.{patch}"));
    bundle(&text, Some(&key(author)))
}

/// Returns the folder of a log with this many plugins of the author Ann.
fn log_of(number: u8, plugins: usize) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    Log::create(folder.path(), &key(number), NOW).unwrap();
    for patch in 0..plugins {
        append(folder.path(), number, &plugin(ANN, patch));
    }
    folder
}

/// Adds a bundle to a log, and returns the bundle with its log proof.
fn append(folder: &Path, number: u8, bytes: &[u8]) -> Vec<u8> {
    let bundle = Bundle::parse(bytes).unwrap();
    let proof = Log::append(folder, &bundle, &key(number), NOW).unwrap();
    staple(&bundle, &proof).unwrap()
}

fn parse(bytes: &[u8]) -> Result<(), BundleError> {
    Bundle::parse(bytes).map(|_| ())
}

#[test]
fn log_proof_is_stapled_to_a_bundle() {
    let log = tempfile::tempdir().unwrap();
    Log::create(log.path(), &key(LOG), NOW).unwrap();
    for patch in 0..9 {
        let bytes = plugin(ANN, patch);
        let stapled = append(log.path(), LOG, &bytes);
        assert_eq!(Bundle::length(&stapled[..16]), Ok(Some(stapled.len())));
        let bundle = Bundle::parse(&stapled).unwrap();
        let proof = bundle.staple().unwrap();
        assert_eq!((proof.index(), proof.head().size()), (patch as u64, patch as u64 + 1));
        assert_eq!((proof.head().log(), proof.head().time()), (key(LOG).public(), NOW));
        assert_eq!(bundle.author(), Some(key(ANN).public()));
        // Adding the same bundle again must return the same proof.
        assert_eq!(append(log.path(), LOG, &stapled), stapled);
    }
    // A bundle that was added earlier must get a proof for the present tree without the log's key.
    let (log, first) = (Log::open(log.path()).unwrap(), plugin(ANN, 0));
    let first = Bundle::parse(&first).unwrap();
    let stapled = staple(&first, &log.staple(&first).unwrap()).unwrap();
    assert_eq!(Bundle::parse(&stapled).unwrap().staple().unwrap().head().size(), 9);
    assert!(matches!(
        log.staple(&Bundle::parse(&plugin(ANN, 10)).unwrap()),
        Err(LogError::Missing)
    ));
    // Signing a bundle again must remove its log proof.
    let again = sign(&Bundle::parse(&stapled).unwrap(), &key(BEN));
    assert_eq!(Bundle::parse(&again).unwrap().staple(), None);
}

/// Flips each byte of a log proof in turn, and moves log proofs to other bundles. Every such bundle
/// must be refused.
#[test]
fn log_proof_that_is_forged_or_of_another_bundle_is_refused() {
    let log = log_of(LOG, 5);
    let stapled = append(log.path(), LOG, &plugin(ANN, 5));
    let from = plugin(ANN, 5).len();
    for at in from..stapled.len() {
        let mut forged = stapled.clone();
        forged[at] ^= 1;
        assert!(matches!(parse(&forged), Err(BundleError::Staple(_))), "byte {at}");
    }
    // The proof is moved to another bundle of the same log, author and length.
    let other = plugin(ANN, 4);
    assert_eq!(other.len(), from);
    let mut moved = other.clone();
    moved[15] = stapled[15];
    moved.extend_from_slice(&stapled[from..]);
    assert!(matches!(parse(&moved), Err(BundleError::Staple(_))));
    // The proof is moved to the same manifest with another author's signature.
    let mut stolen = plugin(BEN, 5);
    stolen[15] = stapled[15];
    stolen.extend_from_slice(&stapled[from..]);
    assert!(matches!(parse(&stolen), Err(BundleError::Staple(_))));
    let proof = Bundle::parse(&stapled).unwrap().staple().unwrap().clone();
    let other = Bundle::parse(&other).unwrap();
    assert!(matches!(staple(&other, &proof), Err(BundleError::Staple(_))));
    // The lengths in the header do not match, or the bundle has a proof but no signature.
    for (byte, value) in [(15, stapled[15] + 1), (15, stapled[15] - 1), (15, 0), (15, 255), (14, 0)]
    {
        let mut wrong = stapled.clone();
        wrong[byte] = value;
        assert!(
            matches!(parse(&wrong), Err(BundleError::Header(_) | BundleError::Length { .. })),
            "{byte} {value}"
        );
    }
    let hashes = usize::from(stapled[15]) - 1;
    assert_eq!(stapled.len(), from + STAPLE + 32 * hashes);
    assert!(from > SIGNED);
}

/// If a policy requires a log for an author, a plugin must have both the author's signature and a
/// proof by that log.
#[test]
fn policy_can_require_a_log_proof() {
    let text = |log: &str| {
        format!(
            "[[log]]\nname = \"ours\"\nkey = \"{}\"\n
             [[author]]\nname = \"ann\"\nkey = \"{}\"\nclasses = [\"observe\"]\nlog = \"{log}\"\n",
            key(LOG).public(),
            key(ANN).public(),
        )
    };
    let policy = Policy::parse(&text("ours")).unwrap();
    let decided = |bytes: &[u8], origin| {
        decide(&Bundle::parse(bytes).unwrap(), origin, &policy, NOW).map(|_| ())
    };
    let not_logged =
        || Err(Refusal::NotLogged { author: "ann".to_owned(), log: key(LOG).public() });
    let signed = plugin(ANN, 0);
    assert_eq!(decided(&signed, Origin::Peer), not_logged());
    let (ours, theirs) = (log_of(LOG, 3), log_of(OTHER, 3));
    assert_eq!(decided(&append(ours.path(), LOG, &signed), Origin::Peer), Ok(()));
    assert_eq!(decided(&append(theirs.path(), OTHER, &signed), Origin::Peer), not_logged());
    // A plugin in the log must still be refused if the policy does not name its author.
    let bens = append(ours.path(), LOG, &plugin(BEN, 0));
    assert!(matches!(decided(&bens, Origin::Peer), Err(Refusal::NotAccepted { .. })));
    // The owner's own plugins need neither a log nor a signature.
    assert_eq!(decided(&signed, Origin::Own), Ok(()));
    // A plugin of this author must be refused without a log proof, even if the policy grants its
    // classes to anyone.
    let open = Policy::parse(&format!("anyone = [\"observe\"]\n{}", text("ours"))).unwrap();
    let hidden = Bundle::parse(&signed).unwrap();
    assert!(matches!(decide(&hidden, Origin::Peer, &open, NOW), Err(Refusal::NotLogged { .. })));

    assert!(matches!(Policy::parse(&text("theirs")), Err(PolicyError::NoLog { .. })));
    let twice =
        text("ours") + &format!("[[log]]\nname = \"ours\"\nkey = \"{}\"\n", key(OTHER).public());
    assert_eq!(Policy::parse(&twice), Err(PolicyError::LogTwice("ours".to_owned())));
    let keyless = "[[log]]\nname = \"ours\"\nkey = \"ed25519:00\"\n";
    assert!(matches!(Policy::parse(keyless), Err(PolicyError::Key(_))));
}

/// If the policy has a `since` for a log, a proof with an older tree head must be refused, because
/// it does not show the present content of the log.
#[test]
fn policy_can_require_a_recent_tree_head() {
    let text = |since: &str| {
        format!(
            "[[log]]\nname = \"ours\"\nkey = \"{}\"\nsince = \"{since}\"\n
             [[author]]\nname = \"ann\"\nkey = \"{}\"\nclasses = [\"observe\"]\nlog = \"ours\"\n",
            key(LOG).public(),
            key(ANN).public(),
        )
    };
    let folder = log_of(LOG, 1);
    let stapled = append(folder.path(), LOG, &plugin(ANN, 0));
    // The tree head was signed at `NOW`, which is 2027-01-15T08:00:00Z.
    for (since, refused) in [
        ("2027-01-15T07:59:59Z", None),
        ("2027-01-15T08:00:00Z", None),
        ("2027-01-15T08:00:01Z", Some(Refusal::OldProof { time: NOW, since: NOW + 1 })),
    ] {
        let policy = Policy::parse(&text(since)).unwrap();
        let bundle = Bundle::parse(&stapled).unwrap();
        assert_eq!(decide(&bundle, Origin::Peer, &policy, NOW).err(), refused, "{since}");
        assert!(decide(&bundle, Origin::Own, &policy, NOW).is_ok());
    }
    let said = Policy::parse(&text("yesterday")).unwrap_err();
    let (log, since) = ("ours".to_owned(), "yesterday".to_owned());
    assert_eq!(said, PolicyError::Since { log, since });
}

/// Returns the log proof in a bundle.
fn proof_of(stapled: &[u8]) -> equic_plugin::transparency::Staple {
    Bundle::parse(stapled).unwrap().staple().unwrap().clone()
}

#[test]
fn monitor_reports_new_entries() {
    let folder = log_of(LOG, 3);
    let ours = key(LOG).public();
    let log = Log::open(folder.path()).unwrap();
    let first = check(&log, ours, None, &[]).unwrap();
    assert_eq!(first.entries.len(), 3);
    let again = check(&log, ours, Some(&first.head), &[]).unwrap();
    assert!(again.entries.is_empty());
    let stapled = append(folder.path(), LOG, &plugin(BEN, 3));
    let log = Log::open(folder.path()).unwrap();
    let news = check(&log, ours, Some(&first.head), &[proof_of(&stapled)]).unwrap();
    let [(3, entry)] = &news.entries[..] else { panic!("{:?}", news.entries) };
    assert_eq!(entry.author(), key(BEN).public());
    assert_eq!(entry.manifest().version.to_string(), "1.2.3");
    assert!(matches!(check(&log, key(OTHER).public(), None, &[]), Err(Alarm::AnotherLog { .. })));
}

/// A monitor must notice if a log removes entries, changes them, or shows different trees to
/// different readers, even though each tree head has a valid signature.
#[test]
fn monitor_finds_a_truncated_or_forked_log() {
    let ours = key(LOG).public();
    let open = |folder: &TempDir| Log::open(folder.path()).unwrap();
    let honest = log_of(LOG, 4);
    let known = *open(&honest).head();
    // Truncated: the log has fewer entries than at the last check.
    let truncated = log_of(LOG, 3);
    assert!(matches!(
        check(&open(&truncated), ours, Some(&known), &[]),
        Err(Alarm::Truncated { known: 4, present: 3 })
    ));
    // Forked: one entry differs from the last check. The forked log is first as long as before, and
    // then longer.
    let forked = tempfile::tempdir().unwrap();
    Log::create(forked.path(), &key(LOG), NOW).unwrap();
    for (before, patch) in [0, 9, 2, 3, 4].into_iter().enumerate() {
        append(forked.path(), LOG, &plugin(ANN, patch));
        if before >= 3 {
            let checked = check(&open(&forked), ours, Some(&known), &[]);
            assert!(matches!(checked, Err(Alarm::Forked { size: 4 })), "{checked:?}");
        }
    }
    // The log shows one tree to the monitor, and another tree to the users of the plugin.
    let stapled = append(forked.path(), LOG, &plugin(ANN, 9));
    let checked = check(&open(&honest), ours, None, &[proof_of(&stapled)]);
    assert!(matches!(checked, Err(Alarm::Truncated { .. } | Alarm::Forked { .. })), "{checked:?}");
    // The time of the log's tree head is before that of the last check.
    let later = tempfile::tempdir().unwrap();
    Log::create(later.path(), &key(LOG), NOW + 9).unwrap();
    let known = *open(&later).head();
    let earlier = log_of(LOG, 0);
    assert!(matches!(
        check(&open(&earlier), ours, Some(&known), &[]),
        Err(Alarm::TimeWentBack { .. })
    ));
}

/// At every check, a monitor must compare all entries with their leaves, including those that it
/// has seen.
#[test]
fn monitor_finds_old_entries_that_were_replaced() {
    let ours = key(LOG).public();
    let folder = log_of(LOG, 4);
    let known = *Log::open(folder.path()).unwrap().head();
    append(folder.path(), LOG, &plugin(BEN, 3));
    let log = Log::open(folder.path()).unwrap();
    assert_eq!(check(&log, ours, Some(&known), &[]).unwrap().entries.len(), 1);
    let entry = |index: u64| folder.path().join("entries").join(index.to_string());
    let honest = fs::read(entry(1)).unwrap();
    let finds = |what: &str| {
        for known in [known, *log.head()] {
            let checked = check(&log, ours, Some(&known), &[]);
            let found = matches!(checked, Err(Alarm::Exchanged { index: 1, .. }));
            assert!(found, "{what}: {checked:?}");
        }
        let new = check(&log, ours, None, &[]);
        assert!(matches!(new, Err(Alarm::Log(_))), "{what}: {new:?}");
    };
    // The entry is replaced with another entry of the log, with an entry of another log, with a
    // truncated entry, and with nothing.
    fs::copy(entry(3), entry(1)).unwrap();
    finds("another entry");
    let elsewhere = log_of(LOG, 0);
    append(elsewhere.path(), LOG, &plugin(ANN, 99));
    fs::copy(elsewhere.path().join("entries/0"), entry(1)).unwrap();
    finds("an entry of another log");
    fs::write(entry(1), &honest[..honest.len() - 1]).unwrap();
    finds("a part");
    fs::remove_file(entry(1)).unwrap();
    finds("nothing");
    fs::create_dir(entry(1)).unwrap();
    finds("a folder");
    fs::remove_dir(entry(1)).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(entry(1)).status().unwrap().success());
    finds("a FIFO");
    fs::remove_file(entry(1)).unwrap();
    fs::write(entry(1), honest).unwrap();
    assert!(check(&log, ours, Some(&known), &[]).is_ok());
}

/// A log with damaged files must be refused, and nothing must be added to it.
#[test]
fn log_that_is_damaged_is_refused_and_not_appended_to() {
    let damage = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let folder = log_of(LOG, 3);
        let path = folder.path().join(name);
        let mut bytes = fs::read(&path).unwrap();
        change(&mut bytes);
        fs::write(&path, bytes).unwrap();
        folder
    };
    for (name, change) in [
        ("leaves", &(|bytes: &mut Vec<u8>| bytes[40] ^= 1) as &dyn Fn(&mut Vec<u8>)),
        ("leaves", &|bytes| bytes.truncate(64)),
        ("head", &|bytes| bytes.truncate(100)),
        ("head", &|bytes| bytes.extend_from_slice(&[b'\n'; MAX_HEAD])),
        ("head", &|bytes| {
            let text = String::from_utf8(bytes.clone()).unwrap();
            *bytes = text.replace("size 3", "size 2").into_bytes();
        }),
    ] {
        let folder = damage(name, change);
        let error = Log::open(folder.path()).unwrap_err();
        assert!(
            matches!(error, LogError::Leaves | LogError::Head(_) | LogError::File { .. }),
            "{error}"
        );
        let added = plugin(ANN, 9);
        let added = Bundle::parse(&added).unwrap();
        assert!(Log::append(folder.path(), &added, &key(LOG), NOW).is_err(), "{name}");
    }
    // A leaf beyond the size in the tree head must not count as part of the log, because writing
    // its entry was not completed.
    let folder = damage("leaves", &|bytes| bytes.extend_from_slice(&[1; 32]));
    assert_eq!(Log::open(folder.path()).unwrap().tree().size(), 3);
    append(folder.path(), LOG, &plugin(ANN, 9));
    assert_eq!(Log::open(folder.path()).unwrap().tree().size(), 4);

    let folder = damage("entries/1", &|bytes| bytes[90] ^= 1);
    let changed = Log::open(folder.path()).unwrap().entry(1);
    assert!(matches!(changed, Err(LogError::Other(1))), "{changed:?}");
    let folder = log_of(LOG, 3);
    fs::copy(folder.path().join("entries/0"), folder.path().join("entries/2")).unwrap();
    let log = Log::open(folder.path()).unwrap();
    assert!(matches!(log.entry(2), Err(LogError::Other(2))));
    assert!(matches!(check(&log, key(LOG).public(), None, &[]), Err(Alarm::Log(_))));
}

#[test]
fn log_accepts_only_signed_bundles_with_its_own_key() {
    let folder = log_of(LOG, 1);
    let unsigned = bundle(&manifest(r#""observe""#, "", ""), None);
    let unsigned = Bundle::parse(&unsigned).unwrap();
    let append = |bundle: &Bundle<'_>, number| {
        Log::append(folder.path(), bundle, &key(number), NOW).map(|_| ()).unwrap_err()
    };
    assert!(matches!(append(&unsigned, LOG), LogError::Bundle(_)));
    let signed = plugin(ANN, 5);
    assert!(matches!(append(&Bundle::parse(&signed).unwrap(), OTHER), LogError::Key { .. }));
    assert!(Log::create(folder.path(), &key(LOG), NOW).is_err(), "there is a log");
    // Tree heads and entries must have exactly one valid encoding.
    let log = Log::open(folder.path()).unwrap();
    let text = log.head().to_string();
    assert_eq!(text.parse::<TreeHead>().as_ref(), Ok(log.head()));
    for wrong in [
        text.replace("size 1", "size +1"),
        text.replace("size 1", "size 01"),
        text.replace("log 1", "log 2"),
        text.trim_end().to_owned(),
        format!("{text}\n"),
        text.replace("time", "times"),
        text.to_uppercase(),
    ] {
        assert!(wrong.parse::<TreeHead>().is_err(), "{wrong}");
    }
    let entry = log.entry(0).unwrap();
    assert_eq!(Entry::parse(entry.as_bytes()).as_ref(), Ok(&entry));
    for cut in 0..entry.as_bytes().len() {
        assert!(Entry::parse(&entry.as_bytes()[..cut]).is_err());
    }
}
