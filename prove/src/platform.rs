//! Describes eQUIC to PREVAIL: its helpers, and the arguments of a call, which PREVAIL calls the
//! context. A plugin's variables are maps with one entry, as on Linux.

use prevail::elf_loader::UnmarshalError;
use prevail::linux::linux_platform::LinuxPlatform;
use prevail::linux::spec_prototypes::HelperPrototype;
use prevail::platform::EbpfPlatform;
use prevail::spec::config::EbpfVerifierOptions;
use prevail::spec::ebpf_base::{EbpfArgumentType, EbpfCtxDescriptor, EbpfReturnType};
use prevail::spec::type_descriptors::{EbpfMapDescriptor, EbpfMapType, EbpfProgramType};

/// A helper (a host function that plugins may call): its number, and its description for PREVAIL.
pub(crate) struct Helper {
    number: i32,
    prototype: HelperPrototype,
}

impl Helper {
    /// Returns a helper whose parameters are given by letters (see `main.rs`). Returns `None` if a
    /// letter is unknown, or if there are too many letters.
    pub(crate) fn new(number: i32, parameters: &str) -> Option<Helper> {
        let mut types = [EbpfArgumentType::DontCare; 5];
        if parameters.len() > types.len() {
            return None;
        }
        for (place, letter) in types.iter_mut().zip(parameters.chars()) {
            *place = match letter {
                'n' => EbpfArgumentType::Anything,
                'r' => EbpfArgumentType::PtrToReadableMem,
                'w' => EbpfArgumentType::PtrToWritableMem,
                's' => EbpfArgumentType::ConstSizeOrZero,
                _ => return None,
            };
        }
        let prototype = HelperPrototype {
            name: "helper",
            return_type: EbpfReturnType::Integer,
            argument_type: types,
            reallocate_packet: false,
            ctx_descriptor: None,
            unsupported: false,
            might_sleep: false,
            zero_args_mask: 0,
            allowed_map_types: 0,
        };
        Some(Helper { number, prototype })
    }
}

/// The description of eQUIC with which PREVAIL checks one function.
pub(crate) struct Platform<'h> {
    /// The platform for Linux, which describes maps in the same way.
    linux: LinuxPlatform,
    helpers: &'h [Helper],
    context: &'static EbpfCtxDescriptor,
}

impl<'h> Platform<'h> {
    /// Returns the description for a function that is called with the address of `words` bytes.
    pub(crate) fn new(helpers: &'h [Helper], words: i32) -> Platform<'h> {
        // PREVAIL requires that the context lives forever, so it is leaked. The leak is small,
        // because each run of this program creates only a few contexts.
        let context = EbpfCtxDescriptor { size: words, data: -1, end: -1, meta: -1 };
        Platform { linux: LinuxPlatform::new(), helpers, context: Box::leak(Box::new(context)) }
    }

    pub(crate) fn set_maps(&mut self, maps: &[EbpfMapDescriptor]) {
        self.linux.map_descriptors = maps.to_vec();
    }

    fn find(&self, number: i32) -> Option<&HelperPrototype> {
        self.helpers.iter().find(|one| one.number == number).map(|one| &one.prototype)
    }
}

impl EbpfPlatform for Platform<'_> {
    fn get_program_type(&self, _section: &str, _path: &str) -> EbpfProgramType {
        EbpfProgramType {
            name: "plugin".to_owned(),
            ctx_descriptor: Some(self.context),
            platform_specific_data: 0,
            section_prefixes: Vec::new(),
            is_privileged: false,
            is_sleepable: false,
        }
    }

    fn get_helper_prototype(&self, number: i32) -> &HelperPrototype {
        self.find(number).expect("PREVAIL requests only usable helpers")
    }

    fn try_get_helper_prototype(&self, number: i32) -> Option<&HelperPrototype> {
        self.find(number)
    }

    fn is_helper_usable(&self, number: i32) -> bool {
        self.find(number).is_some()
    }

    fn map_record_size(&self) -> usize {
        self.linux.map_record_size()
    }

    fn parse_maps_section(
        &mut self,
        descriptors: &mut Vec<EbpfMapDescriptor>,
        data: &[u8],
        record_size: usize,
        count: usize,
        options: &EbpfVerifierOptions,
    ) {
        self.linux.parse_maps_section(descriptors, data, record_size, count, options);
    }

    fn resolve_inner_map_references(
        &self,
        descriptors: &mut Vec<EbpfMapDescriptor>,
    ) -> Result<(), UnmarshalError> {
        self.linux.resolve_inner_map_references(descriptors)
    }

    fn get_map_descriptor(&self, map: i32) -> Option<&EbpfMapDescriptor> {
        self.linux.get_map_descriptor(map)
    }

    fn get_map_type(&self, number: u32) -> EbpfMapType {
        self.linux.get_map_type(number)
    }

    fn supported_conformance_groups(&self) -> u32 {
        prevail::linux::linux_platform::conformance_groups::DEFAULT_GROUPS
    }
}
