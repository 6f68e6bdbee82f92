//! `equic plugin operations`: lists the transport's operations and fields that plugins may use,
//! with the capability class that each needs.

use equic_plugin::{Anchor, Class, class_of, class_of_setting, plain};
use equic_transport::operation::{Description, Field, Operation, PayloadKind};
use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::output;

/// Schema of the output of `operations --json`.
const SCHEMA: &str = "equic.plugin.operations/1";

/// Lists the operations that plugins may be attached to, and the fields that they may read and set,
/// with the class that each needs. With NAME, shows one operation with its inputs and outputs, or
/// one field.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name of an operation or a field, such as AckPolicy or SmoothedRtt
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Print the list as JSON (schema equic.plugin.operations/1)
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Word {
    name: &'static str,
    meaning: String,
}

#[derive(Serialize)]
struct Listed {
    name: &'static str,
    /// Section of the RFC or draft that describes the default behaviour.
    section: &'static str,
    does: String,
    /// Kind of the operation's payload: `words`, `bytes`, `buffer` or `frame`.
    carries: &'static str,
    inputs: Vec<Word>,
    outputs: Vec<Word>,
    /// True if a manifest may set `default = true` for this operation.
    offers_default: bool,
    /// Class that a plugin needs to replace the operation, or `never` if it cannot. The following
    /// fields are the same for the other anchors, that is, the other ways to attach to an
    /// operation.
    replace: String,
    before: String,
    after: String,
}

#[derive(Serialize)]
struct ListedField {
    name: String,
    does: String,
    /// Class that a plugin needs to read the field.
    read: String,
    /// Class that a plugin needs to set the field, or `null` if it cannot be set.
    set: Option<String>,
}

#[derive(Serialize)]
struct Tables {
    operations: Vec<Listed>,
    fields: Vec<ListedField>,
}

fn words(names: &'static [&'static str], meanings: &[&str]) -> Vec<Word> {
    let word = |(name, meaning): (&&'static str, &&str)| {
        let meaning = meaning.split_once("`: ").map_or(*meaning, |(_, meaning)| meaning);
        Word { name, meaning: plain(meaning) }
    };
    names.iter().zip(meanings).map(word).collect()
}

fn carries(description: &Description) -> &'static str {
    match description.carries {
        PayloadKind::Words => "words",
        PayloadKind::Bytes => "bytes",
        PayloadKind::Buffer => "buffer",
        PayloadKind::Frame => "frame",
    }
}

fn listed(operation: Operation) -> Listed {
    let described = operation.describe();
    // Show the class for frame types that the plugin defines. For frame types of the transport, the
    // class is always `payload`.
    let class = |anchor| class_of(operation, anchor, true).to_string();
    Listed {
        name: described.name,
        section: described.section,
        does: plain(described.does),
        carries: carries(&described),
        inputs: words(described.inputs, described.input_meanings),
        outputs: words(described.outputs, described.output_meanings),
        offers_default: operation.offers_default(),
        replace: class(Anchor::Replace),
        before: class(Anchor::Before),
        after: class(Anchor::After),
    }
}

fn listed_field(field: Field) -> ListedField {
    ListedField {
        name: format!("{field:?}"),
        does: plain(field.describe()),
        read: Class::Observe.to_string(),
        set: class_of_setting(field).map(|class| class.to_string()),
    }
}

impl Tables {
    fn new() -> Tables {
        Tables {
            operations: Operation::ALL.iter().map(|one| listed(*one)).collect(),
            fields: Field::ALL.iter().map(|one| listed_field(*one)).collect(),
        }
    }

    /// Keeps only the operations and fields with this name, ignoring case.
    fn keep(&mut self, name: &str) {
        self.operations.retain(|one| one.name.eq_ignore_ascii_case(name));
        self.fields.retain(|one| one.name.eq_ignore_ascii_case(name));
    }

