//! Tests of the arguments of the program for `make bench-floor`.

#[path = "../../benches/floor/options.rs"]
mod options;

use options::Options;

fn parse(words: &[&str]) -> Result<Options, String> {
    Options::parse(words.iter().map(|word| (*word).to_owned())).map_err(|error| error.to_string())
}

#[test]
fn floor_arguments_are_read() {
    let options = parse(&["--bench", "--rounds", "3", "--markdown"]).unwrap();
    assert_eq!((options.rounds, options.markdown, options.veth), (3, true, None));
    for (words, wanted) in [
        (&["--rounds", "0"][..], "--rounds needs a number above 0"),
        (&["--veth", "one"], "--veth needs the names of two namespaces"),
        (&["--quick"], "unknown argument: --quick"),
    ] {
        assert_eq!(parse(words).err().as_deref(), Some(wanted));
    }
}

/// The error names the missing namespace, and explains how to create both.
#[test]
fn floor_namespace_that_does_not_exist_is_named() {
    for names in [["equic-floor-nowhere", "other"], ["", "equic-floor-nowhere"]] {
        let error = parse(&["--veth", names[0], names[1]]).err().unwrap();
        let wanted = format!("no network namespace {:?}", names[0]);
        assert!(error.contains(&wanted), "{error}");
        assert!(error.contains("ip netns add") && error.contains("bench-floor.sh"), "{error}");
    }
}
