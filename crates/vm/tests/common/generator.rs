//! Generates random programs, and runs each of them on both engines. The effect on registers,
//! memory, budget and host must be the same, and no memory outside of the sandbox may change.

use std::sync::Arc;

use equic_vm::{
    Caller, Config, Engine, HelperError, HelperHost, Helpers, Instance, LoadError, Program, Region,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::asm::slot;

/// Data of the host, in which the helpers record their arguments.
#[derive(Debug)]
pub(crate) struct Log;

impl HelperHost for Log {
    type Data<'h> = &'h mut Vec<(u32, u64, u64)>;
}

type Calls<'c, 'h> = Caller<'c, &'h mut Vec<(u32, u64, u64)>>;

/// Returns a table with helpers 1 to 5, which have all kinds of parameters and results.
pub(crate) fn helpers() -> Arc<Helpers<Log>> {
    let mut helpers = Helpers::<Log>::new();
    let sum = |calls: &mut Calls<'_, '_>, region: Region| {
        calls.charge(region.len / 8)?;
        let sum = calls.memory.read(region)?.iter().map(|byte| u64::from(*byte)).sum();
        calls.data.push((2, region.len, sum));
        Ok(sum)
    };
    let fill = |calls: &mut Calls<'_, '_>, region: Region, byte: u64| {
        calls.charge(region.len / 8)?;
        calls.memory.write(region)?.fill(byte as u8);
        calls.data.push((3, region.offset, byte));
        Ok(region.offset)
    };
    let picky = |calls: &mut Calls<'_, '_>, value: u64, small: u32, int: i32| {
        calls.data.push((4, value, u64::from(small)));
        if value.is_multiple_of(5) {
            return Err(HelperError::failed("a multiple of five"));
        }
        Ok(value ^ int as u64)
    };
    let five = |calls: &mut Calls<'_, '_>, a: u64, b: u64, c: u64, d: i64, e: u64| {
        calls.data.push((5, a ^ b, c));
        Ok(a.wrapping_add(b).wrapping_add(c).wrapping_mul(d as u64) ^ e)
    };
    let none = |calls: &mut Calls<'_, '_>| {
        calls.data.push((1, calls.budget(), 0));
        Ok(calls.budget())
    };
    helpers.add(1, "none", 0, none).unwrap();
    helpers.add(2, "sum", 3, sum).unwrap();
    helpers.add(3, "fill", 5, fill).unwrap();
    helpers.add(4, "picky", 200, picky).unwrap();
    helpers.add(5, "five", 1, five).unwrap();
    Arc::new(helpers)
}

const SIZE: usize = 16 << 10;

/// Generates random programs from a seed.
pub(crate) struct Generator {
    rng: StdRng,
}

impl Generator {
    pub(crate) fn new(seed: u64) -> Self {
        Generator { rng: StdRng::seed_from_u64(seed) }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.rng.random_range(0..end)
    }

    /// Returns a random number. Often, it is at the limit of what some instruction can handle.
    fn value(&mut self) -> u64 {
        const EDGES: [i64; 22] = [
            0,
            1,
            2,
            3,
            7,
            8,
            31,
            32,
            63,
            64,
            0x7f,
            0x80,
            0xffff,
            0x7fff_ffff,
            0x8000_0000,
            0xffff_ffff,
            i64::MAX,
            i64::MIN,
            SIZE as i64 - 1,
            SIZE as i64,
            0x5555_aaaa_1234_8765,
            0xffff_8000,
        ];
        match self.below(4) {
            0 => self.rng.random(),
            1 => self.below(SIZE as u64),
            2 => (EDGES[self.below(22) as usize]).wrapping_neg() as u64,
            _ => EDGES[self.below(22) as usize] as u64,
        }
    }

    fn offset(&mut self) -> i16 {
        match self.below(3) {
            0 => self.rng.random(),
            1 => -8 * self.below(70) as i16,
            _ => self.below(64) as i16 - 32,
        }
    }

    /// Generates a whole program: several functions, jumps within them, and calls of later
    /// functions.
    pub(crate) fn program(&mut self) -> Vec<u8> {
        let functions = 1 + self.below(3);
        let mut starts: Vec<usize> = Vec::new();
        let mut code: Vec<[u8; 8]> = Vec::new();
        let mut calls = Vec::new();
        for function in 0..functions {
            let start = code.len();
            starts.push(start);
            let len = 3 + self.below(40) as usize;
            let mut begins = Vec::new();
            while code.len() < start + len {
                begins.push(code.len());
                if self.below(12) == 0 && function + 1 < functions {
                    calls.push((code.len(), function + 1 + self.below(functions - function - 1)));
                    code.push(slot(0x85, 0, 1, 0, 0));
                } else {
                    self.instruction(&mut code);
                }
            }
            begins.push(code.len());
            code.push(slot(0x95, 0, 0, 0, 0));
            self.aim(&mut code, &begins);
        }
        for (at, function) in calls {
            let distance = starts[function as usize] as i64 - at as i64 - 1;
            code[at][4..].copy_from_slice(&(distance as i32).to_le_bytes());
        }
        let mut code = code.concat();
        // Corrupts a few programs. The structural check rejects them, or their meaning changes.
        if self.below(8) == 0 {
            for _ in 0..1 + self.below(4) {
                let at = self.below(code.len() as u64) as usize;
                code[at] = self.rng.random();
            }
        }
        code
    }

    /// Sets the targets of jumps, which are not set yet.
    fn aim(&mut self, code: &mut [[u8; 8]], begins: &[usize]) {
        for &at in begins {
            let opcode = code[at][0];
            let jumps = matches!(opcode & 7, 5 | 6) && !matches!(opcode >> 4, 8 | 9);
            if !jumps {
                continue;
            }
            // Most jumps go forward, so that most programs end.
            let nth = begins.iter().position(|begin| *begin == at).unwrap() as u64;
            let target = match self.below(4) {
                0 => self.below(begins.len() as u64),
                _ => (nth + 1 + self.below(6)).min(begins.len() as u64 - 1),
            };
            let distance = begins[target as usize] as i64 - at as i64 - 1;
            if opcode == 0x06 {
                code[at][4..].copy_from_slice(&(distance as i32).to_le_bytes());
            } else {
                code[at][2..4].copy_from_slice(&(distance as i16).to_le_bytes());
            }
        }
    }

    fn instruction(&mut self, code: &mut Vec<[u8; 8]>) {
        let (dst, src) = (self.below(10) as u8, self.below(11) as u8);
        let imm = self.value() as i32;
        let one = match self.below(100) {
            0..=44 => self.arithmetic(dst, src, imm),
            45..=51 => {
                let value = self.value();
                code.push(slot(0x18, dst, 0, 0, value as i32));
                slot(0, 0, 0, 0, (value >> 32) as i32)
            }
            52..=61 => {
                const LOADS: [u8; 7] = [0x61, 0x69, 0x71, 0x79, 0x81, 0x89, 0x91];
                slot(LOADS[self.below(7) as usize], dst, src, self.offset(), 0)
            }
            62..=71 => {
                const SIZES: [u8; 4] = [0x00, 0x08, 0x10, 0x18];
                let size = SIZES[self.below(4) as usize];
                match self.below(2) {
                    0 => slot(0x62 | size, src, 0, self.offset(), imm),
                    _ => slot(0x63 | size, src, self.below(11) as u8, self.offset(), 0),
                }
            }
            72..=78 => {
                const OPS: [i32; 10] = [0, 1, 0x40, 0x41, 0x50, 0x51, 0xa0, 0xa1, 0xe1, 0xf1];
                let op = OPS[self.below(10) as usize];
                let size = 0x18 * self.below(2) as u8;
                slot(0xc3 | size, src, dst, self.offset(), op)
            }
            79..=93 => {
                const CODES: [u8; 12] =
                    [0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0xa0, 0xb0, 0xc0, 0xd0];
                let (class, op) = (5 + self.below(2) as u8, CODES[self.below(12) as usize]);
                match (op, self.below(2)) {
                    (0, _) => slot(class, 0, 0, 0, 0),
                    (op, 0) => slot(class | op, dst, 0, 0, imm),
                    (op, _) => slot(class | op | 8, dst, src, 0, 0),
                }
            }
            94..=98 => slot(0x85, 0, 0, 0, 1 + self.below(5) as i32),
            _ => slot(0x95, 0, 0, 0, 0),
        };
        code.push(one);
    }

    fn arithmetic(&mut self, dst: u8, src: u8, imm: i32) -> [u8; 8] {
        const OPS: [u8; 13] =
            [0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x90, 0xa0, 0xb0, 0xc0, 0x80];
        let class = [4, 7][self.below(2) as usize];
        if self.below(12) == 0 {
            let (kind, bits) = (self.below(3), [16, 32, 64][self.below(3) as usize]);
            return slot([0xd4, 0xdc, 0xd7][kind as usize], dst, 0, 0, bits);
        }
        if self.below(12) == 0 {
            let bits = [8, 16, 32][self.below(if class == 7 { 3 } else { 2 }) as usize];
            return slot(0xb8 | class, dst, src, bits, 0);
        }
        let op = OPS[self.below(13) as usize];
        let signed = i16::from(matches!(op, 0x30 | 0x90) && self.below(2) == 0);
        match (op, self.below(2)) {
            (0x80, _) => slot(0x80 | class, dst, 0, 0, 0),
            (_, 0) => slot(op | class, dst, 0, signed, imm),
            _ => slot(op | class | 8, dst, src, signed, 0),
        }
    }
}

/// Result of loading and running a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Refused,
    Returned,
    Budget,
    Trapped,
}

