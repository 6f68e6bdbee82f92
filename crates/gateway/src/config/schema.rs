//! JSON Schema of configuration files (draft 2020-12). Editors complete and check files with it.
//!
//! The service's settings come from the table [`SERVICE_SETTINGS`], and the other tables from the
//! documentation of their structures. The schema checks types, names and ranges. It does not check
//! rules that concern several keys, as [`Config::validate`](super::Config::validate) does.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::{
    BanConfig, GatewayConfig, OverrideConfig, SERVICE_SETTINGS, ServiceSetting, SettingKind,
    SettingValue,
};

/// Pattern of a duration, as [`parse_duration`](crate::parse_duration) reads it.
const DURATION: &str = r"^\s*(0|([0-9]+(\.[0-9]+)?\s*(ms|us|µs|ns|s|sec|m|min|h|d)\s*)+)\s*$";
/// Pattern of a rate of packets or connections, as [`Rate`](crate::Rate) is parsed.
const RATE: &str = r"^\s*(off|0|[0-9_]+\s*[kKMG]?\s*/\s*(s|sec|second|m|min|minute|h|hour)(\s*burst\s*[0-9_]+\s*[kKMG]?)?)\s*$";
/// Pattern of a rate of bytes.
const BYTE_RATE: &str = r"^\s*(off|0|[0-9_]+\s*([kKMG]i?B?|B)?\s*/\s*(s|sec|second|m|min|minute|h|hour)(\s*burst\s*[0-9_]+\s*([kKMG]i?B?|B)?)?)\s*$";
/// Pattern of a list's entry: an address or a prefix.
const PREFIX: &str = r"^\s*[0-9a-fA-F:.]+(/[0-9]{1,3})?\s*$";

/// Types whose text forms have patterns, for fields whose Rust types are those of the program.
pub(super) mod text {
    use super::{BYTE_RATE, DURATION, JsonSchema, PREFIX, RATE, SchemaGenerator, Value, json};
    use schemars::Schema;
    use std::borrow::Cow;

    macro_rules! text {
        ($name:ident, $schema:expr) => {
            pub(crate) struct $name;

            impl JsonSchema for $name {
                fn inline_schema() -> bool {
                    true
                }
                fn schema_name() -> Cow<'static, str> {
                    stringify!($name).into()
                }
                fn json_schema(_: &mut SchemaGenerator) -> Schema {
                    let schema: Value = $schema;
                    schema.try_into().unwrap_or_default()
                }
            }
        };
    }

    text!(Duration, json!({ "type": "string", "pattern": DURATION }));
    text!(Rate, json!({ "type": "string", "pattern": RATE }));
    text!(ByteRate, json!({ "type": "string", "pattern": BYTE_RATE }));
    text!(Prefix, json!({ "type": "string", "pattern": PREFIX }));
    text!(Reason, {
        let names: Vec<&str> = crate::Reason::all().map(crate::Reason::name).collect();
        json!({ "enum": names })
    });
    text!(Mode, json!({ "enum": super::super::Mode::NAMES }));
    text!(Proof, json!({ "enum": super::super::Proof::NAMES }));
}

/// Returns the JSON Schema of configuration files.
pub fn config_schema() -> Value {
    let mut generator = SchemaSettings::draft2020_12()
        .with(|settings| settings.inline_subschemas = true)
        .into_generator();
    let gateway = of::<GatewayConfig>(&mut generator);
    let ban = of::<BanConfig>(&mut generator);
    let overrides = of::<OverrideConfig>(&mut generator);
    let prefixes = |what: &str| json!({ "type": "array", "items": { "type": "string", "pattern": PREFIX }, "description": what });
    let files =
        |what: &str| json!({ "type": "array", "items": { "type": "string" }, "description": what });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of an eQUIC gateway",
        "type": "object",
        "additionalProperties": false,
        "required": ["service"],
        "properties": {
            "deny": prefixes("Prefixes whose packets are dropped."),
            "allow": prefixes("Prefixes that are exempt from quotas and rates."),
            "deny_files": files("Files with more prefixes to drop, one per line."),
            "allow_files": files("Files with more prefixes that are exempt, one per line."),
            "gateway": gateway,
            "ban": ban,
            "service": { "type": "array", "minItems": 1, "items": service(&overrides) },
        },
    })
}

fn of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
    T::json_schema(generator).to_value()
}

fn service(overrides: &Value) -> Value {
    let mut properties = Map::new();
    let name = "^[A-Za-z0-9_-]{1,31}$";
    properties.insert("name".to_owned(), json!({ "type": "string", "pattern": name, "description": "The service's name in settings and reports." }));
    properties.insert("listen".to_owned(), json!({ "type": "array", "minItems": 1, "items": { "type": ["string", "integer"] }, "description": "Ports, or addresses and ports, that the service listens at." }));
    for setting in SERVICE_SETTINGS {
        properties.insert(setting.name.to_owned(), property(setting));
    }
    properties.insert("group".to_owned(), json!({ "type": "string", "pattern": name, "description": "Services of the same group count a source's connections together." }));
    properties.insert("users".to_owned(), json!({ "type": "array", "items": { "type": "string" }, "description": "Users whose servers may join the service at the gateway's socket. Empty: every user that may connect." }));
    properties.insert("override".to_owned(), json!({ "type": "array", "items": overrides, "description": "Other limits for the sources in some prefixes." }));
    json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["name", "listen"],
        "properties": properties,
    })
}

fn property(setting: &ServiceSetting) -> Value {
    let mut schema = match setting.kind {
        SettingKind::Flag => json!({ "type": "boolean" }),
        SettingKind::Number => json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX }),
        SettingKind::Rate | SettingKind::Threshold => {
            json!({ "type": "string", "pattern": RATE })
        }
        SettingKind::ByteRate => json!({ "type": "string", "pattern": BYTE_RATE }),
        SettingKind::Duration => json!({ "type": "string", "pattern": DURATION }),
        names => json!({ "enum": names.names() }),
    };
    schema["default"] = match setting.default_value() {
        SettingValue::Flag(on) => on.into(),
        SettingValue::Number(number) => number.into(),
        text => text.to_string().into(),
    };
    let mut effect = setting.effect.split_whitespace().collect::<Vec<_>>().join(" ");
    let range = setting.range.to_string();
    if !range.is_empty() {
        effect += &format!(" Allowed: {range}.");
    }
    schema["description"] = effect.into();
    schema
}
