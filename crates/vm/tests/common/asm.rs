//! An assembler for tests. Each line is an instruction or a label (`name:`), and `#` starts a
//! comment. It also accepts the syntax of `bpf_conformance`, for `examples/conformance.rs`. An
//! invalid instruction can be written as `raw`, followed by 16 hexadecimal digits.

use std::collections::HashMap;

/// Assembles a program. If a line is invalid, the error names it.
pub(crate) fn assemble(text: &str) -> Result<Vec<u8>, String> {
    let mut lines = Vec::new();
    let mut labels = HashMap::new();
    let mut slot = 0;
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(label) = line.strip_suffix(':') {
            labels.insert(label.to_owned(), slot);
        } else if !line.is_empty() {
            lines.push((number + 1, line, slot));
            slot += if line.starts_with("lddw") { 2 } else { 1 };
        }
    }
    // In the test vectors of `bpf_conformance`, a jump to `exit` has no label. It means the last
    // `exit` of the program.
    if let Some((_, _, slot)) = lines.iter().rev().find(|(_, line, _)| *line == "exit") {
        labels.entry("exit".to_owned()).or_insert(*slot);
    }
    let mut code = Vec::new();
    for (number, line, slot) in lines {
        let line_of = Line { labels: &labels, slot };
        let bytes = line_of.instruction(line).ok_or(format!("line {number}: `{line}`"))?;
        code.extend_from_slice(&bytes);
    }
    Ok(code)
}

/// Encodes an instruction from its fields.
pub(crate) fn slot(opcode: u8, dst: u8, src: u8, offset: i16, imm: i32) -> [u8; 8] {
    let mut bytes = [opcode, dst | src << 4, 0, 0, 0, 0, 0, 0];
    bytes[2..4].copy_from_slice(&offset.to_le_bytes());
    bytes[4..].copy_from_slice(&imm.to_le_bytes());
    bytes
}

struct Line<'l> {
    labels: &'l HashMap<String, i64>,
    slot: i64,
}

const ALU: [(&str, u8, i16); 14] = [
    ("add", 0x00, 0),
    ("sub", 0x10, 0),
    ("mul", 0x20, 0),
    ("div", 0x30, 0),
    ("sdiv", 0x30, 1),
    ("or", 0x40, 0),
    ("and", 0x50, 0),
    ("lsh", 0x60, 0),
    ("rsh", 0x70, 0),
    ("mod", 0x90, 0),
    ("smod", 0x90, 1),
    ("xor", 0xa0, 0),
    ("mov", 0xb0, 0),
    ("arsh", 0xc0, 0),
];

const JUMPS: [(&str, u8); 11] = [
    ("jeq", 0x10),
    ("jgt", 0x20),
    ("jge", 0x30),
    ("jset", 0x40),
    ("jne", 0x50),
    ("jsgt", 0x60),
    ("jsge", 0x70),
    ("jlt", 0xa0),
    ("jle", 0xb0),
    ("jslt", 0xc0),
    ("jsle", 0xd0),
];

const SIZES: [(&str, u8); 4] = [("w", 0x00), ("h", 0x08), ("b", 0x10), ("dw", 0x18)];

impl Line<'_> {
    fn instruction(&self, line: &str) -> Option<Vec<u8>> {
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let operands: Vec<&str> =
            rest.split(',').map(str::trim).filter(|o| !o.is_empty()).collect();
        let one = match (name, operands.as_slice()) {
            ("raw", [digits]) => {
                let bytes = u64::from_str_radix(digits, 16).ok()?;
                return Some(bytes.to_be_bytes().to_vec());
            }
            ("lddw", [dst, value]) => {
                let value = number(value)? as u64;
                let mut bytes = slot(0x18, register(dst)?, 0, 0, value as i32).to_vec();
                bytes.extend_from_slice(&slot(0, 0, 0, 0, (value >> 32) as i32));
                return Some(bytes);
            }
            ("exit", []) => slot(0x95, 0, 0, 0, 0),
            ("ja", [target]) => slot(0x05, 0, 0, i16::try_from(self.target(target)?).ok()?, 0),
            ("ja32", [target]) => slot(0x06, 0, 0, 0, self.target(target)? as i32),
            ("call", [to]) => match to.strip_prefix("local ") {
                Some(label) => slot(0x85, 0, 1, 0, self.target(label.trim())? as i32),
                None => match register(to) {
                    Some(register) => slot(0x8d, register, 0, 0, 0),
                    None => slot(0x85, 0, 0, 0, imm(to)?),
                },
            },
            ("lock", _) => return Some(self.lock(rest)?.to_vec()),
            (_, [dst]) => unary(name, dst)?,
            (_, [dst, src]) => {
                arithmetic(name, dst, src).or_else(|| memory(name, dst, src)).or_else(|| {
                    let (opcode, bits) = match name {
                        "movsx832" => (0xbc, 8),
                        "movsx1632" => (0xbc, 16),
                        "movsx864" => (0xbf, 8),
                        "movsx1664" => (0xbf, 16),
                        "movsx3264" => (0xbf, 32),
                        _ => return None,
                    };
                    Some(slot(opcode, register(dst)?, register(src)?, bits, 0))
                })?
            }
            (_, [left, right, target]) => self.branch(name, left, right, target)?,
            _ => return None,
        };
        Some(one.to_vec())
    }

    /// Returns the distance to a label. If `text` is a number, returns that number.
    fn target(&self, text: &str) -> Option<i64> {
        match self.labels.get(text) {
            Some(at) => Some(at - self.slot - 1),
            None => number(text.strip_prefix('+').unwrap_or(text)),
        }
    }

    fn branch(&self, name: &str, left: &str, right: &str, target: &str) -> Option<[u8; 8]> {
        let (name, class) = match name.strip_suffix("32") {
            Some(name) => (name, 0x06),
            None => (name, 0x05),
        };
        let (_, code) = JUMPS.iter().find(|(jump, _)| *jump == name)?;
        let target = i16::try_from(self.target(target)?).ok()?;
        Some(match register(right) {
            Some(right) => slot(class | code | 8, register(left)?, right, target, 0),
            None => slot(class | code, register(left)?, 0, target, imm(right)?),
        })
    }

    fn lock(&self, rest: &str) -> Option<[u8; 8]> {
        let (fetch, rest) = match rest.strip_prefix("fetch ") {
            Some(rest) => (1, rest),
            None => (0, rest),
        };
        let (name, operands) = rest.split_once(' ')?;
        let (place, src) = operands.split_once(',')?;
        let (name, size) = match name.strip_suffix("32") {
            Some(name) => (name, 0x00),
            None => (name, 0x18),
        };
        let op = match name {
            "add" => fetch,
            "or" => 0x40 | fetch,
            "and" => 0x50 | fetch,
            "xor" => 0xa0 | fetch,
            "xchg" => 0xe1,
            "cmpxchg" => 0xf1,
            _ => return None,
        };
        let (base, offset) = place_of(place.trim())?;
        Some(slot(0xc3 | size, base, register(src.trim())?, offset, op))
    }
}

