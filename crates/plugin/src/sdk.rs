//! Generates the C headers that plugins include, from tables: the transport's operations and
//! fields, and the helpers in `runtime/abi.rs`. `make header` writes the headers to `plugins/sdk`.

use std::fmt::Write as _;

use equic_transport::operation::{Description, Field, Operation, PayloadKind};

use crate::class::{Class, class_of};
use crate::manifest::{ABI, Anchor};
use crate::runtime::HELPERS;

/// Maximum width of a comment line in the headers, in columns.
const WIDTH: usize = 100;

/// A helper (host function) of the plugin interface, for other hosts of plugins and for programs
/// that check bytecode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelperInfo {
    /// Number by which bytecode calls the helper. It is never reused.
    pub number: u32,
    /// C name of the helper.
    pub name: &'static str,
    /// The helper's C parameters with their types, or `void`.
    pub parameters: &'static str,
    /// Number of steps that a call costs, in addition to the cost of the bytes that its arguments
    /// refer to.
    pub cost: u32,
}

/// Returns all helpers of version [`ABI`] of the plugin interface, sorted by number.
pub fn helpers() -> impl Iterator<Item = HelperInfo> {
    HELPERS.iter().map(|one| HelperInfo {
        number: one.number,
        name: one.name,
        parameters: one.parameters,
        cost: one.cost,
    })
}

/// A C header that plugins include.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// File name, without a folder.
    pub name: &'static str,
    /// Content of the file, in C.
    pub text: String,
}

/// The line with which `equic_plugin.h` includes the other header.
const INCLUDE: &str = "#include \"equic_operations.h\"\n";

/// Returns the two C headers for plugins, which must be in the same folder. A plugin includes the
/// first, `equic_plugin.h`, which includes the second.
pub fn headers() -> [Header; 2] {
    [
        Header { name: "equic_plugin.h", text: plugin_header() },
        Header { name: "equic_operations.h", text: operations_header() },
    ]
}

/// Returns the full text that `#include <equic_plugin.h>` would insert, for compilers that have no
/// folder with headers.
pub fn included_headers() -> String {
    let [plugin, operations] = headers();
    plugin.text.replace(INCLUDE, &operations.text)
}

/// The memory functions that clang expects C programs to have. The empty `asm` keeps clang from
/// compiling a function's loop into a call of that same function.
const MEMORY: &str = "\
/* Plugins have no libc: no other headers, no malloc, no printf. Only these four functions exist. For a small constant
 * length, prefer __builtin_memcpy and __builtin_memset, which clang expands to fewer instructions. An assignment of a
 * structure of more than 1,024 bytes does not compile: use memcpy. */
typedef __SIZE_TYPE__ equic_size;

