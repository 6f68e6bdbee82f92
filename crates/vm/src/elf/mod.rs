//! Loads relocatable ELF object files that clang writes for BPF.
//!
//! The loader concatenates all code sections to one piece of code, and all data sections to one
//! image of the initial memory. It resolves relocations to indices and offsets in these two. The
//! file may come from an attacker. Therefore the limits below bound the memory that loading takes,
//! and the loader rejects everything that it does not know.

use object::LittleEndian as Le;
use object::SymbolIndex;
use object::elf::{self, FileHeader64, Sym64};
use object::read::elf::{FileHeader, SectionHeader, SectionTable, Sym, SymbolTable};
use thiserror::Error;

mod relocate;

use crate::check::MAX_INSTRUCTIONS;
use crate::decode::SLOT;
use crate::memory::DATA_START;

/// Maximum length of a function's name in bytes.
const MAX_NAME: usize = 255;
/// Maximum number of functions.
const MAX_FUNCTIONS: usize = 4096;
/// Name of the section with unwind tables, including its terminating zero.
const UNWIND: &[u8] = b".eh_frame\0";
/// Maximum alignment of a data section.
const MAX_ALIGN: u64 = 4096;

/// Reason why a file cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ElfError {
    /// The ELF structure is invalid.
    #[error("not an ELF object that can be read: {0}")]
    Format(String),
    /// The file is for another machine, or it is already linked.
    #[error("the file is not a relocatable BPF object: compile with `clang -target bpf -c`")]
    NotBpf,
    /// The file contains no code.
    #[error("the file has no code: add a function")]
    NoCode,
    /// The file contains more instructions than [`MAX_INSTRUCTIONS`].
    #[error("the file has more than {MAX_INSTRUCTIONS} instructions: split the program")]
    CodeTooLong,
    /// The file contains more functions than the limit.
    #[error("the file has more than {MAX_FUNCTIONS} functions: split the program")]
    TooManyFunctions,
    /// The names of functions overlap in the file, and their total length exceeds the size of the
    /// file.
    #[error("the functions' names take more bytes than the whole file: shorten them")]
    NamesTooLong,
    /// The program's variables do not fit into the memory.
    #[error(
        "the variables take more than {room} bytes: make them smaller, or configure more memory"
    )]
    DataTooLong {
        /// Bytes available for variables.
        room: usize,
    },
    /// A section that cannot be loaded.
    #[error("section {section}: {what}")]
    Section {
        /// Index of the section in the file.
        section: usize,
        /// Reason why the section cannot be loaded.
        what: &'static str,
    },
    /// A symbol that cannot be used.
    #[error("symbol {name}: {what}")]
    Symbol {
        /// Name of the symbol, or its number if it has no readable name.
        name: String,
        /// Reason why the symbol cannot be used.
        what: &'static str,
    },
    /// A relocation that cannot be applied.
    #[error("section {section}, offset {offset:#x}: {what}")]
    Relocation {
        /// Index of the section to which the relocation applies.
        section: usize,
        /// Offset of the relocation in the section, in bytes.
        offset: u64,
        /// Reason why the relocation cannot be applied.
        what: &'static str,
    },
}

impl From<object::Error> for ElfError {
    fn from(error: object::Error) -> Self {
        ElfError::Format(error.to_string())
    }
}

/// Name and first instruction of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) start: u32,
    pub(crate) global: bool,
}

/// The code, the functions and the initial memory that an object file contains.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) code: Vec<u8>,
    pub(crate) functions: Vec<Function>,
    /// Initial memory of an instance, from [`DATA_START`] on.
    pub(crate) image: Vec<u8>,
}

/// Destination of a loaded section: its offset in the code or in the image, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placed {
    Code(usize),
    Data(usize),
    Not,
}

