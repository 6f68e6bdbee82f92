//! Tests of `equic plugin` as a plugin's author uses it: an empty folder, mistakes in the manifest,
//! the tables of operations, the SDK.

use std::path::Path;
use std::process::Command;

use crate::common::{EQUIC, Out, ROOT, equic, finish};
use serde_json::Value;

fn text(path: &Path) -> &str {
    path.to_str().expect("the path is UTF-8")
}

/// Runs `equic` in a folder.
fn within(folder: &Path, args: &[&str]) -> Out {
    let mut command = Command::new(EQUIC);
    command.current_dir(folder).args(args);
    finish(command)
}

#[test]
fn plugin_new_accepts_an_empty_folder() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().join("seldom");
    std::fs::create_dir(&here).unwrap();
    within(&here, &["plugin", "new", "."]).ok();
    within(&here, &["plugin", "build"]).ok();
    within(&here, &["plugin", "check", "seldom.qplug", "--proof-limit", "0s"]).ok();
    // Create a plugin by its path, with parent folders that do not exist yet.
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    equic(&["plugin", "new", text(&empty)]).ok();
    within(folder.path(), &["plugin", "new", "a/b/deep"]).ok();
    assert!(folder.path().join("a/b/deep/deep.c").exists());
    // The name of this folder is not a valid name of a plugin.
    let odd = folder.path().join("My Plugin");
    std::fs::create_dir(&odd).unwrap();
    let refused = within(&odd, &["plugin", "new", "."]);
    assert!(refused.code == Some(2) && refused.stderr.contains("--name"), "{refused:?}");
    assert_eq!(std::fs::read_dir(&odd).unwrap().count(), 0, "nothing was written");
    within(&odd, &["plugin", "new", ".", "--name", "mine"]).ok();
    within(&odd, &["plugin", "build"]).ok();
}

#[test]
fn plugin_new_overwrites_no_file() {
    let folder = tempfile::tempdir().unwrap();
    for kept in ["plugin.toml", "equic_plugin.h", "mine.c"] {
        let here = folder.path().join(kept.replace('.', "-"));
        std::fs::create_dir(&here).unwrap();
        std::fs::write(here.join(kept), "kept").unwrap();
        let refused = within(&here, &["plugin", "new", ".", "--name", "mine"]);
        assert!(refused.code == Some(1) && refused.stderr.contains(kept), "{refused:?}");
        assert_eq!(std::fs::read(here.join(kept)).unwrap(), b"kept");
        assert_eq!(std::fs::read_dir(&here).unwrap().count(), 1, "nothing was written");
    }
}

/// Runs `plugin new`, changes the manifest, and returns the output of `plugin build`.
fn built(change: impl Fn(&str) -> String) -> Out {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().join("seldom");
    equic(&["plugin", "new", text(&here)]).ok();
    let manifest = here.join("plugin.toml");
    let changed = change(&std::fs::read_to_string(&manifest).unwrap());
    std::fs::write(&manifest, changed).unwrap();
    equic(&["plugin", "build", text(&here)])
}

#[test]
fn manifest_errors_have_line_and_column() {
    let refused = |change: &dyn Fn(&str) -> String, wanted: &str| {
        let out = built(change);
        assert!(out.code == Some(1) && out.stderr.contains(wanted), "{wanted}: {out:?}");
    };
    // Line numbers in errors must be those of the author's file. The packer adds a line in front of
    // it, which must not count.
    refused(&|text| text.replace("abi = 2", "abi = = 2"), "line 4, column 7: ");
    refused(&|text| text.replace("abi = 2", "abi = \"2\""), "line 4, column 7: ");
    refused(&|text| text.replace("version", "Version"), "unknown field `Version`");
    refused(&|text| text.replace("version", "Version"), "line 2, column 1: ");
    refused(
        &|text| text.replace("anchor = \"replace\"", "anchor = \"instead\""),
        "line 12, column 10: ",
    );
    refused(&|text| format!("{text}\nx = \"\u{e9}\u{e9}\" y"), "line 15, column 10: ");
}

