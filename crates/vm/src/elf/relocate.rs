//! Applies the relocations that clang's BPF back end leaves to the loader. Three kinds of them
//! occur in the sections that are loaded.

use object::LittleEndian as Le;
use object::elf::{self, RelocationType};
use object::read::elf::{Rel, SectionHeader, Sym};
use object::{SectionIndex, SymbolIndex};

use super::{ElfError, Loader, Placed};
use crate::decode::SLOT;
use crate::memory::DATA_START;

/// Relocation type of a 64-bit pointer in a data section.
const R_BPF_64_ABS64: RelocationType = RelocationType(2);

/// An error without a location, which the caller must add, or a complete error.
enum Bad {
    Here(&'static str),
    Other(ElfError),
}

impl From<ElfError> for Bad {
    fn from(error: ElfError) -> Self {
        Bad::Other(error)
    }
}

/// Reads four bytes at offset `at`. All four must be within `bytes`.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut value = [0; 4];
    value.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(value)
}

impl<F: Fn(&str) -> Option<u32>> Loader<'_, '_, F> {
    /// Applies the relocations of all loaded sections.
    pub(super) fn relocate(&mut self) -> Result<(), ElfError> {
        let mut left = (self.code.len() + self.image.len()) / SLOT + 1;
        for section in self.sections.iter() {
            let kind = section.sh_type(Le);
            if kind != elf::SHT_REL && kind != elf::SHT_RELA {
                continue;
            }
            let target = section.sh_info(Le) as usize;
            let placed = self.placed.get(target).copied().unwrap_or(Placed::Not);
            if placed == Placed::Not {
                continue;
            }
            let Some((relocations, _)) = section.rel(Le, self.bytes)? else {
                let what = "relocations with addends are not supported: clang writes none for BPF";
                return Err(ElfError::Section { section: target, what });
            };
            // Many sections can refer to the same relocation table. So the total number of
            // relocations is limited by the size of the sections to which they apply.
            left = left.checked_sub(relocations.len()).ok_or(ElfError::Section {
                section: target,
                what: "there are more relocations than instructions and words of data",
            })?;
            for relocation in relocations {
                let offset = relocation.r_offset(Le);
                let symbol = SymbolIndex(relocation.r_sym(Le) as usize);
                let size = self.sections.section(SectionIndex(target))?.sh_size(Le);
                self.one(placed, size, offset, relocation.r_type(Le), symbol).map_err(|error| {
                    match error {
                        Bad::Here(what) => ElfError::Relocation { section: target, offset, what },
                        Bad::Other(error) => error,
                    }
                })?;
            }
        }
        Ok(())
    }

    fn one(
        &mut self,
        placed: Placed,
        size: u64,
        offset: u64,
        kind: RelocationType,
        symbol: SymbolIndex,
    ) -> Result<(), Bad> {
        let inside = |bytes: u64| offset.checked_add(bytes).is_some_and(|end| end <= size);
        match (kind, placed) {
            (elf::R_BPF_NONE, _) => Ok(()),
            (elf::R_BPF_64_64, Placed::Code(base)) if inside(16) && offset.is_multiple_of(8) => {
                self.load_wide(base + offset as usize, symbol)
            }
            (elf::R_BPF_64_32, Placed::Code(base)) if inside(8) && offset.is_multiple_of(8) => {
                self.call(base + offset as usize, symbol)
            }
            (R_BPF_64_ABS64, Placed::Data(base)) if inside(8) => {
                self.pointer(base + offset as usize, symbol)
            }
            (elf::R_BPF_64_64 | elf::R_BPF_64_32 | R_BPF_64_ABS64, _) => {
                Err(Bad::Here("the kind of the relocation does not fit the kind of the section"))
            }
            _ => Err(Bad::Here("the kind of the relocation is unknown")),
        }
    }

