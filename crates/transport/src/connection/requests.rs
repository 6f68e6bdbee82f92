//! Requests of hooks that are carried out between calls of operations, and the answers to them.

use equic_wire::frame::{Frame, Frames};

use super::{Connection, Event};
use crate::operation::{HookError, HookEvent, HookId, Request};
use crate::stream::FrameError;
use crate::violation::{Failure, Violation};

/// Maximum number of requests carried out in a row. It stops a hook that answers each result with
/// another request.
const MAX_IN_A_ROW: usize = 128;

impl Connection {
    /// Carries out the requests of hooks.
    #[inline]
    pub(super) fn run_requests(&mut self) {
        if self.extensions.has_requests() {
            self.run_waiting_requests();
        }
    }

    #[cold]
    fn run_waiting_requests(&mut self) {
        for _ in 0..MAX_IN_A_ROW {
            let Some(request) = self.extensions.next_request() else { return };
            match request {
                Request::Attach { by, token, hook, points, frames } => {
                    // If the new hook fails at once, that is reported after this.
                    let outcome = self.put_on(hook, &points, &frames, Some(by));
                    self.give(by, &HookEvent::Attached { token, outcome });
                }
                Request::Detach { by, hook } => {
                    if self.extensions.is_nested_in(hook, by) {
                        self.detach(hook);
                    }
                }
                Request::Close { by: _, code, reason } => {
                    let now = self.now;
                    self.fail(now, Failure::internal(code, &reason));
                }
                Request::Process { by, number, payload } => {
                    if let Err(why) = self.process_recovered(number, &payload) {
                        let what = format!("recovered payload of packet {number}: {why}");
                        self.take_off(by, HookError(what));
                    }
                }
                Request::TakeOff { hook, error } => {
                    // The hook was already taken out of its place.
                    self.extensions.on_failed(hook, &error);
                    self.detach(hook);
                    self.events.push_back(Event::HookFailed(hook, error));
                }
                Request::Failed { to, hook, error } => {
                    self.give(to, &HookEvent::Failed { hook, error });
                }
            }
        }
    }

    /// Passes an event to a hook, if the hook is attached.
    fn give(&mut self, id: HookId, event: &HookEvent) {
        let Some(place) = self.hooks.place(id) else { return };
        let outcome = self.call_at(place, |hook, host| hook.on_event(host, event));
        if let Some(Err(error)) = outcome {
            self.take_off_at(place, error);
        }
    }

    /// Processes the payload of a 1-RTT packet that a hook has recovered, if the packet has not
    /// arrived. Accepts STREAM and DATAGRAM frames, up to the first frame of another type. The
    /// sender must send all others again, because it considers the packet lost. A hook must not
    /// supply acknowledgements, keys, connection IDs, paths or the end of the connection.
    ///
    /// # Errors
    /// Returns an error if the peer cannot have sent the content. The frames before it have been
    /// processed.
    pub(super) fn process_recovered(
        &mut self,
        number: u64,
        payload: &[u8],
    ) -> Result<(), Violation> {
        if self.closing.is_closed() || !self.handshake.is_complete() {
            return Ok(());
        }
        if self.spaces.data().received.is_duplicate(number) || !self.extensions.on_recovered(number)
        {
            return Ok(());
        }
        for frame in Frames::new(payload).map_err(|error| Violation::Frame(error.kind))? {
            match frame.map_err(|error| Violation::Frame(error.kind))? {
                Frame::Unknown(_) => break,
                Frame::Datagram(datagram) => {
                    if !self.on_datagram_frame(&datagram) {
                        return Err(Violation::DatagramSize);
                    }
                }
                frame => match self.on_stream_frame(&frame) {
                    Ok(()) => {}
                    // The frame is dropped as if its packet were lost. The peer sends the data
                    // again.
                    Err(FrameError::TooFragmented) => break,
                    Err(FrameError::Close(violation)) => return Err(violation),
                },
            }
        }
        self.stats.packets_recovered += 1;
        Ok(())
    }
}
