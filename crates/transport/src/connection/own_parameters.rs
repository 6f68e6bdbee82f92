//! Transport parameters of hooks' own (RFC 9000 s.7.4.2): a hook that is attached before the first packet writes them, and
//! is told the peer's of the same numbers.

use equic_wire::Side;
use equic_wire::params::{RawParameter, RawParameters};

use super::Connection;
use super::early::Early;
use super::space::{Space, SpaceId};
use crate::operation::{Bytes, Call, Decision, HookError, HookId, Operation};
use crate::stream::Streams;

/// Bytes that one hook may write.
const MAX_BYTES: usize = 256;
/// Parameters that one hook may write.
const MAX_PARAMETERS: usize = 8;
/// Numbers below are for the IETF to give (RFC 9000 s.22.3).
const FIRST: u64 = 0x40;

impl Connection {
    /// Asks a hook that was attached for transport parameters of its own, if it is not too late for them.
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

    /// Has a hook write parameters, and declares them all, or none. Returns whether there are any.
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

    /// TLS has the transport parameters from its beginning on, so it begins again; nobody has heard of it.
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
            // The session may be spent. Nothing was sent by it.
            self.early = Early::default();
            self.keys.set_early(None);
            let pages = self.streams.take_pages();
            self.streams = Streams::new(self.side, self.config.clone());
            self.streams.set_pages(pages);
        }
        self.drive_tls(self.now);
        self.begin_early();
    }

    /// The peer's transport parameters: hooks that wrote some of the same numbers are told of them.
    pub(super) fn tell_parameters(&mut self, bytes: &[u8]) {
        for one in RawParameters::new(bytes).flatten() {
            let number = one.id.0.get();
            if let Some(id) = self.extensions.declared_by(number) {
                self.call_one(id, Operation::PeerParameter, &[number], Bytes::In(one.value));
            }
        }
    }
}
