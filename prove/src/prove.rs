//! Checks one function of an object file with PREVAIL.

use prevail::crab::ebpf_domain::DomainContext;
use prevail::crab::var_registry::VariableRegistry;
use prevail::elf_loader::read_elf;
use prevail::fwd_analyzer::analyze;
use prevail::ir::program::Program;
use prevail::ir::unmarshal::unmarshal;
use prevail::spec::config::{EbpfRuntimeConfig, EbpfVerifierOptions, VerbosityOptions};

use crate::platform::{Helper, Platform};

/// Result of checking a function.
pub(crate) enum ProofResult {
    /// The function accesses only its own memory, and ends.
    Proved,
    /// PREVAIL could not prove the function.
    Finding {
        /// Index of the offending instruction in the function.
        instruction: usize,
        /// Source file of the instruction, from the object's BTF. Empty if the object has no line
        /// numbers.
        file: String,
        /// Line of the instruction in the source file.
        line: Option<u32>,
        /// The property of this instruction that PREVAIL could not prove.
        message: String,
    },
}

fn options() -> EbpfVerifierOptions {
    EbpfVerifierOptions {
        runtime: EbpfRuntimeConfig {
            check_for_termination: true,
            // These are the rules of eQUIC's bytecode engine (docs/vm.md): 8 stack frames of 512
            // bytes, and a division by zero has the result 0 (RFC 9669 s.4.1).
            allow_division_by_zero: true,
            ..EbpfRuntimeConfig::default()
        },
        mock_map_fds: true,
        // Without this option, PREVAIL does not read line numbers.
        verbosity_opts: VerbosityOptions { print_line_info: true, ..VerbosityOptions::default() },
        ..EbpfVerifierOptions::default()
    }
}

/// Tries to prove the function `function` of an object. It is called with the address of `words`
/// bytes.
///
/// # Errors
/// The object cannot be read, or does not have the function.
pub(crate) fn prove(
    path: &str,
    function: &str,
    words: i32,
    helpers: &[Helper],
) -> Result<ProofResult, String> {
    let options = options();
    let bytes = std::fs::read(path).map_err(|error| format!("cannot read {path}: {error}"))?;
    let mut platform = Platform::new(helpers, words);
    let programs = read_elf(&bytes, path, "", "", &options, &mut platform);
    let programs = programs.map_err(|error| error.to_string())?;
    let found = programs.into_iter().find(|one| one.function_name == function);
    let mut raw = found.ok_or_else(|| "the object has no such function".to_owned())?;
    platform.set_maps(&raw.info.map_descriptors);
    let mut notes = Vec::new();
    let sequence = unmarshal(&raw.prog, &mut notes, &raw.info, &platform, &options);
    let sequence = sequence.map_err(|error| error.to_string())?;
    let program = Program::from_sequence(&sequence, &mut raw.info, &platform, &options);
    let program = program.map_err(|error| error.to_string())?;
    let context = DomainContext {
        program_info: &raw.info,
        program: &program,
        runtime: &options.runtime,
        options: &options,
        platform: &platform,
    };
    let result = analyze(&program, &context, &mut VariableRegistry::new());
    if !result.failed {
        return Ok(ProofResult::Proved);
    }
    let Some(error) = result.find_first_error() else {
        return Err("PREVAIL rejects the function, but gives no reason".to_owned());
    };
    let from = error.label.as_ref().map_or(0, |label| label.from);
    let instruction = usize::try_from(from).unwrap_or(0);
    // Only the first instruction of each source line has a line number. So use the last line number
    // at or before this instruction.
    let known = raw.info.line_info.range(..=instruction).next_back().map(|(_, line)| line);
    Ok(ProofResult::Finding {
        instruction,
        file: known.map(|line| line.file_name.clone()).unwrap_or_default(),
        line: known.map(|line| line.line_number),
        message: error.message,
    })
}