    /// Returns the names that contain `name` or start with the same letters, as suggestions.
    fn similar(&self, name: &str) -> Vec<String> {
        let wanted = name.to_ascii_lowercase();
        let begin: String = wanted.chars().take(4).collect();
        let operations = self.operations.iter().map(|one| one.name.to_owned());
        let names = operations.chain(self.fields.iter().map(|one| one.name.clone()));
        let like = |known: &String| {
            let known = known.to_ascii_lowercase();
            known.contains(&wanted) || known.starts_with(&begin)
        };
        names.filter(like).take(8).collect()
    }
}

pub(super) fn run(args: &Args) -> Result {
    let mut tables = Tables::new();
    if let Some(name) = &args.name {
        let similar = tables.similar(name);
        tables.keep(name);
        if tables.operations.is_empty() && tables.fields.is_empty() {
            let failure = Failure::new(format!("no operation or field has the name {name}"));
            let hint = match similar.as_slice() {
                [] => "`equic plugin operations` lists all names".to_owned(),
                names => format!("similar names: {}", names.join(", ")),
            };
            return Err(failure.help(hint));
        }
    }
    if args.json {
        return output::json(SCHEMA, &tables);
    }
    output::text(if args.name.is_some() { one(&tables) } else { all(&tables) })
}

/// Formats one line for each operation and each field.
fn all(tables: &Tables) -> String {
    let mut text = format!(
        "{:24} {:8} {:8} {:8} {:6}  what it does\n",
        "operation", "replace", "before", "after", "with"
    );
    for one in &tables.operations {
        if [&one.replace, &one.before, &one.after].into_iter().all(|class| class == "never") {
            continue;
        }
        let Listed { name, replace, before, after, carries, does, .. } = one;
        text.push_str(&format!(
            "{name:24} {replace:8} {before:8} {after:8} {carries:6}  {}\n",
            first(does)
        ));
    }
    text.push_str(&format!("\n{:24} {:8} {:8} meaning\n", "field", "read", "set"));
    for ListedField { name, does, read, set } in &tables.fields {
        let set = set.as_deref().unwrap_or("-");
        text.push_str(&format!("{name:24} {read:8} {set:8} {}\n", first(does)));
    }
    text.push_str(
        "\nThe columns `replace`, `before`, `after`, `read` and `set` name the capability class that a plugin needs for this. `never`: plugins cannot do this.\n\
         `equic plugin operations NAME` shows the inputs and outputs of an operation.\n",
    );
    text
}

/// Returns the first sentence of a text.
fn first(text: &str) -> &str {
    let end = text.match_indices(". ").find(|(at, _)| !text[..*at].ends_with(" s"));
    end.map_or(text, |(at, _)| &text[..=at])
}

/// Formats the full description of one operation or field.
fn one(tables: &Tables) -> String {
    let mut text = String::new();
    for one in &tables.operations {
        text.push_str(&format!("operation {} ({})\n  {}\n", one.name, one.section, one.does));
        let with = match one.carries {
            "bytes" => "words, and bytes that the function can read",
            "buffer" => "words, and a buffer that the function can write to",
            "frame" => {
                "words; the operation exists for each frame type, which `frame` in the manifest selects; frames of the transport need `payload`"
            }
            _ => "words only",
        };
        text.push_str(&format!("  carries: {with}\n"));
        let Listed { replace, before, after, .. } = one;
        text.push_str(&format!("  classes: replace {replace}, before {before}, after {after}\n"));
        let default = if one.offers_default { "allowed" } else { "not allowed" };
        text.push_str(&format!("  default = true: {default}\n"));
        for (kind, words) in [("in", &one.inputs), ("out", &one.outputs)] {
            for Word { name, meaning } in words {
                text.push_str(&format!("  {kind}.{name}: {meaning}\n"));
            }
        }
    }
    for ListedField { name, does, read, set } in &tables.fields {
        let set = set.as_deref().unwrap_or("not possible");
        text.push_str(&format!("field {name}\n  {does}\n  classes: read {read}, set {set}\n"));
    }
    text
}
