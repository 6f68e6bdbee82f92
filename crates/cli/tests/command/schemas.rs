//! Tests of the JSON Schemas of TOML files: they accept what the documentation and this repository
//! contain, and reject what the parsers reject.

use std::collections::BTreeMap;
use std::path::Path;

use jsonschema::Validator;
use serde_json::Value;

use crate::common::{ROOT, equic};
use crate::doc_toml::{Kind, blocks, files_below, kind, pages, read, whole};

/// Returns the JSON Schema of files of this kind, if there is one.
fn schema(kind: Kind) -> Option<Value> {
    match kind {
        Kind::Gateway => Some(equic_gateway::config_schema()),
        Kind::Grid => Some(equic_scenario::grid_schema()),
        Kind::Manifest => Some(equic_plugin::manifest_schema()),
        Kind::Policy => Some(equic_plugin::policy_schema()),
        Kind::Rules => None,
        Kind::Scenario => Some(equic_scenario::schema()),
    }
}

/// The schemas of all kinds of files.
struct Schemas(BTreeMap<Kind, Validator>);

impl Schemas {
    fn new() -> Schemas {
        use Kind::{Gateway, Grid, Manifest, Policy, Rules, Scenario};
        let compiled = |kind| {
            let schema = schema(kind)?;
            jsonschema::draft202012::meta::validate(&schema)
                .unwrap_or_else(|error| panic!("{kind:?}: {}: {error}", error.instance_path()));
            let validator = jsonschema::draft202012::new(&schema);
            Some((kind, validator.unwrap_or_else(|error| panic!("{kind:?}: {error}"))))
        };
        let all = [Gateway, Grid, Manifest, Policy, Rules, Scenario];
        Schemas(all.into_iter().filter_map(compiled).collect())
    }

    /// Checks a text against the schema of its kind. Accepts it if the kind has no schema.
    fn check(&self, kind: Kind, text: &str) -> Result<(), String> {
        let Some(schema) = self.0.get(&kind) else { return Ok(()) };
        let values: Value = toml::from_str(text).map_err(|error| error.to_string())?;
        let errors: Vec<String> = (schema.iter_errors(&values))
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        if errors.is_empty() { Ok(()) } else { Err(errors.join("; ")) }
    }
}

