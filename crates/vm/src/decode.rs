//! Decodes the bytes of a program into instructions: RFC 9669, with the conformance groups base32,
//! base64, divmul32, divmul64, atomic32 and atomic64. Instructions of the deprecated group `packet`
//! are rejected, and so are references to maps and types.

use crate::check::{CheckError, Wrong};
use crate::op::{AluOp, AtomicOp, Condition, Op, Operand, Place, Reg, Size, Swap};

/// Length of an instruction in bytes. LDDW takes two such slots.
pub(crate) const SLOT: usize = 8;

/// The fields of an encoded instruction (RFC 9669 s.3).
#[derive(Clone, Copy)]
struct Fields {
    opcode: u8,
    dst: u8,
    src: u8,
    offset: i16,
    imm: i32,
}

impl Fields {
    fn read(slot: &[u8; SLOT]) -> Fields {
        let [opcode, registers, o0, o1, i0, i1, i2, i3] = *slot;
        Fields {
            opcode,
            dst: registers & 0xf,
            src: registers >> 4,
            offset: i16::from_le_bytes([o0, o1]),
            imm: i32::from_le_bytes([i0, i1, i2, i3]),
        }
    }

    fn dst(self) -> Result<Reg, Wrong> {
        Reg::new(self.dst).ok_or(Wrong::Register(self.dst))
    }

    fn src(self) -> Result<Reg, Wrong> {
        Reg::new(self.src).ok_or(Wrong::Register(self.src))
    }

    fn no_dst(self) -> Result<(), Wrong> {
        if self.dst == 0 { Ok(()) } else { Err(Wrong::Reserved("dst")) }
    }

    fn no_src(self) -> Result<(), Wrong> {
        if self.src == 0 { Ok(()) } else { Err(Wrong::Reserved("src")) }
    }

    fn no_offset(self) -> Result<(), Wrong> {
        if self.offset == 0 { Ok(()) } else { Err(Wrong::Reserved("offset")) }
    }

    fn no_imm(self) -> Result<(), Wrong> {
        if self.imm == 0 { Ok(()) } else { Err(Wrong::Reserved("imm")) }
    }

    /// Returns the second operand of an arithmetic or jump instruction: a register or an immediate,
    /// as the instruction's source bit selects.
    fn operand(self) -> Result<Operand, Wrong> {
        if self.opcode & 0x08 == 0 {
            self.no_src()?;
            Ok(Operand::Imm(self.imm))
        } else {
            self.no_imm()?;
            Ok(Operand::Reg(self.src()?))
        }
    }
}

/// Decodes all instructions in `code`. Does not check the targets of jumps.
pub(crate) fn decode(code: &[u8]) -> Result<Vec<Op>, CheckError> {
    let (slots, rest) = code.as_chunks::<SLOT>();
    if !rest.is_empty() {
        return Err(Wrong::Ragged(code.len()).at(slots.len()));
    }
    let mut ops = Vec::with_capacity(slots.len());
    while ops.len() < slots.len() {
        let at = ops.len();
        let fields = Fields::read(&slots[at]);
        if fields.opcode == 0x18 {
            let tail = slots.get(at + 1).map(Fields::read);
            ops.push(load_wide(fields, tail).map_err(|wrong| wrong.at(at))?);
            ops.push(Op::WideTail);
        } else {
            ops.push(one(fields, at).map_err(|wrong| wrong.at(at))?);
        }
    }
    Ok(ops)
}

/// Decodes LDDW (RFC 9669 s.5.4).
fn load_wide(fields: Fields, tail: Option<Fields>) -> Result<Op, Wrong> {
    let tail = tail.ok_or(Wrong::HalfWide)?;
    if fields.src != 0 {
        return Err(Wrong::WideKind(fields.src));
    }
    if (tail.opcode, tail.dst, tail.src, tail.offset) != (0, 0, 0, 0) {
        return Err(Wrong::Reserved("second half"));
    }
    fields.no_offset()?;
    let value = u64::from(fields.imm as u32) | u64::from(tail.imm as u32) << 32;
    Ok(Op::LoadWide { dst: fields.dst()?, value })
}

