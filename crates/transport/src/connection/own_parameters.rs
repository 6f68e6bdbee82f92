//! Transport parameters of hooks (RFC 9000 s.7.4.2). A hook that is attached before the first
//! packet can write parameters. It then receives the peer's parameters with the same IDs.

use equic_wire::Side;
use equic_wire::params::{RawParameter, RawParameters};

use super::Connection;
use super::early::Early;
use super::space::{Space, SpaceId};
use crate::operation::{Bytes, Call, Decision, HookError, HookId, Operation};
use crate::stream::Streams;

/// Maximum number of bytes that one hook may write.
const MAX_BYTES: usize = 256;
/// Maximum number of parameters that one hook may write.
const MAX_PARAMETERS: usize = 8;
/// Smallest permitted ID. Lower IDs are reserved for standards (RFC 9000 s.22.3).
const FIRST: u64 = 0x40;

impl Connection {
    /// Lets a newly attached hook write transport parameters, if the first packet is not sent or
    /// processed yet.
    pub(super) fn ask_for_parameters(&mut self, id: HookId) {
        if !self.start.is_unheard(self.side, self.stats.packets_sent) {
            return;
        }
        match self.write_parameters(id) {
            Ok(false) => {}
            Ok(true) => self.begin_tls_anew(id),
            Err(error) => self.take_off(id, error),
        }
    }

    /// Calls a hook to write parameters. Declares all of them, or none. Returns whether there are
    /// any.
    fn write_parameters(&mut self, id: HookId) -> Result<bool, HookError> {
        let operation = Operation::WriteParameters;
        let Some(place) = self.hooks.place(id) else { return Ok(false) };
        let points = self.hooks.points(place, operation);
        let (mut buffer, mut outputs) = ([0; MAX_BYTES], [0]);
        let ran = self.call_at(place, |hook, host| {
            let bytes = Bytes::Out(&mut buffer);
            let mut call = Call { operation, parameter: 0, inputs: &[], bytes };
            for point in &points {
                if point.before {
                    hook.before(host, &call)?;
                }
                if point.replace
                    && hook.replace(host, &mut call, &mut outputs)? == Decision::Default
                {
                    outputs = [0];
                }
                if point.after {
                    hook.after(host, &call, &outputs)?;
                }
            }
            Ok(())
        });
        ran.unwrap_or(Ok(()))?;
        let length = usize::try_from(outputs[0]).unwrap_or(usize::MAX);
        let wrong = |what: String| HookError(format!("{operation}: {what}"));
        let written = buffer.get(..length);
        let written =
            written.ok_or_else(|| wrong(format!("the hook wrote more than {MAX_BYTES} bytes")))?;
        let mut parameters = Vec::new();
        for one in RawParameters::new(written) {
            let one = one.map_err(|_| {
                wrong("the hook did not write valid transport parameters".to_owned())
            })?;
            let number = one.id.0.get();
            let twice = parameters.iter().any(|other: &RawParameter<'_>| other.id == one.id);
            let free = number >= FIRST && !one.id.is_known() && !one.id.is_reserved();
            if !free || twice || self.start.declares(one.id) {
                return Err(wrong(format!(
                    "the hook may not write the transport parameter {number:#x}"
                )));
            }
            parameters.push(one);
        }
        if parameters.len() > MAX_PARAMETERS {
            return Err(wrong(format!(
                "the hook wrote more than {MAX_PARAMETERS} transport parameters"
            )));
        }
        for one in &parameters {
            self.start.declare_also(*one);
            self.extensions.on_declared(id, one.id.0.get());
        }
        Ok(!parameters.is_empty())
    }

    /// Restarts TLS, which needs the transport parameters at its start. The peer has not seen the
    /// first attempt.
    fn begin_tls_anew(&mut self, id: HookId) {
        let tls = match self.start.session() {
            Ok(tls) => tls,
            Err(error) => return self.take_off(id, HookError(format!("TLS: {error}"))),
        };
        self.handshake.restart(tls);
        if self.side == Side::Server {
            return;
        }
        if let Some(initial) = self.space(SpaceId::Initial) {
            *initial = Space::new();
        }
        if self.keys.has_early() {
            // The first attempt may have used up the session. No early data was sent with it.
            self.early = Early::default();
            self.keys.set_early(None);
            let pages = self.streams.take_pages();
            self.streams = Streams::new(self.side, self.config.clone());
            self.streams.set_pages(pages);
        }
        self.drive_tls(self.now);
        self.begin_early();
    }

    /// Passes each of the peer's transport parameters to the hook that declared the same ID.
    pub(super) fn tell_parameters(&mut self, bytes: &[u8]) {
        for one in RawParameters::new(bytes).flatten() {
            let number = one.id.0.get();
            if let Some(id) = self.extensions.declared_by(number) {
                self.call_one(id, Operation::PeerParameter, &[number], Bytes::In(one.value));
            }
        }
    }
}
