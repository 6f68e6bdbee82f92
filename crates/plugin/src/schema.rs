//! JSON Schemas (draft 2020-12) of manifests and policies, for editors. The parsers check more than
//! a schema can express. In the structures of the parsers, an optional field with `schema_with` needs
//! `#[serde(default)]`. Without it, schemars would make the field required.

use equic_transport::operation::{Field, Operation};
use schemars::transform::{RecursiveTransform, Transform as _};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::class::{Class, Requires, class_of_setting};
use crate::manifest::{self, MAX_NAME, MEMORY};
use crate::policy;
use crate::sdk::plain;

/// Returns the JSON Schema of manifests. It does not require `code`, which `equic plugin build` and
/// `pack` add.
pub fn manifest_schema() -> Value {
    let mut schema = complete::<manifest::File>();
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.retain(|key| key != "code");
    }
    schema
}

/// Returns the JSON Schema of policies.
pub fn policy_schema() -> Value {
    complete::<policy::File>()
}

fn complete<T: JsonSchema>() -> Value {
    let mut schema = SchemaGenerator::default().into_root_schema_for::<T>();
    RecursiveTransform(without_null).transform(&mut schema);
    schema.to_value()
}

/// Removes `null`, which TOML does not have, from the types and defaults of a schema.
fn without_null(schema: &mut Schema) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    if schema.get("default") == Some(&Value::Null) {
        schema.remove("default");
    }
}

pub(crate) fn name(_: &mut SchemaGenerator) -> Schema {
    text(&format!("^[a-z0-9_.-]{{1,{MAX_NAME}}}$"))
}

pub(crate) fn c_name(_: &mut SchemaGenerator) -> Schema {
    text(&format!("^[A-Za-z0-9_]{{1,{MAX_NAME}}}$"))
}

pub(crate) fn called(_: &mut SchemaGenerator) -> Schema {
    text(&format!(r"^[a-z0-9_.-]{{1,{MAX_NAME}}}\.[A-Za-z0-9_]{{1,{MAX_NAME}}}$"))
}

pub(crate) fn version(_: &mut SchemaGenerator) -> Schema {
    let number = "(0|[1-9][0-9]{0,8})";
    text(&format!(r"^{number}\.{number}\.{number}$"))
}

pub(crate) fn hash(_: &mut SchemaGenerator) -> Schema {
    text("^sha256:[0-9a-f]{64}$")
}

pub(crate) fn hashes(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": hash(generator) })
}

pub(crate) fn key(_: &mut SchemaGenerator) -> Schema {
    text("^ed25519:[0-9a-f]{64}$")
}

pub(crate) fn time(_: &mut SchemaGenerator) -> Schema {
    text(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?Z$")
}

/// Returns the schema of durations as the crate humantime parses them, such as `90d` or `1h 30min`.
pub(crate) fn age(_: &mut SchemaGenerator) -> Schema {
    let units = "nanos|nsec|ns|usec|us|µs|millis|msec|ms|seconds|second|secs|sec|s|minutes|minute\
        |min|mins|m|hours|hour|hr|hrs|h|days|day|d|weeks|week|wk|wks|w|months|month|M\
        |years|year|yr|yrs|y";
    text(&format!(r"^\s*([0-9]+(\.[0-9]+)?\s*({units})\s*)+$"))
}

pub(crate) fn memory(_: &mut SchemaGenerator) -> Schema {
    let sizes = (0..u64::BITS).map(|bit| 1_u64 << bit).filter(|size| MEMORY.contains(size));
    json_schema!({ "type": "integer", "enum": sizes.collect::<Vec<_>>() })
}

pub(crate) fn operation(_: &mut SchemaGenerator) -> Schema {
    let all = Operation::ALL.iter().map(|one| one.describe());
    json_schema!({ "oneOf": constants(all.map(|one| (one.name.to_owned(), one.does))) })
}

pub(crate) fn readable(_: &mut SchemaGenerator) -> Schema {
    fields(|_| true)
}

pub(crate) fn settable(_: &mut SchemaGenerator) -> Schema {
    fields(|field| class_of_setting(field).is_some())
}

/// Returns the schema of the classes that a policy can grant to every plugin.
pub(crate) fn classes_of_anyone(_: &mut SchemaGenerator) -> Schema {
    classes(|class| class.requires() == Requires::Nothing)
}

/// Returns the schema of the classes that a policy can grant to an author.
pub(crate) fn classes_of_author(_: &mut SchemaGenerator) -> Schema {
    classes(|class| matches!(class.requires(), Requires::Nothing | Requires::Signature))
}

fn classes(can_be_granted: impl Fn(Class) -> bool) -> Schema {
    let all = Class::ALL.iter().filter(|class| can_be_granted(**class));
    let names: Vec<String> = all.map(Class::to_string).collect();
    json_schema!({ "type": "array", "items": { "type": "string", "enum": names } })
}

fn fields(can_be: impl Fn(Field) -> bool) -> Schema {
    let all = Field::ALL.iter().filter(|field| can_be(**field));
    let names = constants(all.map(|field| (format!("{field:?}"), field.describe())));
    json_schema!({ "type": "array", "items": { "oneOf": names }, "uniqueItems": true })
}

/// Returns a schema for each of these texts, with its description.
fn constants(all: impl Iterator<Item = (String, &'static str)>) -> Vec<Value> {
    let constant =
        |(name, meaning): (String, &str)| json!({ "const": name, "description": plain(meaning) });
    all.map(constant).collect()
}

fn text(pattern: &str) -> Schema {
    json_schema!({ "type": "string", "pattern": pattern })
}
