//! Gives hooks access to their connection: the values that a hook can read, and the requests that
//! it can make.

use std::collections::{BTreeMap, VecDeque};

use equic_wire::TransportErrorCode;

use super::messages::{MAX_MESSAGE, Messages};
use super::requests::{Hold, MAX_PAYLOAD, MAX_REQUESTS, Request};
use super::share::Share;
use super::{AttachPoint, Attached, Hook, HookError, HookId, Lent, Own, OwnFrame};
use crate::Timestamp;
use crate::connection::View;
use crate::lazy::StaticDefault;

/// Largest number of frames of one hook that wait to be sent.
const MAX_WAITING: usize = 64;

/// Largest number of frame types that a hook can tell the transport to skip.
const MAX_SKIPPED: usize = 256;

macro_rules! fields {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident = $number:literal,
    )+) => {
        /// A value of the connection that hooks can read, identified by a number that never
        /// changes. Durations and times are in nanoseconds, sizes in bytes. For a field of a path,
        /// the path is the active one, unless [`HookContext::get_of`] names another path.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u16)]
        pub enum Field {
            $(
                $(#[doc = $doc])+
                $name = $number,
            )+
        }

        impl Field {
            /// All fields that hooks can read.
            pub const ALL: &[Field] = &[$(Field::$name),+];

            /// Returns a description of the field's value.
            pub const fn describe(self) -> &'static str {
                match self {
                    $(Field::$name => concat!($($doc),+),)+
                }
            }
        }
    };
}

fields! {
    /// Smoothed RTT (RFC 9002 s.5.3). It can be set, to at most one minute.
    SmoothedRtt = 1,
    /// RTT variation (RFC 9002 s.5.3). It can be set, to at most one minute.
    RttVariation = 2,
    /// Smallest RTT sample so far.
    MinRtt = 3,
    /// Latest RTT sample.
    LatestRtt = 4,
    /// Congestion window in use. It is the answer of a hook to `CongestionWindow`, if there is one.
    /// Setting the field changes the controller's window, to at least two datagrams and at most a
    /// gibibyte. It has no effect on BBR.
    CongestionWindow = 5,
    /// Bytes that were sent and are neither acknowledged nor lost.
    BytesInFlight = 6,
    /// Number of consecutive PTOs.
    PtoCount = 7,
    /// Largest UDP payload that the path is known to carry.
    DatagramSize = 8,
    /// Slow start threshold in bytes; all ones if the controller is still in slow start. It can be
    /// set within the limits of the congestion window.
    SlowStartThreshold = 9,
    /// Congestion window of the connection's own controller, without a hook's answer.
    ControllerWindow = 10,
    /// Pacing rate of the connection's own controller, in bytes per second.
    ControllerPacingRate = 11,
    /// Latest sample of the delivery rate, in bytes per second; 0 if it is unknown.
    DeliveryRate = 12,
    /// Time at which the next 1-RTT packet will be declared lost; all ones if no packet waits for
    /// that.
    LossTime = 13,
    /// Time at which the last ack-eliciting 1-RTT packet was sent; all ones if none is in flight.
    LastElicitingSent = 14,
    /// Number of datagrams received.
    DatagramsReceived = 16,
    /// Number of datagrams sent.
    DatagramsSent = 17,
    /// Bytes of UDP payload received.
    BytesReceived = 18,
    /// Bytes of UDP payload sent.
    BytesSent = 19,
    /// Number of packets received.
    PacketsReceived = 20,
    /// Number of packets sent.
    PacketsSent = 21,
    /// Number of packets that were declared lost.
    PacketsLost = 22,
    /// Side of this end: 0 for the client, 1 for the server.
    Side = 32,
    /// 1 if the handshake is complete, else 0.
    Connected = 33,
    /// 1 if the handshake is confirmed, else 0.
    Confirmed = 34,
    /// Number of the active path.
    ActivePath = 35,
    /// Largest 1-RTT packet number that the peer has acknowledged; all ones if it has acknowledged
    /// none.
    LargestAcked = 36,
    /// The peer's `max_ack_delay`.
    PeerMaxAckDelay = 37,
    /// 1 if the application has stream data or DATAGRAM frames to send within the peer's limits,
    /// else 0.
    ApplicationWaits = 38,
    /// Bytes of stream data that were written and never sent, in all streams. With a stream ID
    /// ([`HookContext::get_of`]), only those of that stream.
    BytesUnsent = 39,
    /// Lowest path number that is not below the given number ([`HookContext::get_of`]); all ones if
    /// no path has such a number. With this field, a hook can iterate over all paths.
    NextPath = 40,
    /// Path ID of the path (RFC 10069); 0 without multipath. Unlike the path's number, it is the
    /// same at both ends.
    PathId = 41,
    /// State of the path, as a sum. 1: data can be sent on it. 2: one of the ends has declared it a
    /// backup (PATH_STATUS_BACKUP). 4: the peer has not acknowledged the last packets that were
    /// sent on it.
    PathStatus = 42,
    /// Cost of the path in the application's units; 0 if the application has not set it.
    PathCost = 43,
    /// Number of packets that were sent on the path and declared lost.
    PathPacketsLost = 44,
    /// Bytes of UDP payload sent on the path.
    PathBytesSent = 45,
    /// Bytes that the congestion window permits now; 0 if a full datagram does not fit into the
    /// window, or if pacing delays it.
    PathRoom = 46,
    /// Number of further datagrams, at most 64, for which the current choice of
    /// [`Operation::SelectPath`](super::Operation::SelectPath) holds without another call. The
    /// choice ends when time passes or the path has no room. The field can be set during that
    /// operation, and is reset to 0 at its next call. It has no effect with one path.
    ChoiceHolds = 47,
}

