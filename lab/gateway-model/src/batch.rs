//! Batches: several UDP datagrams that the kernel passes to the gateway as one packet (policy.md
//! section 1, "Batches").

use super::config::Service;
use super::frame::Datagram;
use super::ids;
use super::judge::rules;
use super::quic::{Class, ConnectionId, Payload, classify};
use equic_token::KeyRing;
use equic_wire::Version;
use equic_wire::packet::LongInvariant;

/// Maximum number of datagrams in a batch.
const MOST: usize = 128;

/// Returns the first datagram of a batch if the verdict on it applies to all datagrams of the
/// batch. Otherwise returns `None`. Also returns `None` if the batch has too many datagrams.
pub(super) fn take_apart<'a>(
    datagram: &Datagram<'a>,
    segment: usize,
    service: &Service,
    ring: Option<&KeyRing>,
) -> Option<Datagram<'a>> {
    let whole = datagram.payload.filter(|whole| whole.data.len() == whole.length)?;
    let mut all = whole.data.chunks(segment).map(Payload::whole);
    let count = all.len();
    let first = all.next().filter(|_| count <= MOST)?;
    let malformed = classify(first, &rules(service)).is_err();
    let fits = malformed || all.all(|other| stands_for(first, other, service, ring));
    let taken = Datagram { payload: Some(first), datagrams: count as u64, ..*datagram };
    fits.then_some(taken)
}

/// Returns `true` if the verdict on the datagram `first`, which is well-formed, also applies to the
/// datagram `other`.
fn stands_for(
    first: Payload<'_>,
    other: Payload<'_>,
    service: &Service,
    ring: Option<&KeyRing>,
) -> bool {
    let class_of = |payload| classify(payload, &rules(service)).ok();
    let (Some(class), Some(other_class)) = (class_of(first), class_of(other)) else { return false };
    // Each packet of an unknown version needs its own verdict.
    if [class, other_class].contains(&Class::UnknownVersion) {
        return false;
    }
    let same_attempt = attempt(first, &class) == attempt(other, &other_class);
    let opens = matches!(class, Class::Opening(_));
    match other_class {
        Class::Opening(_) => opens && same_attempt,
        Class::Early(_) if opens || matches!(class, Class::Early(_)) => same_attempt,
        _ if !service.check_ids => true,
        Class::Early(_) => false,
        _ if opens => {
            let id = id_of(other, &other_class).unwrap_or_default();
            matches!(ids::judge(ring, id.as_bytes()), ids::Proof::Made)
        }
        _ => {
            let id = id_of(first, &class);
            id.is_some() && id == id_of(other, &other_class)
        }
    }
}

/// Returns the version and both connection IDs of the packet that decides the verdict on a
/// datagram.
fn attempt(payload: Payload<'_>, class: &Class) -> Option<(Version, ConnectionId, ConnectionId)> {
    if let Class::Opening(opening) = class {
        return Some((opening.version, opening.dcid, opening.scid));
    }
    let header = LongInvariant::parse(payload.data).ok()?;
    Some((header.version, ConnectionId::cut(header.dcid), ConnectionId::cut(header.scid)))
}

fn id_of(payload: Payload<'_>, class: &Class) -> Option<ConnectionId> {
    match class {
        Class::Short => ids::of_short(payload.data),
        _ => attempt(payload, class).map(|(_, dcid, _)| dcid),
    }
}