struct Loader<'d, 'f, F> {
    bytes: &'d [u8],
    sections: SectionTable<'d, FileHeader64<Le>>,
    /// Content of the section name table. It is empty if the file has no such table.
    names: &'d [u8],
    symbols: SymbolTable<'d, FileHeader64<Le>>,
    placed: Vec<Placed>,
    code: Vec<u8>,
    image: Vec<u8>,
    /// The string table that contains the names of the symbols.
    strings: &'d [u8],
    helper: &'f F,
}

/// Loads an object file. Its variables may take `room` bytes. `helper` returns the number of the
/// helper with a given name.
pub(crate) fn load(
    bytes: &[u8],
    room: usize,
    helper: impl Fn(&str) -> Option<u32>,
) -> Result<Object, ElfError> {
    let header = FileHeader64::<Le>::parse(bytes)?;
    if !header.is_little_endian()
        || header.e_machine(Le) != elf::EM_BPF
        || header.e_type(Le) != elf::ET_REL
    {
        return Err(ElfError::NotBpf);
    }
    let sections = header.sections(Le, bytes)?;
    let symbols = sections.symbols(Le, bytes, elf::SHT_SYMTAB)?;
    let strings = match sections.section(symbols.string_section()) {
        Ok(section) => section.data(Le, bytes)?,
        Err(_) => &[],
    };
    let placed = Vec::with_capacity(sections.len());
    let (code, image) = (Vec::new(), Vec::new());
    let names = sections.section(header.section_strings_index(Le, bytes)?);
    let names = names.and_then(|section| section.data(Le, bytes)).unwrap_or_default();
    let helper = &helper;
    let mut loader =
        Loader { bytes, sections, names, symbols, placed, code, image, strings, helper };
    loader.refuse_overlaps()?;
    loader.place(room)?;
    loader.relocate()?;
    let functions = loader.functions()?;
    Ok(Object { code: loader.code, functions, image: loader.image })
}

impl<F: Fn(&str) -> Option<u32>> Loader<'_, '_, F> {
    /// Rejects loaded sections that overlap in the file. If they could overlap, each section header
    /// of a small file could load the same bytes again. The code could then be much larger than the
    /// file, and loading would not take linear time.
    fn refuse_overlaps(&self) -> Result<(), ElfError> {
        let mut ranges = Vec::new();
        for (index, section) in self.sections.enumerate() {
            let (size, from) = (section.sh_size(Le), section.sh_offset(Le));
            let loaded = section.sh_flags(Le).0 & elf::SHF_ALLOC.0 != 0;
            if loaded && size > 0 && section.sh_type(Le) != elf::SHT_NOBITS {
                ranges.push((from, from.saturating_add(size), index.0));
            }
        }
        ranges.sort_unstable();
        match ranges.windows(2).find(|pair| pair[1].0 < pair[0].1) {
            Some(pair) => {
                let what = "the section shares bytes of the file with another section";
                Err(ElfError::Section { section: pair[1].2, what })
            }
            None => Ok(()),
        }
    }

    fn place(&mut self, room: usize) -> Result<(), ElfError> {
        for (index, section) in self.sections.enumerate() {
            let bad = |what| ElfError::Section { section: index.0, what };
            let flags = section.sh_flags(Le).0;
            let (loaded, executable) =
                (flags & elf::SHF_ALLOC.0 != 0, flags & elf::SHF_EXECINSTR.0 != 0);
            // Some options of clang add a section with unwind tables. The loader skips this
            // section, because the VM does not unwind.
            let unwinds = !executable && self.has_name(section.sh_name(Le), UNWIND);
            if !loaded || unwinds || section.sh_size(Le) == 0 {
                self.placed.push(Placed::Not);
                continue;
            }
            let size = usize::try_from(section.sh_size(Le)).map_err(|_| bad("its size"))?;
            let bytes = match section.sh_type(Le) {
                elf::SHT_PROGBITS => section.data(Le, self.bytes)?,
                elf::SHT_NOBITS if !executable => &[],
                _ => {
                    return Err(bad(
                        "sections of this kind are not supported: only code and data are loaded",
                    ));
                }
            };
            if executable {
                if !size.is_multiple_of(SLOT) {
                    return Err(bad(
                        "the size of the section is not a whole number of instructions",
                    ));
                }
                if size > MAX_INSTRUCTIONS * SLOT - self.code.len() {
                    return Err(ElfError::CodeTooLong);
                }
                self.placed.push(Placed::Code(self.code.len()));
                self.code.extend_from_slice(bytes);
            } else {
                let align = section.sh_addralign(Le).clamp(1, MAX_ALIGN) as usize;
                let from = (DATA_START + self.image.len()).next_multiple_of(align) - DATA_START;
                let end = from.checked_add(size).filter(|end| *end <= room);
                let end = end.ok_or(ElfError::DataTooLong { room })?;
                self.image.resize(end, 0);
                self.image[from..from + bytes.len()].copy_from_slice(bytes);
                self.placed.push(Placed::Data(from));
            }
        }
        if self.code.is_empty() { Err(ElfError::NoCode) } else { Ok(()) }
    }

