//! JSON Schemas (draft 2020-12) of scenario files and grids, for editors. They are generated from
//! the lists of keys. The parser checks more than a schema can express.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::keys::{Key, Section, TOP, Values, sections};
use crate::quantity;

/// Names, as a regular expression: no control characters and no quotes.
const NAME_PATTERN: &str = r#"^[^"\u0000-\u001f\u007f-\u009f]+$"#;

/// Keys without a default that only some tables of their kind must have. Each has the short name of
/// the kind of table.
const SOMETIMES_REQUIRED: [(&str, &str); 14] = [
    ("network", "link"),
    ("network", "links"),
    ("network", "node"),
    ("link", "rate"),
    ("link", "delay"),
    ("link", "from"),
    ("link", "to"),
    ("flow", "requests"),
    ("flow", "streams"),
    ("flow", "page"),
    ("flow", "video"),
    ("flow", "call"),
    ("traffic", "per_second"),
    ("traffic", "size"),
];

/// Returns the JSON Schema of scenario files.
pub fn schema() -> Value {
    let mut schema = table(&TOP, true);
    schema.insert("title".to_owned(), "Scenario of `equic-lab sim run`".into());
    complete(schema, definitions(true))
}

/// Returns the JSON Schema of grids, which `equic-lab sim sweep` runs. The table `[grid]` can
/// provide each key of the scenario, so no other key is required.
pub fn grid_schema() -> Value {
    let mut schema = table(&TOP, false);
    schema.insert("title".to_owned(), "Grid of `equic-lab sim sweep`".into());
    schema.insert("required".to_owned(), json!(["grid"]));
    let patterns = key_patterns();
    let axes: Map<String, Value> =
        patterns.iter().map(|(pattern, _, key)| (pattern.clone(), axis(key))).collect();
    let grid = json!({
        "description": "Keys that vary, each with a list of values. The sweep runs each combination of values.",
        "type": "object",
        "patternProperties": axes,
        "additionalProperties": list_of(&[reference("cell")]),
    });
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.insert("grid".to_owned(), grid);
    }
    let keys: Map<String, Value> = (patterns.into_iter())
        .map(|(pattern, place, _)| (pattern, json!({ "$ref": place })))
        .collect();
    let mut definitions = definitions(false);
    definitions.insert(
        "cell".to_owned(),
        json!({
            "description": "Keys that change together, with a name for this combination of values.",
            "type": "object",
            "properties": { "name": { "type": "string" } },
            "patternProperties": keys,
            "additionalProperties": false,
            "required": ["name"],
        }),
    );
    complete(schema, definitions)
}

fn complete(mut schema: Map<String, Value>, definitions: Map<String, Value>) -> Value {
    schema.insert("$schema".to_owned(), "https://json-schema.org/draft/2020-12/schema".into());
    schema.insert("$defs".to_owned(), definitions.into());
    schema.into()
}

/// Returns the schemas of all kinds of tables, by their short names.
fn definitions(with_required: bool) -> Map<String, Value> {
    let inner = sections().iter().filter(|section| section.id != TOP.id);
    inner.map(|one| (one.id.to_owned(), table(one, with_required).into())).collect()
}

fn table(section: &Section, with_required: bool) -> Map<String, Value> {
    let properties: Map<String, Value> =
        section.keys.iter().map(|key| (key.name.to_owned(), described(key))).collect();
    let mut schema = Map::new();
    let of = if section.id == TOP.id { "" } else { "of " };
    schema.insert("description".to_owned(), format!("Keys {of}{}.", section.name).into());
    schema.insert("type".to_owned(), "object".into());
    schema.insert("properties".to_owned(), properties.into());
    schema.insert("additionalProperties".to_owned(), false.into());
    let required: Vec<&str> = (section.keys.iter())
        .filter(|key| key.default.is_empty())
        .map(|key| key.name)
        .filter(|name| !SOMETIMES_REQUIRED.contains(&(section.id, name)))
        .collect();
    if with_required && !required.is_empty() {
        schema.insert("required".to_owned(), required.into());
    }
    schema
}

/// Returns the schema of a key's values, with the meaning and the default of the key.
fn described(key: &Key) -> Value {
    let mut schema = accepted(key.values);
    let mut letters = key.meaning.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    let mut text: String = first.chain(letters).collect();
    text.push('.');
    if !matches!(key.default, "" | "see below") {
        text += &format!(" Default: {}.", key.default);
    }
    schema["description"] = text.into();
    schema
}

fn reference(id: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{id}") })
}

fn accepted(values: Values) -> Value {
    let text = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    match values {
        Values::Text | Values::Path => json!({ "type": "string" }),
        Values::Name => json!({
            "type": "string",
            "minLength": 1,
            "maxLength": 100,
            "pattern": NAME_PATTERN,
        }),
        Values::Names | Values::Files => {
            json!({ "type": "array", "items": accepted(Values::Name) })
        }
        Values::Choice(choices) => json!({ "type": "string", "enum": choices }),
        Values::Boolean => json!({ "type": "boolean" }),
        Values::Whole(_, least, most) => {
            json!({ "type": "integer", "minimum": least, "maximum": most })
        }
        Values::Numbers => {
            json!({ "type": "array", "items": { "type": "integer", "minimum": 0 } })
        }
        Values::Number => json!({ "type": "number" }),
        Values::Probability => json!({ "type": "number", "minimum": 0, "maximum": 1 }),
        Values::Percentage => text(quantity::PERCENTAGE_PATTERN),
        Values::Packets => text(quantity::PACKETS_PATTERN),
        Values::Rate => text(&quantity::rate_pattern()),
        Values::Size => text(&quantity::size_pattern()),
        Values::Time => text(&quantity::time_pattern()),
        Values::Table(id) => reference(id),
        Values::Tables(id) => json!({ "type": "array", "items": reference(id) }),
        Values::AnyOf(kinds) => {
            json!({ "anyOf": kinds.iter().map(|kind| accepted(*kind)).collect::<Vec<_>>() })
        }
    }
}