impl Field {
    /// Returns the field with this number.
    pub fn of(number: u64) -> Option<Field> {
        Field::ALL.iter().copied().find(|field| u64::from(*field as u16) == number)
    }
}

/// The reason why a request of a hook was denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Denied {
    /// Hooks cannot set this field.
    ReadOnly(Field),
    /// Too many frames or messages of the hook are waiting.
    Full,
    /// The message or payload is too long.
    TooLong,
    /// The hook does not own the type of the frame that it wants to queue.
    FrameType,
    /// Too many requests of hooks are waiting.
    TooMany,
}

impl std::fmt::Display for Denied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Denied::ReadOnly(field) => write!(f, "{field:?} cannot be set"),
            Denied::Full => {
                f.write_str("the hook's queue is full, or another hook already uses this function")
            }
            Denied::TooLong => {
                write!(
                    f,
                    "a message can have at most {MAX_MESSAGE} bytes, and a payload at most {MAX_PAYLOAD} bytes"
                )
            }
            Denied::FrameType => {
                f.write_str("the frame type is not the hook's own: attach the hook with that type")
            }
            Denied::TooMany => {
                write!(f, "{MAX_REQUESTS} requests of hooks are waiting, which is the limit")
            }
        }
    }
}

impl std::error::Error for Denied {}

/// A frame that a hook has queued. When a packet has room for the frame, [`Operation::WriteFrame`]
/// is called for its type.
///
/// [`Operation::WriteFrame`]: super::Operation::WriteFrame
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extension {
    pub hook: HookId,
    pub frame_type: u64,
    pub token: u64,
    pub eliciting: bool,
    /// True if the hook that queued the frame is nested: another hook has attached it. Frames of
    /// nested hooks get only a share of packets.
    pub nested: bool,
}

