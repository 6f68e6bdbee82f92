//! Tests of wrong usage: the exit code and the error message.

use crate::common::equic_lab;

const USAGE: i32 = 2;
const FAILED: i32 = 1;

/// The arguments, the expected exit code, and a text that standard error must contain.
type Case<'a> = (&'a [&'a str], i32, &'a str);

fn check(cases: &[Case<'_>]) {
    let mut wrong = Vec::new();
    for (args, code, part) in cases {
        let out = equic_lab(args);
        let right = out.code == Some(*code)
            && out.stderr.starts_with("equic-lab: ")
            && out.stderr.contains(part)
            && out.stdout.is_empty();
        if !right {
            wrong.push(format!("{args:?}: {code} and `{part}` expected, this came: {out:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn usage_that_is_wrong_is_explained() {
    check(&[
        (&["frobnicate"], USAGE, "unrecognized subcommand 'frobnicate'"),
        (&["net", "flood", "initial", "--target", "10.77.0.1:443"], USAGE, "--duration"),
        (&["net", "exec", "server"], USAGE, "<CMD>"),
        (&["net", "up", "x", "--client-prefix", "10.0.0.0/8"], USAGE, "0=10.77.200.0/24"),
    ]);
}

#[test]
fn failure_of_the_laboratory_names_its_cause() {
    check(&[
        (&["net", "down", "no-such-lab"], FAILED, "no lab `no-such-lab`"),
        (
            &["net", "exec", "no-such-host", "--", "true"],
            FAILED,
            "no lab has a host `no-such-host`",
        ),
        (
            &["net", "flood", "garbage", "--target", "10.77.0.1:443", "--duration", "1s"],
            FAILED,
            "refused: this thread",
        ),
        (
            &["net", "flood", "garbage", "--target", "10.77.0.1:443", "--duration", "1s"],
            FAILED,
            "`sudo equic-lab net up NAME`",
        ),
        (
            &["net", "load", "well", "https://[::1]:1/", "--clients", "0"],
            FAILED,
            "at least one of: clients",
        ),
    ]);
}