    /// Returns whether the section name at `offset` is `name`. Does not search for the end of the
    /// name: a file can have many sections whose names overlap, and each search could take long.
    fn has_name(&self, offset: u32, name: &[u8]) -> bool {
        self.names.get(offset as usize..).is_some_and(|names| names.starts_with(name))
    }

    fn placed_symbol(&self, index: SymbolIndex, symbol: &Sym64<Le>) -> Result<Placed, ElfError> {
        let section = usize::from(symbol.st_shndx(Le).0);
        match self.placed.get(section).copied().unwrap_or(Placed::Not) {
            Placed::Not => {
                let what = "the symbol is not in a section that is loaded";
                Err(ElfError::Symbol { name: self.name(index, symbol), what })
            }
            placed => Ok(placed),
        }
    }

    fn name(&self, index: SymbolIndex, symbol: &Sym64<Le>) -> String {
        // The search for the end of the name reads at most as many bytes as a name may have.
        let from = usize::try_from(symbol.st_name(Le)).unwrap_or(usize::MAX);
        let from = self.strings.get(from..).unwrap_or(&[]);
        let from = &from[..from.len().min(MAX_NAME + 1)];
        match from.iter().position(|byte| *byte == 0) {
            Some(end) if end > 0 => String::from_utf8_lossy(&from[..end]).into_owned(),
            _ => format!("number {}", index.0),
        }
    }

    fn functions(&self) -> Result<Vec<Function>, ElfError> {
        let mut functions = Vec::new();
        let mut globals = std::collections::HashSet::new();
        let mut named = 0;
        for (index, symbol) in self.symbols.enumerate() {
            if symbol.st_type() != elf::STT_FUNC || symbol.st_shndx(Le) == elf::SHN_UNDEF {
                continue;
            }
            let name = self.name(index, symbol);
            // Symbols can share one long name in the file. So the total length of the names is
            // limited to the size of the file.
            named += name.len();
            if named > self.bytes.len() {
                return Err(ElfError::NamesTooLong);
            }
            let value = usize::try_from(symbol.st_value(Le)).ok();
            let at = match self.placed_symbol(index, symbol)? {
                Placed::Code(base) => value.and_then(|value| base.checked_add(value)),
                _ => None,
            };
            let Some(at) = at.filter(|at| at.is_multiple_of(SLOT) && *at < self.code.len()) else {
                return Err(ElfError::Symbol {
                    name,
                    what: "the symbol is a function, but is not in a code section",
                });
            };
            let global = symbol.st_bind() != elf::STB_LOCAL;
            if global && !globals.insert(name.clone()) {
                return Err(ElfError::Symbol { name, what: "two functions have this name" });
            }
            functions.push(Function { name, start: (at / SLOT) as u32, global });
            if functions.len() > MAX_FUNCTIONS {
                return Err(ElfError::TooManyFunctions);
            }
        }
        if functions.is_empty() { Err(ElfError::NoCode) } else { Ok(functions) }
    }
}