fn unary(name: &str, dst: &str) -> Option<[u8; 8]> {
    let dst = register(dst)?;
    let (opcode, bits) = match name {
        "neg" => (0x87, 0),
        "neg32" => (0x84, 0),
        _ => {
            let (kind, bits) = name.split_at(name.find(|c: char| c.is_ascii_digit())?);
            let opcode = match kind {
                "le" => 0xd4,
                "be" => 0xdc,
                "swap" | "bswap" => 0xd7,
                _ => return None,
            };
            (opcode, bits.parse().ok()?)
        }
    };
    Some(slot(opcode, dst, 0, 0, bits))
}

fn arithmetic(name: &str, dst: &str, src: &str) -> Option<[u8; 8]> {
    let (name, class) = match name.strip_suffix("32") {
        Some(name) => (name, 0x04),
        None => (name, 0x07),
    };
    let (_, code, offset) = ALU.iter().find(|(alu, _, _)| *alu == name)?;
    let dst = register(dst)?;
    Some(match register(src) {
        Some(src) => slot(class | code | 8, dst, src, *offset, 0),
        None => slot(class | code, dst, 0, *offset, imm(src)?),
    })
}

fn memory(name: &str, left: &str, right: &str) -> Option<[u8; 8]> {
    let sized = |name: &str| SIZES.iter().find(|(size, _)| *size == name).map(|(_, code)| *code);
    if let Some(size) = name.strip_prefix("ldxs") {
        let (base, offset) = place_of(right)?;
        return Some(slot(0x81 | sized(size)?, register(left)?, base, offset, 0));
    }
    if let Some(size) = name.strip_prefix("ldx") {
        let (base, offset) = place_of(right)?;
        return Some(slot(0x61 | sized(size)?, register(left)?, base, offset, 0));
    }
    let (base, offset) = place_of(left)?;
    if let Some(size) = name.strip_prefix("stx") {
        return Some(slot(0x63 | sized(size)?, base, register(right)?, offset, 0));
    }
    Some(slot(0x62 | sized(name.strip_prefix("st")?)?, base, 0, offset, imm(right)?))
}

/// Parses `%r0` or `r0`.
fn register(text: &str) -> Option<u8> {
    text.strip_prefix('%').unwrap_or(text).strip_prefix('r')?.parse().ok()
}

/// Parses `[%r1]`, `[%r1+2]` or `[%r1-2]`.
fn place_of(text: &str) -> Option<(u8, i16)> {
    let text = text.strip_prefix('[')?.strip_suffix(']')?;
    match text.find(['+', '-']) {
        Some(at) => {
            let (base, offset) = text.split_at(at);
            let offset = number(offset.strip_prefix('+').unwrap_or(offset))?;
            Some((register(base)?, i16::try_from(offset).ok()?))
        }
        None => Some((register(text)?, 0)),
    }
}

fn imm(text: &str) -> Option<i32> {
    let value = number(text)?;
    i32::try_from(value).ok().or_else(|| u32::try_from(value).ok().map(|value| value as i32))
}

pub(crate) fn number(text: &str) -> Option<i64> {
    let (text, sign) = match text.strip_prefix('-') {
        Some(text) => (text, -1),
        None => (text, 1),
    };
    let value = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()? as i64,
        None => text.parse().ok()?,
    };
    Some(value.wrapping_mul(sign))
}