fn one(fields: Fields, at: usize) -> Result<Op, Wrong> {
    match fields.opcode & 0x07 {
        0x00 => Err(match fields.opcode & 0xe0 {
            0x20 | 0x40 => Wrong::PacketAccess,
            _ => Wrong::Opcode(fields.opcode),
        }),
        0x01 => load(fields),
        0x02 | 0x03 => store(fields),
        0x04 => arithmetic(fields, false),
        0x05 => jump(fields, true, at),
        0x06 => jump(fields, false, at),
        _ => arithmetic(fields, true),
    }
}

/// Decodes arithmetic instructions (RFC 9669 s.4.1 and s.4.2).
fn arithmetic(fields: Fields, wide: bool) -> Result<Op, Wrong> {
    let dst = fields.dst()?;
    let op = match (fields.opcode >> 4, fields.offset) {
        (0x8, 0) if fields.opcode & 0x08 == 0 => {
            fields.no_src()?;
            fields.no_imm()?;
            return Ok(Op::Negate { wide, dst });
        }
        (0xd, _) => return swap(fields, wide, dst),
        (0xb, bits @ (8 | 16 | 32)) if fields.opcode & 0x08 != 0 && (wide || bits != 32) => {
            fields.no_imm()?;
            return Ok(Op::SignExtend { wide, bits: bits as u8, dst, src: fields.src()? });
        }
        (0x0, 0) => AluOp::Add,
        (0x1, 0) => AluOp::Sub,
        (0x2, 0) => AluOp::Mul,
        (0x3, 0) => AluOp::Div,
        (0x3, 1) => AluOp::SignedDiv,
        (0x4, 0) => AluOp::Or,
        (0x5, 0) => AluOp::And,
        (0x6, 0) => AluOp::Lsh,
        (0x7, 0) => AluOp::Rsh,
        (0x9, 0) => AluOp::Mod,
        (0x9, 1) => AluOp::SignedMod,
        (0xa, 0) => AluOp::Xor,
        (0xb, 0) => AluOp::Mov,
        (0xc, 0) => AluOp::Arsh,
        (0x0..=0x7 | 0x9..=0xc, _) => return Err(Wrong::Reserved("offset")),
        _ => return Err(Wrong::Opcode(fields.opcode)),
    };
    let src = match (op, fields.operand()?) {
        // RFC 9669 s.4.1: only the lowest bits of the shift amount are used.
        (AluOp::Lsh | AluOp::Rsh | AluOp::Arsh, Operand::Imm(imm)) => {
            Operand::Imm(imm & if wide { 63 } else { 31 })
        }
        (_, src) => src,
    };
    Ok(Op::Alu { op, wide, dst, src })
}

fn swap(fields: Fields, wide: bool, dst: Reg) -> Result<Op, Wrong> {
    fields.no_src()?;
    fields.no_offset()?;
    let swap = match (wide, fields.opcode & 0x08) {
        (true, 0) => Swap::Always,
        (true, _) => return Err(Wrong::Opcode(fields.opcode)),
        (false, 0) => Swap::Little,
        (false, _) => Swap::Big,
    };
    let bits = match fields.imm {
        16 | 32 | 64 => fields.imm as u8,
        other => return Err(Wrong::SwapWidth(other)),
    };
    Ok(Op::Swap { swap, bits, dst })
}

/// Decodes jumps and calls (RFC 9669 s.4.3).
fn jump(fields: Fields, wide: bool, at: usize) -> Result<Op, Wrong> {
    let condition = match fields.opcode >> 4 {
        0x0 => return always(fields, wide, at),
        0x8 => return call(fields, wide, at),
        0x9 if fields.opcode == 0x95 => {
            fields.no_dst()?;
            fields.no_src()?;
            fields.no_offset()?;
            fields.no_imm()?;
            return Ok(Op::Exit);
        }
        0x1 => Condition::Equal,
        0x2 => Condition::Greater,
        0x3 => Condition::GreaterEqual,
        0x4 => Condition::Set,
        0x5 => Condition::NotEqual,
        0x6 => Condition::SignedGreater,
        0x7 => Condition::SignedGreaterEqual,
        0xa => Condition::Less,
        0xb => Condition::LessEqual,
        0xc => Condition::SignedLess,
        0xd => Condition::SignedLessEqual,
        _ => return Err(Wrong::Opcode(fields.opcode)),
    };
    let target = relative(at, i32::from(fields.offset))?;
    Ok(Op::Branch { condition, wide, left: fields.dst()?, right: fields.operand()?, target })
}

