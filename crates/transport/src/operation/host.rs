//! View that a hook has of its connection, and requests that it may make of it.

use std::collections::{BTreeMap, VecDeque};

use equic_wire::TransportErrorCode;

use super::messages::{MAX_MESSAGE, Messages};
use super::requests::{Hold, MAX_PAYLOAD, MAX_REQUESTS, Request};
use super::share::Share;
use super::{AttachPoint, Attached, Hook, HookError, HookId, Lent, Own, OwnFrame};
use crate::Timestamp;
use crate::connection::View;
use crate::rested::Unmade;

/// Frames of one hook that may wait to be sent.
const MAX_WAITING: usize = 64;

/// Frame types that are skipped at most.
const MAX_SKIPPED: usize = 256;

macro_rules! fields {
    ($(
        $(#[doc = $doc:literal])+
        $name:ident = $number:literal,
    )+) => {
        /// A value of the connection, by a number that never changes. Durations and moments are in
        /// nanoseconds, sizes in bytes. What each path has for itself is the active path's, unless another path is
        /// asked for ([`HookContext::get_of`]).
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u16)]
        pub enum Field {
            $(
                $(#[doc = $doc])+
                $name = $number,
            )+
        }

        impl Field {
            /// All of them.
            pub const ALL: &[Field] = &[$(Field::$name),+];

            /// Description of the field's value.
            pub const fn describe(self) -> &'static str {
                match self {
                    $(Field::$name => concat!($($doc),+),)+
                }
            }
        }
    };
}

fields! {
    /// Smoothed round-trip time (RFC 9002 s.5.3). It may be set, to a minute at most.
    SmoothedRtt = 1,
    /// Variation of the round-trip time (RFC 9002 s.5.3). It may be set, to a minute at most.
    RttVariation = 2,
    /// Least round-trip time measured so far.
    MinRtt = 3,
    /// Round-trip time that was measured last.
    LatestRtt = 4,
    /// Congestion window in force: a hook's, if one has answered `CongestionWindow`. Set, it is the
    /// controller's from there on, two datagrams at least and a gibibyte at most; BBR's cannot be set.
    CongestionWindow = 5,
    /// Bytes that were sent and are neither acknowledged nor lost.
    BytesInFlight = 6,
    /// Number of probe timeouts in a row.
    PtoCount = 7,
    /// Most bytes of UDP payload that the path is known to take.
    DatagramSize = 8,
    /// Slow start threshold in bytes; all ones if the controller is still in slow start. It may be set as
    /// the window may.
    SlowStartThreshold = 9,
    /// Congestion window that the connection's own controller has, whatever a hook answers.
    ControllerWindow = 10,
    /// Rate at which the connection's own controller would send, in bytes a second.
    ControllerPacingRate = 11,
    /// Rate at which the path delivers, by the latest sample, in bytes a second; 0 if it is not known.
    DeliveryRate = 12,
    /// Time at which a 1-RTT packet will count as lost next; all ones if none is waited for.
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
    /// Number of packets given up as lost.
    PacketsLost = 22,
    /// Side of the connection that this end is: 0 the client, 1 the server.
    Side = 32,
    /// 1 if the handshake is complete, else 0.
    Connected = 33,
    /// 1 if the handshake is confirmed, else 0.
    Confirmed = 34,
    /// Number of the active path.
    ActivePath = 35,
    /// Largest packet number that the peer has acknowledged in 1-RTT packets; all ones if there is none.
    LargestAcked = 36,
    /// Longest time for which the peer says that it delays acknowledgements (`max_ack_delay`).
    PeerMaxAckDelay = 37,
    /// 1 if the application has data to send that the peer's limits allow, in streams or datagrams; else 0.
    ApplicationWaits = 38,
    /// Bytes of stream data that were written and have not been sent even once: of all streams, or of the
    /// one whose stream ID is asked for ([`HookContext::get_of`]).
    BytesUnsent = 39,
    /// Number of the first path whose number is at least the one asked for ([`HookContext::get_of`]), of all the
    /// connection's paths; all ones if there is none. It gives all paths, one after the other.
    NextPath = 40,
    /// Path ID that the path uses (RFC 10069); 0 without multipath. Unlike its number it is the same at both ends.
    PathId = 41,
    /// 1 if data can go on the path, else 0; 2 is added if one of the ends wants it used only where there is no
    /// other (PATH_STATUS_BACKUP), 4 if nothing was heard of what was sent there last.
    PathStatus = 42,
    /// What it costs to use the path, a label in the application's units; 0 if it has said nothing.
    PathCost = 43,
    /// Number of packets that were sent on the path and given up as lost.
    PathPacketsLost = 44,
    /// Bytes of UDP payload sent on the path.
    PathBytesSent = 45,
    /// Bytes that the congestion window has room for now; 0 if it has none for a datagram of full size, or the
    /// pace holds that back.
    PathRoom = 46,
    /// Number of further datagrams for which the path that [`Operation::SelectPath`](super::Operation::SelectPath) chooses
    /// now is taken without asking again: at most 64, as long as no time passes and the path has room. It may be set while
    /// that operation is called, and is 0 again at its next call; with one path it changes nothing.
    ChoiceHolds = 47,
}