#[test]
fn schemas_accept_the_toml_blocks_of_the_documentation() {
    let (schemas, mut checked, mut wrong) = (Schemas::new(), Vec::new(), Vec::new());
    for page in pages() {
        for (line, text) in blocks(&page) {
            let Some(kind) = kind(&text) else { continue };
            checked.push(kind);
            if let Err(error) = schemas.check(kind, &whole(kind, &text)) {
                wrong.push(format!("{}:{line}: {kind:?}: {error}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(schemas.0.keys().all(|kind| checked.contains(kind)), "{checked:?}");
}

#[test]
fn schemas_accept_the_toml_files_of_the_repository() {
    let schemas = Schemas::new();
    let (mut checked, mut wrong) = (Vec::new(), Vec::new());
    for folder in ["docs", "lab/results", "packaging", "plugins", "lab/scenario/src/builtin"] {
        for file in files_below(folder, "toml") {
            // scripts/compliance.py reads these files, and checks them.
            if file.to_string_lossy().contains("/docs/compliance/") {
                continue;
            }
            let text = std::fs::read_to_string(&file).unwrap();
            let Some(kind) = kind(&text) else {
                wrong.push(format!("{}: nothing reads it", file.display()));
                continue;
            };
            checked.push(kind);
            if let Err(error) = schemas.check(kind, &text) {
                wrong.push(format!("{}: {kind:?}: {error}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for kind in [Kind::Grid, Kind::Manifest, Kind::Scenario] {
        assert!(checked.contains(&kind), "{kind:?}");
    }
    for scenario in equic_scenario::built_in() {
        schemas.check(Kind::Scenario, scenario.text).unwrap();
    }
    let template = include_str!("../../src/plugin/template.toml").replace("NAME", "mine");
    schemas.check(Kind::Manifest, &template).unwrap();
}

const SCENARIO: &str = r#"
[network]
topology = "simple"
[network.link]
rate = "10 Mb/s"
delay = "50 ms"
loss = "1 %"
queue = "100 packets"
mtu = 1500
[[flow]]
size = "1 MB"
controller = "cubic"
quic = { paths = 1, ecn = true }
"#;

const GRID: &str = r#"
[grid]
"network.link.rate" = ["1 Mb/s", "2 Mb/s"]
"network.link.mtu" = [1300, 1500]
arm = [{ name = "cubic", "flow.controller" = "cubic" }, { name = "bbr", "flow.1.controller" = "bbr" }]
"#;

const MANIFEST: &str = r#"
code = "sha256:..."
name = "cap"
version = "1.0.0"
author = "Ann"
abi = 2
memory = 16384
steps = 1000
expires = "2030-01-01T00:00:00Z"
capabilities = ["observe", "tune"]
reads = ["SmoothedRtt"]
sets = ["CongestionWindow"]
[[operations]]
operation = "UpdateRtt"
anchor = "after"
function = "f"
[[calls]]
operation = "model.rate"
inputs = 0
outputs = 2
"#;

const POLICY: &str = r#"
anyone = ["observe"]
withdrawn = ["sha256:..."]
max_age = "90d"
[limits]
steps = 5
[[log]]
name = "log"
key = "ed25519:..."
since = "2026-01-31T00:00:00Z"
[[author]]
name = "ann"
key = "ed25519:..."
classes = ["raise"]
log = "log"
"#;

/// Changes of a text: the old and the new words.
type Changes = &'static [(&'static str, &'static str)];

/// A configuration of a gateway without mistakes.
const GATEWAY: &str = r#"
[gateway]
mode = "native"

[ban]
reasons = ["quota"]
times = 5

[[service]]
name = "web"
listen = ["443"]
policy = "underway"
max_connections = 100
new_per_source = "20/s burst 40"
handshake_timeout = "3s"
check_ids = true

[[service.override]]
prefixes = ["203.0.113.0/24"]
max_connections = 500
"#;

/// Changes of the texts above. The parser and the schema must both reject each result.
const MISTAKES: [(Kind, &str, Changes); 5] = [
    (
        Kind::Gateway,
        GATEWAY,
        &[
            // Unknown keys.
            ("policy =", "polcy ="),
            ("mode =", "mod ="),
            ("times =", "time ="),
            ("prefixes =", "prefix ="),
            // Missing keys.
            ("listen = [\"443\"]", ""),
            // Wrong types and names.
            ("\"underway\"", "\"soft\""),
            ("\"native\"", "\"fast\""),
            ("[\"quota\"]", "[\"quotas\"]"),
            ("max_connections = 100", "max_connections = \"100\""),
            ("max_connections = 100", "max_connections = -1"),
            ("max_connections = 100", "max_connections = 4294967296"),
            ("check_ids = true", "check_ids = 1"),
            ("listen = [\"443\"]", "listen = 443"),
            ("[[service]]", "[service]"),
            // Bad quantities.
            ("20/s burst 40", "20"),
            ("20/s burst 40", "20/d"),
            ("20/s burst 40", "1.5/s"),
            ("\"3s\"", "\"3\""),
            ("\"3s\"", "3"),
            ("\"203.0.113.0/24\"", "\"example.com\""),
        ],
    ),
    (
        Kind::Scenario,
        SCENARIO,
        &[
            // Unknown keys.
            ("delay =", "dealy ="),
            ("[network]", "sedes = 3\n[network]"),
            ("ecn = true", "enc = true"),
            // Missing keys.
            ("topology = \"simple\"", ""),
            ("[[flow]]", "[[traffic]]\nkind = \"on-off\"\n[[flow]]"),
            // Wrong types.
            ("ecn = true", "ecn = 1"),
            ("\"50 ms\"", "50"),
            ("mtu = 1500", "mtu = \"1500\""),
            ("[[flow]]", "[flow]"),
            ("loss = \"1 %\"", "loss = 0.01"),
            ("loss = \"1 %\"", "loss = { packets = 3 }"),
            ("[network]", "seeds = \"3\"\n[network]"),
            // Bad units, and quantities that are written in another way.
            ("10 Mb/s", "10 mb/s"),
            ("10 Mb/s", "10"),
            ("10 Mb/s", "1e1 Mb/s"),
            ("10 Mb/s", ".5 Mb/s"),
            ("50 ms", "50 Ms"),
            ("50 ms", "-50 ms"),
            ("1 MB", "1 Mb"),
            ("1 MB", "1. MB"),
            ("1 %", "101 %"),
            ("1 %", "100.5 %"),
            ("1 %", "1"),
            ("100 packets", "100 paquets"),
            ("100 packets", "1.5 packets"),
            // Values out of range, and unknown names.
            ("mtu = 1500", "mtu = 65536"),
            ("paths = 1", "paths = 3"),
            ("\"cubic\"", "\"cubik\""),
            ("[network]", "seeds = 0\n[network]"),
            ("loss = \"1 %\"", "loss = { to_bad = 1.5 }"),
            ("size =", "name = \"\"\nsize ="),
        ],
    ),
    (
        Kind::Grid,
        GRID,
        &[
            ("network.link.rate", "network.link.rat"),
            ("flow.1.controller", "flow.1.controler"),
            ("\"2 Mb/s\"", "\"2 mb/s\""),
            ("[1300, 1500]", "[\"1300\", 1500]"),
            ("[1300, 1500]", "1500"),
            ("[1300, 1500]", "[]"),
            ("name = \"cubic\", ", ""),
            ("\"flow.controller\" = \"cubic\"", "\"flow.controller\" = \"cubik\""),
            ("[grid]", "[gird]"),
        ],
    ),
    (
        Kind::Manifest,
        MANIFEST,
        &[
            ("steps =", "setps ="),
            ("steps = 1000", "steps = \"1000\""),
            ("steps = 1000", ""),
            ("steps = 1000", "steps = 0"),
            ("memory = 16384", "memory = 16385"),
            ("name = \"cap\"", "name = \"Cap\""),
            ("\"1.0.0\"", "\"1.0\""),
            ("01-01T", "01-01 "),
            ("\"tune\"", "\"never\""),
            ("\"tune\"", "\"tunes\""),
            ("\"tune\"", "\"observe\""),
            ("\"SmoothedRtt\"", "\"SmoothRtt\""),
            ("\"CongestionWindow\"", "\"BytesInFlight\""),
            ("\"UpdateRtt\"", "\"UpdateRTT\""),
            ("\"after\"", "\"behind\""),
            ("function =", "funktion ="),
            ("\"model.rate\"", "\"rate\""),
            ("outputs = 2", "outputs = 9"),
        ],
    ),
    (
        Kind::Policy,
        POLICY,
        &[
            ("max_age =", "maxage ="),
            ("90d", "90q"),
            ("90d", "d"),
            ("anyone = [\"observe\"]", "anyone = \"observe\""),
            ("anyone = [\"observe\"]", "anyone = [\"raise\"]"),
            ("[\"raise\"]", "[\"payload\"]"),
            ("steps = 5", "steps = \"5\""),
            ("steps = 5", "stebs = 5"),
            ("name = \"ann\"", ""),
            ("sha256:", "sha1:"),
            ("ed25519:", "rsa:"),
            ("01-31T", "01-31 "),
        ],
    ),
];

#[test]
fn schemas_reject_what_the_parsers_reject() {
    let (schemas, folder) = (Schemas::new(), Path::new(ROOT));
    for (kind, good, changes) in MISTAKES {
        read(kind, good, folder).unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        schemas.check(kind, &whole(kind, good)).unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        for (old, new) in changes {
            assert!(good.contains(old), "{kind:?}: {old}");
            let bad = good.replacen(old, new, 1);
            assert!(read(kind, &bad, folder).is_err(), "{kind:?}, parser: {old} -> {new}");
            let checked = schemas.check(kind, &whole(kind, &bad));
            assert!(checked.is_err(), "{kind:?}, schema: {old} -> {new}");
        }
    }
}

/// Quantities that the parser accepts in several forms.
#[test]
fn schemas_accept_every_form_of_a_quantity() {
    let schemas = Schemas::new();
    for (old, new) in [
        ("10 Mb/s", " 1.50Gbit/s "),
        ("10 Mb/s", "99 b/s"),
        ("50 ms", "0.5µs"),
        ("50 ms", "1  min"),
        ("1 MB", "64KiB"),
        ("1 %", "100.00 %"),
        ("1 %", "007.5%"),
        ("\"1 %\"", "{ to_bad = 0.1, packets = [3] }"),
        ("100 packets", "1packet"),
        ("100 packets", "30 KB"),
        ("\"100 packets\"", "{ kind = \"codel\" }"),
    ] {
        assert!(SCENARIO.contains(old), "{old}");
        let text = SCENARIO.replacen(old, new, 1);
        read(Kind::Scenario, &text, Path::new(ROOT)).unwrap_or_else(|error| panic!("{error}"));
        schemas.check(Kind::Scenario, &text).unwrap_or_else(|error| panic!("{new}: {error}"));
    }
}

#[test]
fn schemas_are_printed_by_the_commands() {
    assert_eq!(equic(&["plugin", "build", "--schema"]).json(), equic_plugin::manifest_schema());
    assert_eq!(equic(&["plugin", "check", "--schema"]).json(), equic_plugin::policy_schema());
    let both = equic(&["plugin", "check", "--schema", "cap.qplug"]);
    assert_eq!(both.code, Some(2), "{both:?}");
    let neither = equic(&["plugin", "check"]);
    assert_eq!(neither.code, Some(2), "{neither:?}");
}