    /// Relocates `lddw rX, variable`, which loads the address of a variable.
    fn load_wide(&mut self, at: usize, symbol: SymbolIndex) -> Result<(), Bad> {
        let address = self.address(symbol)?;
        let slot = &mut self.code[at..at + 16];
        if slot[0] != 0x18 {
            return Err(Bad::Here(
                "the relocation is for a variable's address, but the instruction is not LDDW",
            ));
        }
        let addend = u64::from(u32_at(slot, 4)) | u64::from(u32_at(slot, 12)) << 32;
        let value = address.wrapping_add(addend);
        // For a variable, clang writes kind 0. The kinds with which libbpf marks maps stay
        // unchanged, so that the check rejects them.
        slot[4..8].copy_from_slice(&(value as u32).to_le_bytes());
        slot[12..16].copy_from_slice(&((value >> 32) as u32).to_le_bytes());
        Ok(())
    }

    /// Relocates `call function`, whose target is a function of the program or a helper.
    fn call(&mut self, at: usize, symbol: SymbolIndex) -> Result<(), Bad> {
        let found = self.symbols.symbol(symbol).map_err(ElfError::from)?;
        let imm = u32_at(&self.code, at + 4) as i32;
        if self.code[at] != 0x85 {
            return Err(Bad::Here(
                "the relocation is for a call of a function, but the instruction is not CALL",
            ));
        }
        if found.st_shndx(Le) == elf::SHN_UNDEF {
            let name = self.name(symbol, found);
            let what = "the symbol is neither a function of the program nor a helper of the host";
            let number = (self.helper)(&name).ok_or(ElfError::Symbol { name, what })?;
            self.code[at + 1] &= 0x0f;
            self.code[at + 4..at + 8].copy_from_slice(&number.to_le_bytes());
            return Ok(());
        }
        let Placed::Code(base) = self.placed_symbol(symbol, found)? else {
            return Err(Bad::Here("the called symbol is not a function"));
        };
        // The position of the called function in its section is the value of the symbol plus a
        // distance from the immediate, which counts instructions. Only section symbols have a
        // distance other than 0. An immediate of -1 means a distance of 0.
        let within = i64::try_from(found.st_value(Le))
            .map_err(|_| Bad::Here("the value of the symbol is too large"))?;
        let target = within / SLOT as i64 + i64::from(imm) + 1;
        let target = (base / SLOT) as i64 + target;
        let distance = i32::try_from(target - (at / SLOT) as i64 - 1);
        let distance = distance.map_err(|_| Bad::Here("the called function is too far away"))?;
        self.code[at + 1] = self.code[at + 1] & 0x0f | 0x10;
        self.code[at + 4..at + 8].copy_from_slice(&distance.to_le_bytes());
        Ok(())
    }

    /// Relocates a pointer that is the initial value of a variable.
    fn pointer(&mut self, at: usize, symbol: SymbolIndex) -> Result<(), Bad> {
        let address = self.address(symbol)?;
        let mut addend = [0; 8];
        addend.copy_from_slice(&self.image[at..at + 8]);
        let value = address.wrapping_add(u64::from_le_bytes(addend));
        self.image[at..at + 8].copy_from_slice(&value.to_le_bytes());
        Ok(())
    }

    /// Returns the address of a variable.
    fn address(&self, symbol: SymbolIndex) -> Result<u64, Bad> {
        let found = self.symbols.symbol(symbol).map_err(ElfError::from)?;
        if found.st_shndx(Le) == elf::SHN_UNDEF {
            let what = "the variable is declared, but not defined: a program can only use its own variables";
            return Err(ElfError::Symbol { name: self.name(symbol, found), what }.into());
        }
        match self.placed_symbol(symbol, found)? {
            Placed::Data(from) => Ok(((DATA_START + from) as u64).wrapping_add(found.st_value(Le))),
            _ => Err(Bad::Here(
                "the program takes the address of a function, but calls through pointers are not supported",
            )),
        }
    }
}