impl Field {
    /// The field with this number.
    pub fn of(number: u64) -> Option<Field> {
        Field::ALL.iter().copied().find(|field| u64::from(*field as u16) == number)
    }
}

/// Reason for which a hook's request was denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Denied {
    /// The field cannot be set.
    ReadOnly(Field),
    /// Too many of its frames or messages are waiting.
    Full,
    /// A message or payload is too long.
    TooLong,
    /// The frame type is not the hook's own.
    FrameType,
    /// Too many requests of hooks wait to be carried out.
    TooMany,
}

impl std::fmt::Display for Denied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Denied::ReadOnly(field) => write!(f, "{field:?} cannot be set"),
            Denied::Full => f.write_str("as many wait already as may, or another hook has it"),
            Denied::TooLong => {
                write!(f, "a message has {MAX_MESSAGE} bytes at most, a payload {MAX_PAYLOAD}")
            }
            Denied::FrameType => {
                f.write_str("the frame type is not the hook's own: attach it with that type")
            }
            Denied::TooMany => write!(f, "{MAX_REQUESTS} requests of hooks wait already"),
        }
    }
}

impl std::error::Error for Denied {}

/// A frame that a hook wants sent. When its turn comes, [`Operation::WriteFrame`] is called for its
/// type.
///
/// [`Operation::WriteFrame`]: super::Operation::WriteFrame
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extension {
    pub hook: HookId,
    pub frame_type: u64,
    pub token: u64,
    pub eliciting: bool,
    /// The hook was brought by another: its frames have a share of packets, no more.
    pub brought: bool,
}

/// Requests of hooks to their connection that have not been carried out yet.
#[derive(Debug, Default)]
pub(crate) struct Extensions {
    /// Frames of hooks that were attached from outside: of each at most [`MAX_WAITING`].
    waiting: VecDeque<Extension>,
    /// Frames of hooks that other hooks brought: of each at most [`MAX_WAITING`].
    waiting_of_brought: VecDeque<Extension>,
    /// Number of frames that wait, of each hook that has some.
    waiting_of: BTreeMap<HookId, usize>,
    /// Share that these frames have of packets while the application has data to send.
    pub(crate) share: Share,
    /// Frame types that are skipped where no hook owns them, sorted, and the hook that said so.
    skipped: Option<(HookId, Vec<u64>)>,
    /// At most [`MAX_REQUESTS`], and one for each hook that failed.
    pub(super) requests: VecDeque<Request>,
    /// Hooks that other hooks brought, and those that did.
    pub(super) brought: Vec<(HookId, HookId)>,
    /// Frame types of hooks that were attached from outside, with the hooks.
    owned: Vec<(HookId, u64)>,
    /// A hook that holds stream data back.
    pub(super) hold: Option<Hold>,
    /// Calls from hook to hook that are being made, one in the other.
    pub(super) depth: u32,
    /// All hooks while one is called that may call others. Those with `provides` can be called.
    lent: Vec<Attached>,
    /// Numbers of transport parameters that hooks wrote, and the hooks.
    pub(super) declared: Vec<(HookId, u64)>,
    /// Numbers of packets whose payload hooks have put together, the latest; at most 64.
    pub(super) recovered: VecDeque<u64>,
    pub(crate) messages: Messages,
}