/// Returns the schema of a list with at least one value, each of one of these kinds.
fn list_of(kinds: &[Value]) -> Value {
    json!({ "type": "array", "minItems": 1, "items": { "anyOf": kinds } })
}

/// Returns the schema of the values that `[grid]` can list for a key. A list cannot be such a value,
/// and a table is always a cell.
fn axis(key: &Key) -> Value {
    let kinds = match key.values {
        Values::AnyOf(kinds) => kinds,
        ref only => std::slice::from_ref(only),
    };
    let single = |kind: &&Values| {
        use Values::{Files, Names, Numbers, Table, Tables};
        !matches!(kind, Names | Files | Numbers | Table(_) | Tables(_))
    };
    let single = kinds.iter().filter(single).map(|kind| accepted(*kind));
    list_of(&single.chain([reference("cell")]).collect::<Vec<_>>())
}

/// For each key of a scenario, returns a regular expression and the place of its schema. The
/// expression matches the forms of the key in `[grid]`, such as `network.link.rate` or
/// `flow.2.size`.
fn key_patterns() -> Vec<(String, String, Key)> {
    let mut prefixes = BTreeMap::new();
    find_prefixes(&TOP, "", &mut Vec::new(), &mut prefixes);
    let mut patterns = Vec::new();
    for section in sections() {
        let prefixes = prefixes.get(section.id).map_or(String::new(), |all| all.join("|"));
        let place =
            if section.id == TOP.id { "#".to_owned() } else { format!("#/$defs/{}", section.id) };
        for key in section.keys {
            let pattern = format!("^({prefixes}){}$", key.name);
            patterns.push((pattern, format!("{place}/properties/{}", key.name), *key));
        }
    }
    patterns
}

/// Adds the key prefix of a table, and those of all tables inside it. `prefixes` has the prefixes
/// by the kind of table.
fn find_prefixes(
    section: &Section,
    prefix: &str,
    outer: &mut Vec<&'static str>,
    prefixes: &mut BTreeMap<&'static str, Vec<String>>,
) {
    prefixes.entry(section.id).or_default().push(prefix.to_owned());
    outer.push(section.id);
    for key in section.keys {
        let kinds = match &key.values {
            Values::AnyOf(kinds) => kinds,
            only => std::slice::from_ref(only),
        };
        for kind in kinds {
            let (id, number) = match kind {
                Values::Table(id) => (id, ""),
                // The number selects one table of the list.
                Values::Tables(id) => (id, r"(\.[0-9]+)?"),
                _ => continue,
            };
            // `back` of a link cannot have another `back`.
            let again = outer.iter().filter(|one| *one == id).count();
            let inner = sections().iter().find(|one| one.id == *id);
            if let Some(inner) = inner.filter(|_| again < 2) {
                let prefix = format!(r"{prefix}{}{number}\.", key.name);
                find_prefixes(inner, &prefix, outer, prefixes);
            }
        }
    }
    outer.pop();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schema_tables_are_known_and_used() {
        let mut prefixes = BTreeMap::new();
        find_prefixes(&TOP, "", &mut Vec::new(), &mut prefixes);
        let ids: Vec<&str> = sections().iter().map(|section| section.id).collect();
        for id in &ids {
            assert!(prefixes.contains_key(id), "{id}");
            assert_eq!(ids.iter().filter(|one| one == &id).count(), 1, "{id}");
        }
        for key in sections().iter().flat_map(|section| section.keys) {
            if let Values::Table(id) | Values::Tables(id) = key.values {
                assert!(ids.contains(&id), "{}: {id}", key.name);
            }
        }
    }

    #[test]
    fn schema_keys_that_are_sometimes_required_have_no_default() {
        for (id, name) in SOMETIMES_REQUIRED {
            let section = sections().iter().find(|section| section.id == id).unwrap();
            let key = section.keys.iter().find(|key| key.name == name);
            assert!(key.is_some_and(|key| key.default.is_empty()), "{id}.{name}");
        }
    }

    #[test]
    fn schema_patterns_of_grid_keys_are_paths() {
        let patterns = key_patterns();
        let of = |place: &str| {
            let found = patterns.iter().find(|(_, at, _)| at == place);
            found.map(|(pattern, ..)| pattern.as_str()).unwrap()
        };
        assert_eq!(of("#/properties/limit"), "^()limit$");
        assert_eq!(of("#/$defs/tls/properties/version"), r"^(flow(\.[0-9]+)?\.tcp\.tls\.)version$");
        let rate = of("#/$defs/link/properties/rate");
        assert!(rate.contains(r"|network\.links(\.[0-9]+)?\.back\.)"), "{rate}");
    }
}
