//! Changes an operation of one connection with a hook. In this example, the hook decides how often
//! a server acknowledges packets.
//!
//!     cargo run -p equic-transport --example hook
//!
//! Two servers receive the same bytes. One acknowledges by the default rules. The other has the
//! hook [`RareAcks`], which replaces the operation [`Operation::AckPolicy`].

use std::error::Error;

use equic_transport::Direction;
use equic_transport::operation::{
    AttachPoint, Call, Decision, Hook, HookContext, HookError, Operation,
};

#[path = "in_memory.rs"]
#[allow(dead_code, reason = "it is an example by itself")]
pub(crate) mod in_memory;

/// A hook that makes a connection acknowledge every hundredth packet, and at the latest after 20
/// ms.
pub(crate) struct RareAcks;

impl Hook for RareAcks {
    fn replace(
        &mut self,
        _: &mut HookContext<'_>,
        _: &mut Call<'_>,
        outputs: &mut [u64],
    ) -> Result<Decision, HookError> {
        // Threshold, max_delay in nanoseconds and reordering: the outputs that are documented for
        // the operation.
        outputs.copy_from_slice(&[100, 20_000_000, 3]);
        Ok(Decision::Done)
    }
}

pub(crate) fn main() -> Result<(), Box<dyn Error>> {
    let (usual, seldom) = (acknowledgements(None)?, acknowledgements(Some(Box::new(RareAcks)))?);
    println!("{usual} acknowledgments without the hook, {seldom} with it");
    Ok(())
}

/// Returns the number of acknowledgments that a server with this hook sends for 100,000 bytes.
pub(crate) fn acknowledgements(hook: Option<Box<dyn Hook>>) -> Result<u64, Box<dyn Error>> {
    let mut pair = in_memory::Pair::connect()?;
    if let Some(hook) = hook {
        pair.server().attach(hook, &[AttachPoint::replace(Operation::AckPolicy)])?;
    }
    let before = pair.server().stats().acks_sent;
    let id = pair.client().open(Direction::Unidirectional).ok_or("no stream is allowed")?;
    pair.client().streams().write(id, &[7; 100_000])?;
    pair.client().streams().finish(id)?;
    let incoming = pair.wait(|pair| pair.server().accept(Direction::Unidirectional))?;
    let read = pair.read_to_end(in_memory::Pair::server, incoming)?;
    assert_eq!(read.len(), 100_000, "all bytes arrived");
    Ok(pair.server().stats().acks_sent - before)
}