impl Unmade for Extensions {
    const UNMADE: &'static Extensions = &Extensions {
        waiting: VecDeque::new(),
        waiting_of_brought: VecDeque::new(),
        waiting_of: BTreeMap::new(),
        share: Share::new(),
        skipped: None,
        requests: VecDeque::new(),
        brought: Vec::new(),
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
        self.waiting.is_empty() && self.waiting_of_brought.is_empty()
    }

    fn waiting(&mut self, brought: bool) -> &mut VecDeque<Extension> {
        if brought { &mut self.waiting_of_brought } else { &mut self.waiting }
    }

    /// A hook was attached from outside that has these frame types.
    pub(crate) fn on_attached(&mut self, hook: HookId, frames: &[OwnFrame]) {
        self.owned.extend(frames.iter().map(|own| (hook, own.frame_type)));
    }

    /// A hook has written a transport parameter of this number.
    pub(crate) fn on_declared(&mut self, hook: HookId, parameter: u64) {
        self.declared.push((hook, parameter));
    }

    /// The hook that wrote a transport parameter of this number.
    pub(crate) fn declared_by(&self, parameter: u64) -> Option<HookId> {
        self.declared.iter().find(|(_, own)| *own == parameter).map(|(hook, _)| *hook)
    }

    /// Frames that wait, of hooks that other hooks brought or of the others.
    pub(crate) fn len(&self, brought: bool) -> usize {
        if brought { self.waiting_of_brought.len() } else { self.waiting.len() }
    }

    /// The next frame of hooks that other hooks brought, or of the others.
    pub(crate) fn pop(&mut self, brought: bool) -> Option<Extension> {
        let one = self.waiting(brought).pop_front()?;
        if let Some(count) = self.waiting_of.get_mut(&one.hook) {
            *count = count.saturating_sub(1);
        }
        Some(one)
    }

    /// True if frames of this type are skipped unless a hook owns them.
    pub(crate) fn skips(&self, frame_type: u64) -> bool {
        let types = self.skipped.as_ref().map_or(&[][..], |(_, types)| types);
        types.binary_search(&frame_type).is_ok()
    }

    /// Bytes that wait on behalf of hooks.
    pub(crate) fn memory(&self) -> usize {
        let frames = self.waiting.capacity() + self.waiting_of_brought.capacity();
        frames * size_of::<Extension>() + self.messages.memory()
    }

    /// Those of a hook that is off.
    pub(crate) fn forget(&mut self, hook: HookId) {
        self.waiting.retain(|one| one.hook != hook);
        self.waiting_of_brought.retain(|one| one.hook != hook);
        self.waiting_of.remove(&hook);
        self.declared.retain(|(own, _)| *own != hook);
        self.owned.retain(|(own, _)| *own != hook);
        self.skipped = self.skipped.take().filter(|(by, _)| *by != hook);
        self.forget_requests(hook);
        self.messages.forget(hook);
    }

    /// A hook is about to be called that may call these.
    pub(crate) fn lend(&mut self, lent: Vec<Attached>) {
        self.lent = lent;
    }

    /// The hook has been called: returns the hooks that were lent.
    pub(crate) fn take_lent(&mut self) -> Vec<Attached> {
        std::mem::take(&mut self.lent)
    }

    /// The hook that others were lent to has been called, or has panicked.
    pub(crate) fn end_lending(&mut self) {
        (self.lent, self.depth) = (Vec::new(), 0);
    }

    pub(crate) fn put_back(&mut self, extension: Extension) {
        *self.waiting_of.entry(extension.hook).or_default() += 1;
        self.waiting(extension.brought).push_front(extension);
    }
}

/// The connection, as a hook sees it while it is called.
pub struct HookContext<'a> {
    view: View<'a>,
}

