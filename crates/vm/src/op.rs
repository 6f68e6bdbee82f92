//! Decoded instructions, which the interpreter and the compilers use. Registers are valid, reserved
//! fields are zero, and immediates have their final meaning. `decode` creates the instructions from
//! bytes.

/// A BPF register, `r0` to `r10`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reg(u8);

impl Reg {
    pub(crate) const R0: Reg = Reg(0);
    pub(crate) const FRAME: Reg = Reg(10);

    pub(crate) fn new(number: u8) -> Option<Reg> {
        (number <= 10).then_some(Reg(number))
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The second operand of an arithmetic or jump instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    Reg(Reg),
    /// An immediate. A 64-bit instruction sign-extends it to 64 bits.
    Imm(i32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AluOp {
    Add,
    Sub,
    Mul,
    Div,
    SignedDiv,
    Or,
    And,
    Lsh,
    Rsh,
    Mod,
    SignedMod,
    Xor,
    Mov,
    Arsh,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Equal,
    NotEqual,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    /// JSET: true if `left & right` is not zero.
    Set,
    SignedGreater,
    SignedGreaterEqual,
    SignedLess,
    SignedLessEqual,
}

/// Kind of byte swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Swap {
    /// Converts from the host's byte order to little endian.
    Little,
    /// Converts from the host's byte order to big endian.
    Big,
    /// Swaps unconditionally.
    Always,
}

/// Size of a load or a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    B1,
    B2,
    B4,
    B8,
}

impl Size {
    pub(crate) fn bytes(self) -> usize {
        match self {
            Size::B1 => 1,
            Size::B2 => 2,
            Size::B4 => 4,
            Size::B8 => 8,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtomicOp {
    Add,
    Or,
    And,
    Xor,
    Exchange,
    CompareExchange,
}

/// The memory operand `[base + offset]` of an instruction. The resulting address is masked later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) base: Reg,
    pub(crate) offset: i16,
}

/// A decoded instruction. Targets of jumps and calls are indices of instructions in the whole
/// program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Alu {
        op: AluOp,
        wide: bool,
        dst: Reg,
        src: Operand,
    },
    /// Sign-extends the lowest `bits` of `src`, to 64 bits if `wide`, otherwise to 32.
    SignExtend {
        wide: bool,
        bits: u8,
        dst: Reg,
        src: Reg,
    },
    Negate {
        wide: bool,
        dst: Reg,
    },
    Swap {
        swap: Swap,
        bits: u8,
        dst: Reg,
    },
    Load {
        size: Size,
        signed: bool,
        dst: Reg,
        from: Place,
    },
    Store {
        size: Size,
        to: Place,
        src: Operand,
    },
    Atomic {
        op: AtomicOp,
        fetch: bool,
        wide: bool,
        at: Place,
        src: Reg,
    },
    LoadWide {
        dst: Reg,
        value: u64,
    },
    /// The second half of the preceding `LoadWide`.
    WideTail,
    Jump {
        target: u32,
    },
    Branch {
        condition: Condition,
        wide: bool,
        left: Reg,
        right: Operand,
        target: u32,
    },
    /// A call of a helper. `helper` is the helper's number before the structural check, and its
    /// index in the table after the check.
    Helper {
        helper: u32,
    },
    /// A call of a function of the program. `cost` is the charge for it: the sum over the
    /// function's instructions.
    Call {
        target: u32,
        cost: u32,
    },
    Exit,
}

impl Op {
    /// Returns the register that the instruction writes, or `None`. Calls also write `r0` to `r5`,
    /// which are not included.
    pub(crate) fn writes(&self) -> Option<Reg> {
        match *self {
            Op::Alu { dst, .. }
            | Op::SignExtend { dst, .. }
            | Op::Negate { dst, .. }
            | Op::Swap { dst, .. }
            | Op::Load { dst, .. }
            | Op::LoadWide { dst, .. } => Some(dst),
            Op::Atomic { op: AtomicOp::CompareExchange, .. } => Some(Reg::R0),
            Op::Atomic { fetch: true, src, .. } => Some(src),
            _ => None,
        }
    }

    /// Returns the first instruction of the function that the instruction calls, or `None` if it
    /// calls none.
    pub(crate) fn callee(&self) -> Option<u32> {
        match *self {
            Op::Call { target, .. } => Some(target),
            _ => None,
        }
    }

    /// Returns the charge for the instruction, in units of the budget. A division is charged as
    /// several instructions, because it takes the CPU about that long (up to 40 cycles with 64
    /// bits).
    pub(crate) fn weight(&self) -> u32 {
        const DIVISION: u32 = 8;
        match *self {
            Op::Alu {
                op: AluOp::Div | AluOp::SignedDiv | AluOp::Mod | AluOp::SignedMod,
                wide,
                ..
            } => {
                if wide {
                    2 * DIVISION
                } else {
                    DIVISION
                }
            }
            _ => 1,
        }
    }

    /// Returns the target of a jump, or `None` if the instruction is not a jump. A call is not a
    /// jump, because it returns.
    pub(crate) fn jump(&self) -> Option<u32> {
        match *self {
            Op::Jump { target } | Op::Branch { target, .. } => Some(target),
            _ => None,
        }
    }
}