/// Runs programs in sandboxes that are mapped next to memory that the programs must not change.
pub(crate) struct Arena {
    helpers: Arc<Helpers<Log>>,
    /// Instances of other programs, whose memory is close to that of the tested programs.
    neighbours: Vec<Instance<Log>>,
    heap: Vec<u64>,
}

const CANARY: u64 = 0x00c0_ffee_dead_beef;

impl Default for Arena {
    fn default() -> Self {
        let helpers = helpers();
        let exit = slot(0x95, 0, 0, 0, 0);
        let program =
            Program::from_code(&exit, Arc::clone(&helpers), &small(Engine::Auto)).unwrap();
        let mut neighbours: Vec<_> = (0..8).map(|_| program.instantiate().unwrap()).collect();
        // Leaves a gap in the address space, which the kernel uses for the next mappings.
        neighbours.remove(5);
        neighbours.remove(2);
        for neighbour in &mut neighbours {
            neighbour.memory().write(Region::new(0, SIZE as u64)).unwrap().fill(0xa5);
        }
        Arena { helpers, neighbours, heap: vec![CANARY; 64 << 10] }
    }
}

fn small(engine: Engine) -> Config {
    let mut config = super::config(engine);
    config.memory = SIZE;
    config
}

impl Arena {
    /// Checks that no program has changed the memory of these other instances.
    pub(crate) fn intact(&mut self) {
        assert!(self.heap.iter().all(|word| *word == CANARY), "the heap was written");
        for neighbour in &mut self.neighbours {
            let memory = neighbour.memory();
            let bytes = memory.read(Region::new(0, SIZE as u64)).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 0xa5), "a neighbour's memory was written");
        }
    }

    /// Runs a program on both engines, with the same random memory and arguments, and compares the
    /// effects.
    pub(crate) fn play(&mut self, code: &[u8], seed: u64) -> Outcome {
        let mut generator = Generator::new(seed ^ 0x5eed);
        let arguments = std::array::from_fn(|_| generator.value());
        let budget = generator.below(4_000);
        let mut found = Vec::new();
        for engine in super::ENGINES {
            let helpers = Arc::clone(&self.helpers);
            let program = match Program::from_code(code, helpers, &small(engine)) {
                Ok(program) => program,
                Err(LoadError::Check { .. }) => return Outcome::Refused,
                Err(error) => panic!("{error}"),
            };
            let mut instance = program.instantiate().unwrap();
            let region = Region::new(0, SIZE as u64);
            let mut pattern = seed | 1;
            for word in instance.memory().write(region).unwrap().as_chunks_mut::<8>().0 {
                pattern = pattern.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                *word = pattern.to_le_bytes();
            }
            let (mut left, mut calls) = (budget, Vec::new());
            let main = program.entry("main").unwrap();
            let result = instance.call(main, arguments, &mut left, &mut &mut calls);
            assert!(left <= budget);
            found.push((result, left, calls, instance));
        }
        let (result, left, calls, mut compiled) = found.pop().unwrap();
        let (expected, expected_left, expected_calls, mut interpreted) = found.pop().unwrap();
        assert_eq!(result, expected, "results differ");
        assert_eq!(left, expected_left, "budgets differ");
        assert_eq!(calls, expected_calls, "calls of helpers differ");
        let region = Region::new(0, SIZE as u64);
        let same =
            compiled.memory().read(region).unwrap() == interpreted.memory().read(region).unwrap();
        assert!(same, "memories differ");
        match result {
            Ok(_) => Outcome::Returned,
            Err(trap) if trap.kind == equic_vm::TrapKind::Budget => Outcome::Budget,
            Err(_) => Outcome::Trapped,
        }
    }
}
