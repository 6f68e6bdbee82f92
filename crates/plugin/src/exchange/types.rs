//! Assigns frame types on the wire to plugins, and checks the types that the peer assigns.
//!
//! A plugin declares its frame types in its manifest. For each connection, the side that offers the
//! plugin chooses the numbers on the wire. A client uses even numbers and a server odd ones, so
//! that simultaneous offers do not collide.

use equic_wire::frame::FrameType;
use equic_wire::{Side, VarInt};
use thiserror::Error;

use super::frame::Kind;

/// First frame type that a plugin may use. The IETF assigns the smaller numbers (RFC 9000
/// s.22.1.1).
const FIRST_PRIVATE: u64 = 0x40;

/// Reason for refusing a frame type of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NotAllotted {
    /// The IETF assigns numbers of this range.
    #[error("frame type {0:#x} is not private: private types begin at 0x40")]
    Reserved(u64),
    /// The type belongs to QUIC or to an extension that the transport implements.
    #[error("frame type {0:#x} belongs to the transport")]
    Known(u64),
    /// The type belongs to the plugin exchange.
    #[error("frame type {0:#x} belongs to the plugin exchange")]
    Exchange(u64),
    /// Only the other side may use this number: clients use even and servers odd ones.
    #[error(
        "frame type {0:#x} was allotted by the wrong side: clients allot even types, servers odd types"
    )]
    OtherSide(u64),
    /// The offer uses the type twice.
    #[error("frame type {0:#x} is allotted twice")]
    Twice(u64),
    /// Another plugin or hook of the connection uses the type.
    #[error("frame type {0:#x} is already in use on the connection")]
    InUse(u64),
}

/// Checks whether an offer by `side` may use these frame types. `in_use` returns `true` for types
/// of other plugins and hooks.
pub(super) fn check(
    types: &[u64],
    side: Side,
    in_use: impl Fn(u64) -> bool,
) -> Result<(), NotAllotted> {
    for (at, one) in types.iter().copied().enumerate() {
        free(one, side)?;
        if types[..at].contains(&one) {
            return Err(NotAllotted::Twice(one));
        }
        if in_use(one) {
            return Err(NotAllotted::InUse(one));
        }
    }
    Ok(())
}

/// Checks whether offers by `side` may use this number as a frame type, whatever else is in use.
fn free(one: u64, side: Side) -> Result<(), NotAllotted> {
    if one < FIRST_PRIVATE {
        return Err(NotAllotted::Reserved(one));
    }
    if VarInt::new(one).map_or(true, |one| FrameType(one).is_known()) {
        return Err(NotAllotted::Known(one));
    }
    if Kind::of(one).is_some() {
        return Err(NotAllotted::Exchange(one));
    }
    if one % 2 != u64::from(side == Side::Server) {
        return Err(NotAllotted::OtherSide(one));
    }
    Ok(())
}

/// Chooses the types on the wire for the types in a manifest: the same numbers where possible,
/// otherwise numbers of the same encoded length. Returns `None` if every number of that length is
/// in use. The limit on the number of offers makes this impossible.
pub(super) fn choose(named: &[u64], side: Side, in_use: impl Fn(u64) -> bool) -> Option<Vec<u64>> {
    let mut chosen: Vec<u64> = Vec::with_capacity(named.len());
    for name in named {
        let (low, high) = of_one_length(*name);
        let first = name & !1 | u64::from(side == Side::Server);
        let mut all = (first..=high).step_by(2).chain((low..first).rev());
        let one =
            all.find(|one| free(*one, side).is_ok() && !chosen.contains(one) && !in_use(*one))?;
        chosen.push(one);
    }
    Some(chosen)
}

/// Returns the smallest and the largest number that an offer may use instead of this number. Both
/// have the same encoded length (RFC 9000 s.16).
fn of_one_length(number: u64) -> (u64, u64) {
    match number {
        ..=0x3fff => (FIRST_PRIVATE, 0x3fff),
        0x4000..=0x3fff_ffff => (0x4000, 0x3fff_ffff),
        _ => (0x4000_0000, (1 << 62) - 1),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const NOBODY: fn(u64) -> bool = |_| false;

    #[test]
    fn frame_type_that_must_not_be_allotted_is_named() {
        use NotAllotted::{Exchange, InUse, Known, OtherSide, Reserved, Twice};
        let by_server = |types: &[u64]| check(types, Side::Server, |one| one == 0x1f09);
        assert_eq!(by_server(&[0x1f01, 0x1f03]), Ok(()));
        assert_eq!(by_server(&[0x3f]), Err(Reserved(0x3f)));
        // This is the frame type of ACK_FREQUENCY, which the transport implements.
        assert_eq!(by_server(&[0xaf]), Err(Known(0xaf)));
        assert_eq!(by_server(&[1 << 62 | 1]), Err(Known(1 << 62 | 1)));
        let data = Kind::Data.frame_type();
        assert_eq!(by_server(&[data]), Err(Exchange(data)));
        assert_eq!(by_server(&[0x1f00]), Err(OtherSide(0x1f00)));
        assert_eq!(check(&[0x1f01], Side::Client, NOBODY), Err(OtherSide(0x1f01)));
        assert_eq!(by_server(&[0x1f01, 0x1f01]), Err(Twice(0x1f01)));
        assert_eq!(by_server(&[0x1f01, 0x1f09]), Err(InUse(0x1f09)));
    }

    #[test]
    fn frame_type_that_is_chosen_may_be_allotted() {
        let mut taken = BTreeSet::new();
        for round in 0..100 {
            let side = if round % 2 == 0 { Side::Client } else { Side::Server };
            let named = [0x1f00, 0xae, 0x3fff, 0x4000, 0x2f50_4c00, (1 << 62) - 1, 0x40];
            let chosen = choose(&named, side, |one| taken.contains(&one)).unwrap();
            assert_eq!(check(&chosen, side, |one| taken.contains(&one)), Ok(()));
            for (one, name) in chosen.iter().zip(named) {
                let length = |number| VarInt::new(number).unwrap().encoded_len();
                assert_eq!(length(*one), length(name), "{one:#x} for {name:#x}");
            }
            taken.extend(chosen);
        }
        let named = choose(&[0x1f00], Side::Client, NOBODY).unwrap();
        assert_eq!(named, [0x1f00], "as it is named, where it can be");
        assert_eq!(choose(&[0x1f00], Side::Client, |one| one < 0x4000), None);
    }
}