impl<'a> HookContext<'a> {
    #[inline]
    pub(crate) fn new(view: View<'a>) -> HookContext<'a> {
        HookContext { view }
    }

    /// The moment of the call.
    pub fn now(&self) -> Timestamp {
        self.view.now()
    }

    /// Timers and messages of hooks.
    pub(super) fn messages(&mut self) -> &mut Messages {
        &mut self.view.extensions().messages
    }

    /// The hook that is called.
    pub fn hook(&self) -> HookId {
        self.view.own().id
    }

    /// Reads a field.
    pub fn get(&self, field: Field) -> u64 {
        self.view.get(field)
    }

    /// Reads a field of one part of the connection: fields that a path has, of the path with this number;
    /// [`Field::BytesUnsent`], of the stream with this ID; [`Field::NextPath`], from this number on. None: there is no
    /// such path or stream, or the field is the whole connection's.
    pub fn get_of(&self, field: Field, part: u64) -> Option<u64> {
        self.view.get_of(field, part)
    }

    /// Sets a field.
    ///
    /// # Errors
    /// [`Denied::ReadOnly`].
    pub fn set(&mut self, field: Field, value: u64) -> Result<(), Denied> {
        if self.view.set(field, value) { Ok(()) } else { Err(Denied::ReadOnly(field)) }
    }

    /// Asks for a frame of this type, one of the hook's own, to be sent: [`Operation::WriteFrame`] will be
    /// called for it, with `token`, when there is room in a 1-RTT packet. If the type is acknowledged, the
    /// hook is told once what became of each that was sent: [`Operation::FrameAcked`] or
    /// [`Operation::FrameLost`].
    ///
    /// # Errors
    /// [`Denied::Full`], [`Denied::FrameType`].
    ///
    /// [`Operation::WriteFrame`]: super::Operation::WriteFrame
    /// [`Operation::FrameAcked`]: super::Operation::FrameAcked
    /// [`Operation::FrameLost`]: super::Operation::FrameLost
    pub fn queue_frame(&mut self, frame_type: u64, token: u64) -> Result<(), Denied> {
        let own = self.view.own();
        let (hook, brought) = (own.id, own.brought);
        let own = own.frames.iter().find(|own| own.frame_type == frame_type);
        let own = own.ok_or(Denied::FrameType)?;
        let eliciting = own.ack_eliciting;
        let extensions = self.view.extensions();
        let count = extensions.waiting_of.entry(hook).or_default();
        if *count >= MAX_WAITING {
            return Err(Denied::Full);
        }
        *count += 1;
        extensions.waiting(brought).push_back(Extension {
            hook,
            frame_type,
            token,
            eliciting,
            brought,
        });
        Ok(())
    }

    /// Frame types of other hooks that were attached from outside. Those of hooks that hooks brought ([`HookContext::attach`]) are
    /// not among them: who brought them knows them.
    pub fn frame_types(&mut self) -> Vec<u64> {
        let hook = self.hook();
        let owned = self.view.extensions().owned.iter();
        owned.filter(|(own, _)| *own != hook).map(|(_, frame_type)| *frame_type).collect()
    }

    /// Has frames of these types skipped, 256 types at most, wherever no hook owns them: they begin with the type and
    /// the length of what follows, both variable-length integers. A hook that owns one of them has its frames, and
    /// once it is off, be it in the middle of a packet, the rest is skipped. It takes the place of what this hook said
    /// before.
    ///
    /// # Errors
    /// [`Denied::Full`]: another hook has said what is to be skipped, or there are too many.
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

    /// Sets the share that the frames of all brought hooks ([`HookContext::attach`]) have of packets while the application
    /// has data to send: percent of the room, 25 at first. Over some packets; a single one may be theirs alone.
    pub fn share_frames(&mut self, percent: u8) {
        self.view.extensions().share.set(percent);
    }

    /// Asks for another hook to be attached, as by
    /// [`Connection::attach_with_frames`](crate::Connection::attach_with_frames). That is done when the datagram or
    /// timer is dealt with that this call belongs to, and before the next packet is written; what came of it is told
    /// by [`HookEvent::Attached`](super::HookEvent::Attached), with `token`. If the other hook fails later, this one
    /// is told ([`HookEvent::Failed`](super::HookEvent::Failed)). Frames of the other hook go behind those of hooks that
    /// were attached from outside, and while the application has data to send they have a share of packets, no more
    /// ([`HookContext::share_frames`]).
    ///
    /// # Errors
    /// [`Denied::TooMany`].
    pub fn attach(
        &mut self,
        token: u64,
        hook: Box<dyn Hook>,
        points: Vec<AttachPoint>,
        frames: Vec<OwnFrame>,
    ) -> Result<(), Denied> {
        self.request(Request::Attach { by: self.hook(), token, hook, points, frames })
    }

    /// Asks for a hook to be taken off that this one brought, in the order of all its requests. Of another hook
    /// nothing comes of it.
    ///
    /// # Errors
    /// [`Denied::TooMany`].
    pub fn detach(&mut self, hook: HookId) -> Result<(), Denied> {
        self.request(Request::Detach { by: self.hook(), hook })
    }

    /// Asks for the connection to be closed with an error of the transport (RFC 9000 s.20.1), in the order of all
    /// its requests: for native hooks whose frames break their own protocol's rules.
    ///
    /// # Errors
    /// [`Denied::TooMany`].
    pub fn close(&mut self, code: TransportErrorCode, reason: &str) -> Result<(), Denied> {
        self.request(Request::Close { by: self.hook(), code, reason: reason.to_owned() })
    }

    /// Hands up the payload of a 1-RTT packet that did not come, as it was before its protection, and that the hook has
    /// put together from others. That is done when the datagram is dealt with that this call belongs to. Of its frames those
    /// of streams and DATAGRAM frames count, as if the packet had come, up to the first frame that the transport does
    /// not know; if the packet did come, none. It is not acknowledged: the sender learns of the loss, and so does its
    /// congestion controller (RFC 9265), and sends again what else was in it. A payload that the peer cannot have sent
    /// is a failure of the hook, which is taken off; the connection goes on.
    ///
    /// # Errors
    /// [`Denied::TooLong`] above 4,096 bytes, [`Denied::TooMany`].
    pub fn process_payload(&mut self, number: u64, payload: &[u8]) -> Result<(), Denied> {
        if payload.len() > MAX_PAYLOAD {
            return Err(Denied::TooLong);
        }
        self.request(Request::Process { by: self.hook(), number, payload: payload.to_vec() })
    }

    /// Holds stream data back that is not sent yet, until this moment, and a second after a hook of the connection did
    /// so first at the latest; or, with none, no longer. Everything else goes, hooks' frames among it.
    ///
    /// # Errors
    /// [`Denied::Full`]: another hook holds it, or did.
    pub fn hold_streams(&mut self, until: Option<Timestamp>) -> Result<(), Denied> {
        let (hook, now) = (self.hook(), self.now());
        self.view.extensions().hold(hook, now, until)
    }

    fn request(&mut self, request: Request) -> Result<(), Denied> {
        self.view.extensions().request(request)
    }

    // For calls from hook to hook: `provided.rs`.

    pub(super) fn is_brought(&self) -> bool {
        self.view.own().brought
    }

    /// Number of other hooks that [`HookContext::call`] may have to ask, one after the other.
    pub fn callable(&mut self) -> usize {
        let brought = self.is_brought();
        let lent = self.view.extensions().lent.iter();
        lent.filter(|one| one.provides && one.own.brought == brought).count()
    }

    /// Returns the number of parts of the connection that [`HookContext::get`] may look at for a
    /// field: streams for [`Field::ApplicationWaits`], paths for [`Field::NextPath`], 1 for others.
    pub fn parts_of(&self, field: Field) -> usize {
        self.view.parts_of(field)
    }

    /// Places that hooks may be lent from.
    pub(super) fn places(&mut self) -> usize {
        self.view.extensions().lent.len()
    }

    /// The hook of a place, to be called, if it may be and was brought, or was not.
    pub(super) fn borrow(&mut self, place: usize, brought: bool) -> Option<Lent> {
        let one = self.view.extensions().lent.get_mut(place)?;
        (one.provides && one.own.brought == brought).then(|| one.take())
    }

    pub(super) fn give_back(&mut self, place: usize, callee: Lent) {
        if let Some(there) = self.view.extensions().lent.get_mut(place) {
            there.give_back(callee);
        }
    }

    /// Calls that this one is in, from hook to hook.
    pub(super) fn depth(&mut self) -> u32 {
        self.view.extensions().depth
    }

    /// The connection as another hook sees it, in a call from hook to hook.
    pub(super) fn deeper<'b>(&'b mut self, own: &'b Own) -> HookContext<'b> {
        self.view.extensions().depth += 1;
        HookContext::new(self.view.of(own))
    }

    pub(super) fn shallower(&mut self) {
        self.view.extensions().depth -= 1;
    }

    /// A hook has failed while it was called by another, and is to be taken off.
    pub(super) fn failed(&mut self, hook: HookId, error: HookError) {
        self.view.extensions().request_take_off(hook, error);
    }
}