/// The state that a connection keeps for its hooks: queued frames, requests, messages and timers.
#[derive(Debug, Default)]
pub(crate) struct Extensions {
    /// Queued frames of hooks that the application has attached, at most [`MAX_WAITING`] for each
    /// hook.
    waiting: VecDeque<Extension>,
    /// Queued frames of nested hooks (hooks that another hook has attached), at most
    /// [`MAX_WAITING`] for each hook.
    waiting_of_nested: VecDeque<Extension>,
    /// Number of queued frames for each hook.
    waiting_of: BTreeMap<HookId, usize>,
    /// Limits the share of packets for frames of nested hooks while the application has data to
    /// send.
    pub(crate) share: Share,
    /// The frame types that are skipped unless a hook owns them, sorted, and the hook that declared
    /// them.
    skipped: Option<(HookId, Vec<u64>)>,
    /// Requests of hooks that wait to be carried out: at most [`MAX_REQUESTS`], and one more for
    /// each hook that failed.
    pub(super) requests: VecDeque<Request>,
    /// Nested hooks, each with the hook that attached it.
    pub(super) nested: Vec<(HookId, HookId)>,
    /// Frame types that hooks of the application own, each with its hook.
    owned: Vec<(HookId, u64)>,
    /// The hook that holds back stream data, or has done so. `None` if no hook ever has.
    pub(super) hold: Option<Hold>,
    /// Current depth of calls from one hook to another.
    pub(super) depth: u32,
    /// The hooks that the running hook may call, while it runs. Only those with `provides` can be
    /// called.
    lent: Vec<Attached>,
    /// Numbers of the transport parameters that hooks have declared, each with its hook.
    pub(super) declared: Vec<(HookId, u64)>,
    /// Packet numbers of the last packets that hooks have recovered; at most 64.
    pub(super) recovered: VecDeque<u64>,
    pub(crate) messages: Messages,
}

impl StaticDefault for Extensions {
    const STATIC_DEFAULT: &'static Extensions = &Extensions {
        waiting: VecDeque::new(),
        waiting_of_nested: VecDeque::new(),
        waiting_of: BTreeMap::new(),
        share: Share::new(),
        skipped: None,
        requests: VecDeque::new(),
        nested: Vec::new(),
        owned: Vec::new(),
        hold: None,
        depth: 0,
        lent: Vec::new(),
        declared: Vec::new(),
        recovered: VecDeque::new(),
        messages: Messages::new(),
    };
}

impl Extensions {
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.waiting_of_nested.is_empty()
    }

    fn waiting(&mut self, nested: bool) -> &mut VecDeque<Extension> {
        if nested { &mut self.waiting_of_nested } else { &mut self.waiting }
    }

    /// Records which frame types a hook owns that the application has attached.
    pub(crate) fn on_attached(&mut self, hook: HookId, frames: &[OwnFrame]) {
        self.owned.extend(frames.iter().map(|own| (hook, own.frame_type)));
    }

    /// Records that a hook has declared a transport parameter with this number.
    pub(crate) fn on_declared(&mut self, hook: HookId, parameter: u64) {
        self.declared.push((hook, parameter));
    }

    /// Returns the hook that has declared a transport parameter with this number, or `None`.
    pub(crate) fn declared_by(&self, parameter: u64) -> Option<HookId> {
        self.declared.iter().find(|(_, own)| *own == parameter).map(|(hook, _)| *hook)
    }

    /// Returns the number of queued frames: those of nested hooks if `nested` is true, otherwise
    /// those of the other hooks.
    pub(crate) fn len(&self, nested: bool) -> usize {
        if nested { self.waiting_of_nested.len() } else { self.waiting.len() }
    }

    /// Takes the next queued frame: of a nested hook if `nested` is true, otherwise of a hook of
    /// the application.
    pub(crate) fn pop(&mut self, nested: bool) -> Option<Extension> {
        let one = self.waiting(nested).pop_front()?;
        if let Some(count) = self.waiting_of.get_mut(&one.hook) {
            *count = count.saturating_sub(1);
        }
        Some(one)
    }

    /// Returns true if frames of this type are skipped unless a hook owns them.
    pub(crate) fn skips(&self, frame_type: u64) -> bool {
        let types = self.skipped.as_ref().map_or(&[][..], |(_, types)| types);
        types.binary_search(&frame_type).is_ok()
    }

    /// Returns the memory that the connection keeps for its hooks, in bytes.
    pub(crate) fn memory(&self) -> usize {
        let frames = self.waiting.capacity() + self.waiting_of_nested.capacity();
        frames * size_of::<Extension>() + self.messages.memory()
    }

    /// Drops the frames and requests of a hook that was detached.
    pub(crate) fn forget(&mut self, hook: HookId) {
        self.waiting.retain(|one| one.hook != hook);
        self.waiting_of_nested.retain(|one| one.hook != hook);
        self.waiting_of.remove(&hook);
        self.declared.retain(|(own, _)| *own != hook);
        self.owned.retain(|(own, _)| *own != hook);
        self.skipped = self.skipped.take().filter(|(by, _)| *by != hook);
        self.forget_requests(hook);
        self.messages.forget(hook);
    }

    /// Stores the hooks that the hook which runs next may call.
    pub(crate) fn lend(&mut self, lent: Vec<Attached>) {
        self.lent = lent;
    }

    /// Takes back the hooks that the running hook could call, after it has run.
    pub(crate) fn take_lent(&mut self) -> Vec<Attached> {
        std::mem::take(&mut self.lent)
    }

    /// Ends the loan of hooks to the running hook after it has run, even if it has panicked.
    pub(crate) fn end_lending(&mut self) {
        (self.lent, self.depth) = (Vec::new(), 0);
    }

    pub(crate) fn put_back(&mut self, extension: Extension) {
        *self.waiting_of.entry(extension.hook).or_default() += 1;
        self.waiting(extension.nested).push_front(extension);
    }
}