static inline __attribute__((always_inline, unused)) void *memcpy(void *to, const void *from, equic_size length)
{
	for (equic_size at = 0; at < length; at++) {
		((equic_u8 *)to)[at] = ((const equic_u8 *)from)[at];
		__asm__ volatile(\"\" ::: \"memory\");
	}
	return to;
}

static inline __attribute__((always_inline, unused)) void *memmove(void *to, const void *from, equic_size length)
{
	if ((equic_u64)to <= (equic_u64)from)
		return memcpy(to, from, length);
	for (equic_size left = length; left > 0; left--) {
		((equic_u8 *)to)[left - 1] = ((const equic_u8 *)from)[left - 1];
		__asm__ volatile(\"\" ::: \"memory\");
	}
	return to;
}

static inline __attribute__((always_inline, unused)) void *memset(void *to, int byte, equic_size length)
{
	for (equic_size at = 0; at < length; at++) {
		((equic_u8 *)to)[at] = (equic_u8)byte;
		__asm__ volatile(\"\" ::: \"memory\");
	}
	return to;
}

static inline __attribute__((always_inline, unused)) int memcmp(const void *one, const void *other, equic_size length)
{
	for (equic_size at = 0; at < length; at++) {
		equic_u8 left = ((const equic_u8 *)one)[at], right = ((const equic_u8 *)other)[at];

		if (left != right)
			return left < right ? -1 : 1;
		__asm__ volatile(\"\" ::: \"memory\");
	}
	return 0;
}

";

/// Returns `equic_plugin.h`: types, constants, helpers and fields.
fn plugin_header() -> String {
    let mut text = String::new();
    text.push_str(
        "/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * The header for plugins of QUIC connections (docs/plugins.md). Compile a plugin with:
 *
 *     clang -target bpf -O2 -mcpu=v3 -ffreestanding -I plugins/sdk -c plugin.c
 *
 * Generated from the tables of the transport and of equic-plugin: `make header` writes it again.
 *
 * The host calls a plugin's function with the words of the call. If the operation has bytes, they and their number
 * follow. If the operation exists for each frame type, the type is the last argument:
 *
 *     equic_u64 on_ack(struct equic_ack_policy *call)
 *     equic_u64 parse(struct equic_parse_frame *call, const equic_u8 *bytes, equic_u64 length, equic_u64 type)
 *
 * A function that replaces an operation writes its answer to `call->out` and returns EQUIC_DONE, or it returns
 * EQUIC_DEFAULT so that the default runs. With `default = true` in the manifest, `call->out` already holds the answer of
 * the default, or of the plugin that was attached before, and `equic_call_default` restores that answer. For a function
 * that runs before or after an operation, the result and the outputs have no effect.
 */
#ifndef EQUIC_PLUGIN_H
#define EQUIC_PLUGIN_H

typedef __UINT8_TYPE__ equic_u8;
typedef __UINT16_TYPE__ equic_u16;
typedef __UINT32_TYPE__ equic_u32;
typedef __UINT64_TYPE__ equic_u64;

",
    );
    let _ = writeln!(text, "/* `abi` of the manifest. */\n#define EQUIC_ABI {ABI}\n");
    text.push_str(MEMORY);
    text.push_str(
        "/* Results of a function that replaces an operation. */
#define EQUIC_DEFAULT 0
#define EQUIC_DONE 1

/* Value of a word or field without a value. */
#define EQUIC_NONE (~(equic_u64)0)

#define EQUIC_MICROSECOND 1000ull
#define EQUIC_MILLISECOND 1000000ull
#define EQUIC_SECOND 1000000000ull

/* Helpers. */

",
    );
    for helper in HELPERS {
        comment(&mut text, helper.does);
        let (result, parameters) = (helper.result, helper.parameters);
        let _ = writeln!(
            text,
            "static {result} (*const {})({parameters}) __attribute__((unused)) = (void *){};\n",
            helper.name, helper.number
        );
    }
    text.push_str("/* Fields for `equic_get`. A field that each path has for itself is read from the active path. */\nenum equic_field {\n");
    for field in Field::ALL {
        let name = upper(&format!("{field:?}"));
        let _ =
            writeln!(text, "\tEQUIC_{name} = {}, /* {} */", *field as u16, plain(field.describe()));
    }
    let _ = write!(text, "}};\n\n/* A structure for each operation. */\n{INCLUDE}\n#endif\n");
    text
}

/// Returns `equic_operations.h`, with a structure for each operation that plugins may attach to.
fn operations_header() -> String {
    let mut text = String::from(
        "/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * Operations of QUIC connections. Each has a structure with the words of a call: a plugin's function reads `in` and
 * writes `out`. equic_plugin.h includes this header and describes how functions are called.
 *
 * Generated from the tables of the transport: `make header` writes it again.
 */
#ifndef EQUIC_PLUGIN_H
#error \"include equic_plugin.h instead\"
#endif
#ifndef EQUIC_OPERATIONS_H
#define EQUIC_OPERATIONS_H
",
    );
    for operation in Operation::ALL.iter().filter(|one| is_for_plugins(**one)) {
        text.push('\n');
        structure(&mut text, &operation.describe());
    }
    text.push_str("\n#endif\n");
    text
}

/// Returns `true` if any plugin may attach to the operation, at any anchor.
fn is_for_plugins(operation: Operation) -> bool {
    let anchors = [Anchor::Before, Anchor::Replace, Anchor::After];
    anchors.into_iter().any(|anchor| class_of(operation, anchor, true) != Class::Never)
}

/// Writes the C structure for the words of an operation's call.
fn structure(text: &mut String, operation: &Description) {
    let bytes = match operation.carries {
        PayloadKind::Words => "",
        PayloadKind::Bytes => " The call has bytes to read.",
        PayloadKind::Buffer => " The call has a buffer to write.",
        PayloadKind::Frame => " The operation exists for each frame type.",
    };
    let name = operation.name;
    comment(text, &format!("{name} ({}):{}{bytes}", operation.section, operation.does));
    let _ = writeln!(text, "struct equic_{} {{", snake(name));
    let kinds = [
        ("in", operation.inputs, operation.input_meanings),
        ("out", operation.outputs, operation.output_meanings),
    ];
    for (kind, words, meanings) in kinds {
        if words.is_empty() {
            continue;
        }
        text.push_str("\tstruct {\n");
        for (word, meaning) in words.iter().zip(meanings) {
            let meaning = meaning.split_once("`: ").map_or(*meaning, |(_, meaning)| meaning);
            let _ = writeln!(text, "\t\tequic_u64 {word}; /* {} */", plain(meaning));
        }
        let _ = writeln!(text, "\t}} {kind};");
    }
    text.push_str("};\n");
}

/// Writes a C comment, wrapped at [`WIDTH`] columns.
fn comment(text: &mut String, what: &str) {
    let mut line = String::from("/*");
    for word in plain(what).split_whitespace() {
        if line.len() + 1 + word.len() > WIDTH {
            text.push_str(&line);
            line = String::from("\n *");
        }
        line.push(' ');
        line.push_str(word);
    }
    text.push_str(&line);
    text.push_str(" */\n");
}

/// Converts a description from the transport's tables to plain text. Replaces rustdoc links with
/// their text, and removes backticks.
pub fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text.trim();
    while let Some(at) = rest.find('[') {
        out.push_str(&rest[..at]);
        let inner = &rest[at + 1..];
        let Some(end) = inner.find(']') else { break };
        out.push_str(inner[..end].trim_matches('`').trim_start_matches("Operation::"));
        rest = &inner[end + 1..];
        if let Some(target) = rest.strip_prefix('(').and_then(|rest| rest.find(')')) {
            rest = &rest[target + 2..];
        }
    }
    out.push_str(rest);
    // A plugin in C calls a helper where a native hook calls the method of its context.
    out.replace('`', "").replace("HookContext::", "equic_")
}

/// Converts `SelectACKPath` to `select_ack_path`.
fn snake(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut out = String::new();
    for (at, letter) in letters.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| letters[before].is_lowercase());
        let next = letters.get(at + 1).is_some_and(|next| next.is_lowercase());
        if letter.is_uppercase() && before.is_some_and(|lower| lower || next) {
            out.push('_');
        }
        out.extend(letter.to_lowercase());
    }
    out
}

fn upper(name: &str) -> String {
    snake(name).to_uppercase()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn sdk_headers_are_up_to_date() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/sdk");
        let entries = std::fs::read_dir(&folder).unwrap();
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        files.sort();
        let mut names = headers().map(|header| header.name);
        names.sort_unstable();
        assert_eq!(files, names, "a header that nobody writes, or one that is not there");
        for Header { name, text } in headers() {
            let written = std::fs::read_to_string(folder.join(name)).unwrap();
            assert!(written == text, "{name}: run `make header` and commit what it changes");
        }
    }

    #[test]
    fn sdk_included_headers_contain_both_files() {
        let [plugin, operations] = headers();
        let whole = included_headers();
        assert_eq!(plugin.text.matches(INCLUDE).count(), 1);
        assert!(!whole.contains(INCLUDE) && whole.contains(&operations.text));
        assert_eq!(whole.len(), plugin.text.len() - INCLUDE.len() + operations.text.len());
    }

    #[test]
    fn sdk_names_are_converted_to_c() {
        assert_eq!(snake("SelectACKPath"), "select_ack_path");
        assert_eq!(snake("MinRtt"), "min_rtt");
        assert_eq!(
            plain(" the word ([`HookContext::queue_frame`](super::HookContext)); 0: x"),
            "the word (equic_queue_frame); 0: x"
        );
    }
}