/// Decodes JA. Its distance is in `offset` for the 64-bit class JMP, and in `imm` for class JMP32.
fn always(fields: Fields, wide: bool, at: usize) -> Result<Op, Wrong> {
    if fields.opcode & 0x08 != 0 {
        return Err(Wrong::Opcode(fields.opcode));
    }
    fields.no_dst()?;
    fields.no_src()?;
    let distance = if wide {
        fields.no_imm()?;
        i32::from(fields.offset)
    } else {
        fields.no_offset()?;
        fields.imm
    };
    Ok(Op::Jump { target: relative(at, distance)? })
}

fn call(fields: Fields, wide: bool, at: usize) -> Result<Op, Wrong> {
    match (wide, fields.opcode) {
        (true, 0x85) => {}
        (true, _) => return Err(Wrong::IndirectCall),
        (false, _) => return Err(Wrong::Opcode(fields.opcode)),
    }
    fields.no_dst()?;
    fields.no_offset()?;
    match fields.src {
        0 => Ok(Op::Helper { helper: fields.imm as u32 }),
        1 => Ok(Op::Call { target: relative(at, fields.imm)?, cost: 0 }),
        other => Err(Wrong::CallKind(other)),
    }
}

fn relative(at: usize, distance: i32) -> Result<u32, Wrong> {
    let target = at as i64 + 1 + i64::from(distance);
    u32::try_from(target).map_err(|_| Wrong::Target(target))
}

fn size(fields: Fields) -> Size {
    match fields.opcode & 0x18 {
        0x00 => Size::B4,
        0x08 => Size::B2,
        0x10 => Size::B1,
        _ => Size::B8,
    }
}

/// Decodes loads (RFC 9669 s.5.1 and s.5.2).
fn load(fields: Fields) -> Result<Op, Wrong> {
    let signed = match fields.opcode & 0xe0 {
        0x60 => false,
        0x80 if size(fields) != Size::B8 => true,
        _ => return Err(Wrong::Opcode(fields.opcode)),
    };
    fields.no_imm()?;
    let from = Place { base: fields.src()?, offset: fields.offset };
    Ok(Op::Load { size: size(fields), signed, dst: fields.dst()?, from })
}

fn store(fields: Fields) -> Result<Op, Wrong> {
    let to = Place { base: fields.dst()?, offset: fields.offset };
    let size = size(fields);
    match (fields.opcode & 0xe0, fields.opcode & 0x01) {
        (0x60, 0) => {
            fields.no_src()?;
            Ok(Op::Store { size, to, src: Operand::Imm(fields.imm) })
        }
        (0x60, _) => {
            fields.no_imm()?;
            Ok(Op::Store { size, to, src: Operand::Reg(fields.src()?) })
        }
        (0xc0, 1) if matches!(size, Size::B4 | Size::B8) => atomic(fields, to, size == Size::B8),
        _ => Err(Wrong::Opcode(fields.opcode)),
    }
}

/// Decodes atomic operations (RFC 9669 s.5.3).
fn atomic(fields: Fields, at: Place, wide: bool) -> Result<Op, Wrong> {
    let (op, fetch) = match fields.imm {
        0x00 | 0x01 => (AtomicOp::Add, fields.imm & 1 != 0),
        0x40 | 0x41 => (AtomicOp::Or, fields.imm & 1 != 0),
        0x50 | 0x51 => (AtomicOp::And, fields.imm & 1 != 0),
        0xa0 | 0xa1 => (AtomicOp::Xor, fields.imm & 1 != 0),
        0xe1 => (AtomicOp::Exchange, true),
        0xf1 => (AtomicOp::CompareExchange, true),
        other => return Err(Wrong::Atomic(other)),
    };
    Ok(Op::Atomic { op, fetch, wide, at, src: fields.src()? })
}