#[test]
fn build_names_what_is_not_declared() {
    let refused = |change: &dyn Fn(&str) -> String, wanted: &[&str]| {
        let out = built(change);
        let named = wanted.iter().all(|words| out.stderr.contains(words));
        assert!(out.code == Some(1) && named, "{wanted:?}: {out:?}");
    };
    let read = ["`policy` reads the field SmoothedRtt", "`reads` in the manifest"];
    refused(&|text| text.replace("reads = [\"SmoothedRtt\"]", ""), &read);
    refused(&|text| text.replace("SmoothedRtt", "MinRtt"), &read);
    refused(&|text| text.replace("abi = 2", "abi = 3"), &["ABI 3"]);
    refused(&|text| text.replace("AckPolicy", "AckPolicies"), &["AckPolicies"]);
    refused(
        &|text| text.replace("AckPolicy", "IdleTimeout"),
        &["IdleTimeout", "not available to plugins"],
    );
    refused(&|text| text.replace(", \"tune\"", ""), &["`tune`", "`capabilities`"]);
    let twice = |text: &str| {
        let (_, operation) = text.split_once("[[operations]]").unwrap();
        format!("{text}\n[[operations]]{operation}")
    };
    refused(&twice, &["the same entry twice: AckPolicy"]);
}

/// Some mistakes are only found when the finished bundle is checked: functions that set fields,
/// queue frames or call other operations without a declaration.
#[test]
fn check_names_undeclared_helpers_of_a_bundle() {
    let folder = tempfile::tempdir().unwrap();
    let head = "name = \"p\"\nversion = \"1.0.0\"\nauthor = \"A\"\nabi = 2\nsteps = 1000\n";
    let attached =
        "[[operations]]\noperation = \"AckPolicy\"\nanchor = \"replace\"\nfunction = \"f\"\n";
    let frame = "[[frames]]\ntype = 0x1f00\nack-eliciting = true\n[[operations]]\noperation = \"ParseFrame\"\n\
        anchor = \"replace\"\nfunction = \"f\"\nframe = 0x1f00\n";
    let check = |body: &str, declared: &str, more: &str| {
        let source =
            format!("#include <equic_plugin.h>\nequic_u64 f(void) {{ {body}; return 0; }}");
        let object = equic_plugin_kit::compile_text("p", &source).unwrap();
        let manifest = format!("{head}{declared}{attached}{more}");
        let bundle = equic_plugin::pack(&manifest, &object, None).unwrap();
        let file = folder.path().join("p.qplug");
        std::fs::write(&file, bundle).unwrap();
        equic(&["plugin", "check", text(&file), "--proof-limit", "0s"])
    };
    let tune = "capabilities = [\"observe\", \"tune\"]\n";
    let frames = "capabilities = [\"observe\", \"tune\", \"frames\"]\n";
    let window = "sets = [\"CongestionWindow\"]\n";
    let set = "equic_set(EQUIC_CONGESTION_WINDOW, 30000)";
    let cases = [
        (set, tune.to_owned(), "", "CongestionWindow"),
        ("equic_set(EQUIC_SMOOTHED_RTT, 1)", format!("{tune}{window}"), "", "SmoothedRtt"),
        ("equic_get(15)", format!("{tune}reads = [\"MinRtt\"]\n"), "", "field 15"),
        (
            "equic_get_of(EQUIC_PATH_COST, 1)",
            format!("{tune}reads = [\"MinRtt\"]\n"),
            "",
            "PathCost",
        ),
        ("equic_queue_frame(0x1f00, 0)", tune.to_owned(), "", "`frames`"),
        ("equic_queue_frame(0x1f01, 0)", frames.to_owned(), frame, "0x1f01"),
        ("equic_u64 w[2] = {0, 0}; equic_call(0, w, 16)", tune.to_owned(), "", "`calls`"),
    ];
    for (body, declared, more, wanted) in cases {
        let out = check(body, &declared, more);
        let named = out.stderr.contains(wanted) && out.stderr.contains("`f` ");
        assert!(out.code == Some(1) && named, "{body}: {out:?}");
    }
    check(set, &format!("{tune}{window}"), "").ok();
    check("equic_queue_frame(0x1f00, 0)", frames, frame).ok();
}

/// A policy without its own limits would refuse this plugin from a peer, so `check` must warn the
/// author.
#[test]
fn check_warns_of_the_default_limits() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().join("large");
    equic(&["plugin", "new", text(&here)]).ok();
    let manifest = here.join("plugin.toml");
    let changed = std::fs::read_to_string(&manifest).unwrap();
    let changed = changed.replace("memory = 16384", "memory = 1048576");
    std::fs::write(&manifest, changed.replace("steps = 1000", "steps = 200000")).unwrap();
    equic(&["plugin", "build", text(&here)]).ok();
    let bundle = here.join("large.qplug");
    let check = ["plugin", "check", text(&bundle), "--proof-limit", "0s"];
    let out = equic(&check);
    assert_eq!(out.code, Some(0), "{out:?}");
    for words in ["`memory` is 1048576", "65536", "`steps` is 200000"] {
        assert!(out.stderr.contains(words), "{words}: {out:?}");
    }
    let policy = here.join("policy.toml");
    std::fs::write(&policy, "anyone = [\"observe\", \"tune\"]").unwrap();
    let refused = equic(&[&check[..], &["--policy", text(&policy)]].concat());
    assert_eq!(refused.code, Some(1), "{refused:?}");
}