/// Gives a hook access to its connection while the hook is called.
pub struct HookContext<'a> {
    view: View<'a>,
}

impl<'a> HookContext<'a> {
    #[inline]
    pub(crate) fn new(view: View<'a>) -> HookContext<'a> {
        HookContext { view }
    }

    /// Returns the time of the current call.
    pub fn now(&self) -> Timestamp {
        self.view.now()
    }

    /// Returns the timers and messages of hooks.
    pub(super) fn messages(&mut self) -> &mut Messages {
        &mut self.view.extensions().messages
    }

    /// Returns the ID of the hook that is running.
    pub fn hook(&self) -> HookId {
        self.view.own().id
    }

    /// Reads a field of the connection. For a field of a path, reads that of the active path.
    pub fn get(&self, field: Field) -> u64 {
        self.view.get(field)
    }

    /// Reads a field of one part of the connection. `part` is the number of a path for a field of a
    /// path, and a stream ID for [`Field::BytesUnsent`]. For [`Field::NextPath`], the search starts
    /// at the number `part`. Returns `None` if there is no such path or stream, or if the field
    /// belongs to the whole connection.
    pub fn get_of(&self, field: Field, part: u64) -> Option<u64> {
        self.view.get_of(field, part)
    }

    /// Sets a field.
    ///
    /// # Errors
    /// [`Denied::ReadOnly`] if the field cannot be set.
    pub fn set(&mut self, field: Field, value: u64) -> Result<(), Denied> {
        if self.view.set(field, value) { Ok(()) } else { Err(Denied::ReadOnly(field)) }
    }

    /// Queues a frame of a type that the hook owns. When there is room in a 1-RTT packet,
    /// [`Operation::WriteFrame`] is called for it with `token`. If the type elicits
    /// acknowledgments, [`Operation::FrameAcked`] or [`Operation::FrameLost`] is called once for
    /// each frame that was sent.
    ///
    /// # Errors
    /// * [`Denied::Full`] if too many frames of the hook are waiting;
    /// * [`Denied::FrameType`] if the hook does not own the type.
    ///
    /// [`Operation::WriteFrame`]: super::Operation::WriteFrame
    /// [`Operation::FrameAcked`]: super::Operation::FrameAcked
    /// [`Operation::FrameLost`]: super::Operation::FrameLost
    pub fn queue_frame(&mut self, frame_type: u64, token: u64) -> Result<(), Denied> {
        let own = self.view.own();
        let (hook, nested) = (own.id, own.nested);
        let own = own.frames.iter().find(|own| own.frame_type == frame_type);
        let own = own.ok_or(Denied::FrameType)?;
        let eliciting = own.ack_eliciting;
        let extensions = self.view.extensions();
        let count = extensions.waiting_of.entry(hook).or_default();
        if *count >= MAX_WAITING {
            return Err(Denied::Full);
        }
        *count += 1;
        extensions.waiting(nested).push_back(Extension {
            hook,
            frame_type,
            token,
            eliciting,
            nested,
        });
        Ok(())
    }

    /// Returns the frame types that the application's other hooks own. Frame types of nested hooks
    /// ([`HookContext::attach`]) are not included, because the hook that attached them knows them.
    pub fn frame_types(&mut self) -> Vec<u64> {
        let hook = self.hook();
        let owned = self.view.extensions().owned.iter();
        owned.filter(|(own, _)| *own != hook).map(|(_, frame_type)| *frame_type).collect()
    }

    /// Makes the connection skip received frames of these types, at most 256, unless a hook owns
    /// the type. Replaces the types of an earlier call by this hook.
    ///
    /// Such frames must begin with their type and the length of the rest of the frame, both as
    /// variable-length integers. When the hook that owns one of the types is detached, even in the
    /// middle of a packet, later frames of the type are skipped.
    ///
    /// # Errors
    /// [`Denied::Full`] if another hook has declared types to be skipped, or if there are too many
    /// types.
    pub fn skip_frames(&mut self, mut types: Vec<u64>) -> Result<(), Denied> {
        let hook = self.hook();
        let skipped = &mut self.view.extensions().skipped;
        if types.len() > MAX_SKIPPED || skipped.as_ref().is_some_and(|(by, _)| *by != hook) {
            return Err(Denied::Full);
        }
        types.sort_unstable();
        *skipped = Some((hook, types));
        Ok(())
    }

    /// Sets the share of packets that all nested hooks ([`HookContext::attach`]) together may use
    /// for frames while the application has data to send. The share is in percent of the room in
    /// packets; the default is 25. It is an average, so a single packet may contain only such
    /// frames.
    pub fn share_frames(&mut self, percent: u8) {
        self.view.extensions().share.set(percent);
    }

    /// Requests that another hook is attached, as by
    /// [`Connection::attach_with_frames`](crate::Connection::attach_with_frames).
    ///
    /// The connection attaches it after it has processed the current datagram or timer, and before
    /// it writes the next packet. [`HookEvent::Attached`](super::HookEvent::Attached) reports the
    /// outcome, with `token`. If the other hook fails later, this hook receives
    /// [`HookEvent::Failed`](super::HookEvent::Failed).
    ///
    /// The other hook's frames are sent after those of the application's hooks. While the
    /// application has data to send, they get only a share of packets
    /// ([`HookContext::share_frames`]).
    ///
    /// # Errors
    /// [`Denied::TooMany`] if too many requests are waiting.
    pub fn attach(
        &mut self,
        token: u64,
        hook: Box<dyn Hook>,
        points: Vec<AttachPoint>,
        frames: Vec<OwnFrame>,
    ) -> Result<(), Denied> {
        self.request(Request::Attach { by: self.hook(), token, hook, points, frames })
    }

    /// Requests that a hook is detached. This has an effect only if this hook has attached it.
    /// Requests of a hook are carried out in order.
    ///
    /// # Errors
    /// [`Denied::TooMany`] if too many requests are waiting.
    pub fn detach(&mut self, hook: HookId) -> Result<(), Denied> {
        self.request(Request::Detach { by: self.hook(), hook })
    }

    /// Requests that the connection is closed with a transport error (RFC 9000 s.20.1), for example
    /// because the peer broke a rule of the hook's protocol. Requests of a hook are carried out in
    /// order.
    ///
    /// # Errors
    /// [`Denied::TooMany`] if too many requests are waiting.
    pub fn close(&mut self, code: TransportErrorCode, reason: &str) -> Result<(), Denied> {
        self.request(Request::Close { by: self.hook(), code, reason: reason.to_owned() })
    }

    /// Injects the payload of a lost 1-RTT packet that the hook has recovered, for example by FEC.
    /// The payload is unprotected. The connection processes it after the current datagram, unless
    /// the packet has arrived in the meantime.
    ///
    /// STREAM and DATAGRAM frames take effect as if the packet had arrived, up to the first frame
    /// of an unknown type. The packet is not acknowledged. So the peer's congestion controller
    /// still notices the loss (RFC 9265), and the peer sends the other frames again.
    ///
    /// If the peer cannot have sent the payload, the hook counts as failed and is detached. The
    /// connection continues.
    ///
    /// # Errors
    /// * [`Denied::TooLong`] if the payload is longer than 4,096 bytes;
    /// * [`Denied::TooMany`] if too many requests are waiting.
    pub fn process_payload(&mut self, number: u64, payload: &[u8]) -> Result<(), Denied> {
        if payload.len() > MAX_PAYLOAD {
            return Err(Denied::TooLong);
        }
        self.request(Request::Process { by: self.hook(), number, payload: payload.to_vec() })
    }

    /// Delays stream data that was not sent yet until the time `until`, or ends the delay if
    /// `until` is `None`. The delay ends at the latest one second after a hook of the connection
    /// first delayed data. Everything else is sent, including frames of hooks.
    ///
    /// # Errors
    /// [`Denied::Full`] if another hook delays stream data, or has done so before.
    pub fn hold_streams(&mut self, until: Option<Timestamp>) -> Result<(), Denied> {
        let (hook, now) = (self.hook(), self.now());
        self.view.extensions().hold(hook, now, until)
    }

    fn request(&mut self, request: Request) -> Result<(), Denied> {
        self.view.extensions().request(request)
    }

    // Methods that `provided.rs` uses for calls from one hook to another.

    pub(super) fn is_nested(&self) -> bool {
        self.view.own().nested
    }

    /// Returns the number of hooks that [`HookContext::call`] may have to search. A caller can
    /// charge a hook for this work.
    pub fn callable(&mut self) -> usize {
        let nested = self.is_nested();
        let lent = self.view.extensions().lent.iter();
        lent.filter(|one| one.provides && one.own.nested == nested).count()
    }

    /// Returns how many streams or paths [`HookContext::get`] may have to read for a field. These
    /// are streams for [`Field::ApplicationWaits`] and paths for [`Field::NextPath`]. For other
    /// fields the number is 1.
    pub fn parts_of(&self, field: Field) -> usize {
        self.view.parts_of(field)
    }

    /// Returns the number of positions in the list of hooks that the running hook may call.
    pub(super) fn places(&mut self) -> usize {
        self.view.extensions().lent.len()
    }

    /// Takes the hook at the position `place` out of the list to call it, if it provides operations
    /// and is nested exactly if `nested` is true.
    pub(super) fn borrow(&mut self, place: usize, nested: bool) -> Option<Lent> {
        let one = self.view.extensions().lent.get_mut(place)?;
        (one.provides && one.own.nested == nested).then(|| one.take())
    }

    pub(super) fn give_back(&mut self, place: usize, callee: Lent) {
        if let Some(there) = self.view.extensions().lent.get_mut(place) {
            there.give_back(callee);
        }
    }

    /// Returns the current depth of calls from one hook to another.
    pub(super) fn depth(&mut self) -> u32 {
        self.view.extensions().depth
    }

    /// Returns the context for a hook that this hook calls.
    pub(super) fn deeper<'b>(&'b mut self, own: &'b Own) -> HookContext<'b> {
        self.view.extensions().depth += 1;
        HookContext::new(self.view.of(own))
    }

    pub(super) fn shallower(&mut self) {
        self.view.extensions().depth -= 1;
    }

    /// Requests that a hook is detached because it failed when another hook called it.
    pub(super) fn failed(&mut self, hook: HookId, error: HookError) {
        self.view.extensions().request_take_off(hook, error);
    }
}
