//! Builds ELF object files that no compiler would produce. They have one section of code with the
//! given instructions and symbols.

/// A symbol for a function in the object.
pub(crate) struct Symbol {
    pub(crate) name: String,
    /// First instruction.
    pub(crate) at: usize,
    pub(crate) global: bool,
}

/// Encodes an instruction (RFC 9669 s.3.1).
pub(crate) fn instruction(opcode: u8, registers: u8, imm: i32) -> [u8; 8] {
    let [a, b, c, d] = imm.to_le_bytes();
    [opcode, registers, 0, 0, a, b, c, d]
}

/// `exit`.
pub(crate) fn exit() -> [u8; 8] {
    instruction(0x95, 0, 0)
}

/// Encodes a call of the helper function with this number.
pub(crate) fn helper(number: i32) -> [u8; 8] {
    instruction(0x85, 0, number)
}

/// Encodes the call instruction at position `from` for the function that begins at instruction
/// `to`.
pub(crate) fn call(from: usize, to: usize) -> [u8; 8] {
    let distance = to as i64 - from as i64 - 1;
    instruction(0x85, 0x10, i32::try_from(distance).unwrap_or(0))
}

/// Returns a relocatable ELF object with this code. Local symbols must precede global ones.
pub(crate) fn object(code: &[[u8; 8]], symbols: &[Symbol]) -> Vec<u8> {
    let (mut strings, mut table) = (vec![0], vec![0; 24]);
    for Symbol { name, at, global } in symbols {
        let named = if name.is_empty() { 0 } else { strings.len() };
        if named > 0 {
            strings.extend(name.as_bytes());
            strings.push(0);
        }
        table.extend((named as u32).to_le_bytes());
        // The symbol is a function in the first section.
        table.extend([u8::from(*global) << 4 | 2, 0, 1, 0]);
        table.extend((8 * *at as u64).to_le_bytes());
        table.extend([0; 8]);
    }
    let code = code.as_flattened();
    let (code_at, table_at) = (64, 64 + code.len());
    let strings_at = table_at + table.len();
    strings.resize(strings.len().next_multiple_of(8), 0);
    let headers_at = strings_at + strings.len();
    let locals = 1 + symbols.iter().filter(|symbol| !symbol.global).count();
    let section =
        |kind: u32, flags: u64, at: usize, size: usize, link: u32, info: u32, each: u64| {
            let mut header: Vec<u8> = Vec::with_capacity(64);
            header.extend([0, kind].map(u32::to_le_bytes).as_flattened());
            let words = [flags, 0, at as u64, size as u64];
            header.extend(words.map(u64::to_le_bytes).as_flattened());
            header.extend([link, info].map(u32::to_le_bytes).as_flattened());
            header.extend([8, each].map(u64::to_le_bytes).as_flattened());
            header
        };
    let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
    elf.resize(16, 0);
    // The file is relocatable, and its machine is BPF.
    elf.extend([1u16, 247].map(u16::to_le_bytes).as_flattened());
    elf.extend(1u32.to_le_bytes());
    elf.extend([0, 0, headers_at as u64].map(u64::to_le_bytes).as_flattened());
    elf.extend(0u32.to_le_bytes());
    elf.extend([64u16, 0, 0, 64, 4, 3].map(u16::to_le_bytes).as_flattened());
    elf.extend(code);
    elf.extend(&table);
    elf.extend(&strings);
    elf.extend(section(0, 0, 0, 0, 0, 0, 0));
    elf.extend(section(1, 6, code_at, code.len(), 0, 0, 0));
    elf.extend(section(2, 0, table_at, table.len(), 3, locals as u32, 24));
    elf.extend(section(3, 0, strings_at, strings.len(), 0, 0, 0));
    elf
}