/// The tables that the command prints must be those that manifests are checked against.
#[test]
fn operations_list_the_tables_of_the_transport() {
    use equic_transport::operation::{Field, Operation};
    let all = equic(&["plugin", "operations", "--json"]).json();
    assert_eq!(all["schema"], "equic.plugin.operations/1");
    let names = |key: &str| -> Vec<String> {
        let rows = all[key].as_array().unwrap();
        rows.iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
    };
    let operations = Operation::ALL.iter().map(|one| one.describe().name);
    assert!(operations.eq(names("operations")));
    assert!(Field::ALL.iter().map(|field| format!("{field:?}")).eq(names("fields")));
    let shown = equic(&["plugin", "operations", "ackpolicy"]).ok();
    for words in ["AckPolicy (RFC 9000", "replace tune, before observe", "out.max_delay: "] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let one = equic(&["plugin", "operations", "SmoothedRtt", "--json"]).json();
    assert_eq!(
        (&one["operations"], &one["fields"][0]["set"]),
        (&Value::Array(vec![]), &"raise".into())
    );
    let table = equic(&["plugin", "operations"]).ok();
    assert!(table.contains("\nPacingRate ") && table.contains("\nMinRtt "), "{table}");
    assert!(!table.contains("\nReadParameters "), "no plugin is attached there");
    let unknown = equic(&["plugin", "operations", "AckPolice"]);
    assert!(unknown.code == Some(1) && unknown.stderr.contains("AckPolicy"), "{unknown:?}");
}

/// Tests the SDK's memory functions for both instruction sets. They are compiled in two ways: by
/// `plugin build`, and with the command in the SDK's header.
#[test]
fn sdk_memory_functions_work() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().join("memory");
    equic(&["plugin", "new", text(&here)]).ok();
    let source = r#"#include <equic_plugin.h>
struct big { equic_u8 bytes[3000]; };
static struct big one, other;
static equic_u8 line[64];

equic_u64 policy(void)
{
	equic_u64 wrong = 0;

	memset(&one, 7, sizeof(one));
	memcpy(&other, &one, sizeof(one));
	wrong += memcmp(&one, &other, sizeof(one)) != 0;
	other.bytes[2999] = 8;
	wrong += memcmp(&one, &other, sizeof(one)) >= 0;
	wrong += memcmp(&other, &one, sizeof(one)) <= 0;
	wrong += memcmp(&other, &one, 2999) != 0;
	for (int i = 0; i < 64; i++)
		line[i] = i;
	memmove(line + 1, line, 40);
	wrong += line[0] != 0 || line[1] != 0 || line[40] != 39 || line[41] != 41;
	memmove(line, line + 1, 40);
	wrong += line[0] != 0 || line[39] != 39;
	equic_log("wrong", 5, wrong);
	return EQUIC_DEFAULT;
}
"#;
    std::fs::write(here.join("memory.c"), source).unwrap();
    let manifest = here.join("plugin.toml");
    let changed = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, changed.replace("steps = 1000", "steps = 1000000")).unwrap();
    let bundle = here.join("memory.qplug");
    let right = || {
        let run = equic(&["plugin", "run", text(&bundle), "--calls", "1000000"]).ok();
        let logged: Vec<&str> = run.lines().filter(|line| line.contains("log: wrong")).collect();
        assert!(
            !logged.is_empty() && logged.iter().all(|line| line.ends_with(": 0")),
            "{logged:?}"
        );
    };
    for cpu in ["v3", "v4"] {
        equic(&["plugin", "build", text(&here), "--cpu", cpu]).ok();
        right();
    }
    // The author may also call the compiler with other options.
    for more in ["-O1", "-O2", "-Os"] {
        let object = here.join("memory.o");
        let include = format!("{ROOT}/plugins/sdk");
        let options =
            [more.to_owned(), "-fbuiltin".to_owned(), "-fasynchronous-unwind-tables".to_owned()];
        equic_plugin_kit::compile_with(
            &here.join("memory.c"),
            &object,
            Path::new(&include),
            &options,
        )
        .unwrap();
        equic(&["plugin", "pack", text(&manifest), text(&object), "-o", text(&bundle)]).ok();
        right();
    }
}
