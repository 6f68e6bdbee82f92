//! Reads and writes the frames of the plugin exchange (`docs/plugin-wire.md`). Each frame begins
//! with its type and the length of the rest, so that an endpoint can skip unknown frames.

use equic_wire::{BufferFull, Reader, UnexpectedEnd, VarInt, Writer};

use super::violation::Violation;

/// Maximum number of offers of one side on a connection. Plugin IDs are smaller than this number.
pub const MAX_OFFERS: u64 = 256;

/// Maximum length of the reason text in a STATUS frame, in bytes.
pub const MAX_REASON: usize = 200;

/// Maximum number of frame types in an offer.
pub(crate) const MAX_TYPES: usize = 8;

/// Maximum number of bytes of a bundle's preamble that an OFFER carries, so that the frame fits
/// into a packet of 1,200 bytes.
pub const MAX_CARRIED: usize = 1024;

/// Maximum length of the fields before the data of a DATA frame, in bytes: type, length, plugin ID
/// and offset.
pub(crate) const DATA_HEAD: usize = 4 + 2 + 2 + 4;

/// Kind of an exchange frame. Each kind has its own frame type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// Offers a plugin.
    Offer = 0,
    /// Permits the peer to send an offered plugin's bundle up to a limit.
    Want = 1,
    /// Carries a piece of a bundle.
    Data = 2,
    /// Reports the outcome of an offer.
    Status = 3,
    /// Asks the peer to detach a plugin, or withdraws its offer.
    Detach = 4,
    /// Has no meaning. An endpoint sends it to find out whether its peer skips unknown frames.
    Reserved = 5,
}

impl Kind {
    /// All kinds of exchange frames.
    pub const ALL: [Kind; 6] =
        [Kind::Offer, Kind::Want, Kind::Data, Kind::Status, Kind::Detach, Kind::Reserved];

    /// Returns the frame type on the wire.
    pub const fn frame_type(self) -> u64 {
        0x2f50_4c00 + self as u64
    }

    /// Returns the kind with this frame type, or `None` if no exchange frame has this type.
    pub fn of(frame_type: u64) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.frame_type() == frame_type)
    }
}

/// Content of an OFFER frame, which offers a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Plugin ID: the number of this offer among the offers of its side.
    pub plugin: u64,
    /// SHA-256 of the bundle.
    pub hash: [u8; 32],
    /// Size of the bundle, in bytes.
    pub size: u64,
    /// Size of the bundle's preamble, in bytes. The preamble is everything before the object:
    /// header, signature and manifest.
    pub preamble: u64,
    /// Plugin ID of the plugin that the offered plugin replaces. `None` if it replaces no plugin.
    pub replaces: Option<u64>,
    /// Frame types that the plugin uses on the wire, one for each frame type of the manifest, in
    /// the same order.
    pub frame_types: Vec<u64>,
    /// The beginning of the preamble, or all of it, sent in the offer itself. The peer's transport
    /// parameter limits its length.
    pub carried: Vec<u8>,
}

/// Outcome of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Status {
    /// The plugin runs at the peer.
    Active,
    /// The policy does not permit the plugin.
    Refused,
    /// The plugin is written for another version of the plugin interface.
    Unsupported,
    /// The plugin exceeds a limit on size, memory or number.
    TooLarge,
    /// The bundle is malformed, or its hash is not the offered one.
    Corrupt,
    /// The offer uses frame types that it may not use on this connection.
    FrameTypes,
    /// The plugin could not be started, or failed while it ran.
    Failed,
    /// The plugin was detached because the side that offered it asked for that.
    Detached,
    /// The side that ran the plugin detached it.
    Removed,
    /// The plugin expired, either before it ran or while it ran.
    Expired,
    /// A status code that this endpoint does not know. The plugin does not run.
    Other(u64),
}

/// Returns `true` for reserved status codes (31 n + 27), which a receiver must ignore.
fn is_reserved(code: u64) -> bool {
    code % 31 == 27
}

impl Status {
    const KNOWN: [Status; 10] = [
        Status::Active,
        Status::Refused,
        Status::Unsupported,
        Status::TooLarge,
        Status::Corrupt,
        Status::FrameTypes,
        Status::Failed,
        Status::Detached,
        Status::Removed,
        Status::Expired,
    ];

    /// Returns the status code on the wire.
    pub fn code(self) -> u64 {
        match self {
            Status::Other(code) => code,
            known => {
                (0u64..).zip(Status::KNOWN).find(|(_, one)| *one == known).map_or(1, |(c, _)| c)
            }
        }
    }

    fn of(code: u64) -> Status {
        let known = usize::try_from(code).ok().and_then(|at| Status::KNOWN.get(at));
        known.copied().unwrap_or(Status::Other(code))
    }

    /// Returns `true` if the plugin runs. Every other status ends its offer.
    pub fn is_active(self) -> bool {
        self == Status::Active
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Status::Active => f.pad("active"),
            Status::Refused => f.pad("refused"),
            Status::Unsupported => f.pad("unsupported"),
            Status::TooLarge => f.pad("too large"),
            Status::Corrupt => f.pad("corrupt"),
            Status::FrameTypes => f.pad("frame types"),
            Status::Failed => f.pad("failed"),
            Status::Detached => f.pad("detached"),
            Status::Removed => f.pad("removed"),
            Status::Expired => f.pad("expired"),
            Status::Other(code) => write!(f, "status {code}"),
        }
    }
}

/// A frame of the plugin exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// OFFER.
    Offer(Offer),
    /// WANT.
    Want {
        /// Plugin ID of the peer's offer.
        plugin: u64,
        /// Number of bytes, counted from the beginning of the bundle, that the offerer may send.
        limit: u64,
    },
    /// DATA.
    Data {
        /// The offer.
        plugin: u64,
        /// Position of `data` in the bundle, in bytes.
        offset: u64,
        /// A piece of the bundle.
        data: &'a [u8],
    },
    /// STATUS.
    Status {
        /// Plugin ID of the peer's offer.
        plugin: u64,
        /// Outcome of the offer.
        status: Status,
        /// Explanation of the status, as UTF-8 text.
        reason: &'a str,
    },
    /// DETACH.
    Detach {
        /// The offer.
        plugin: u64,
    },
    /// The reserved frame, which has no meaning.
    Reserved,
}

/// Returns the total length of the frame at the beginning of these bytes, or `None` if the bytes
/// end within its type or length.
pub(crate) fn length(bytes: &[u8]) -> Option<usize> {
    let mut reader = Reader::new(bytes);
    reader.varint().ok()?;
    reader.varint_bytes().ok()?;
    Some(bytes.len() - reader.len())
}

impl<'a> Frame<'a> {
    /// Reads the frame at the beginning of `bytes`. Returns the frame and its length.
    ///
    /// # Errors
    /// The frame is truncated, is not a frame of the exchange, or has an invalid value.
    pub fn read(bytes: &'a [u8]) -> Result<(Frame<'a>, usize), Violation> {
        let mut reader = Reader::new(bytes);
        let cut = |_: UnexpectedEnd| Violation::Cut;
        let kind = reader.varint().map_err(cut)?.get();
        let kind = Kind::of(kind).ok_or(Violation::FrameType(kind))?;
        let body = reader.varint_bytes().map_err(cut)?;
        let frame = Frame::body(kind, Reader::new(body))?;
        Ok((frame, bytes.len() - reader.len()))
    }

    fn body(kind: Kind, mut reader: Reader<'a>) -> Result<Frame<'a>, Violation> {
        if kind == Kind::Reserved {
            return Ok(Frame::Reserved);
        }
        let cut = |_: UnexpectedEnd| Violation::Cut;
        let plugin = reader.varint().map_err(cut)?.get();
        if plugin >= MAX_OFFERS {
            return Err(Violation::PluginId(plugin));
        }
        let frame = match kind {
            Kind::Offer => Frame::Offer(offer(plugin, &mut reader)?),
            Kind::Want => Frame::Want { plugin, limit: reader.varint().map_err(cut)?.get() },
            Kind::Data => {
                let offset = reader.varint().map_err(cut)?.get();
                return Ok(Frame::Data { plugin, offset, data: reader.take_rest() });
            }
            Kind::Status => {
                let code = reader.varint().map_err(cut)?.get();
                let reason = std::str::from_utf8(reader.varint_bytes().map_err(cut)?)
                    .ok()
                    .filter(|reason| reason.len() <= MAX_REASON)
                    .ok_or(Violation::Reason)?;
                options(&mut reader)?;
                if is_reserved(code) {
                    return Ok(Frame::Reserved);
                }
                return Ok(Frame::Status { plugin, status: Status::of(code), reason });
            }
            Kind::Detach => Frame::Detach { plugin },
            Kind::Reserved => Frame::Reserved,
        };
        options(&mut reader)?;
        Ok(frame)
    }

    /// Returns the kind of the frame.
    pub fn kind(&self) -> Kind {
        match self {
            Frame::Offer(_) => Kind::Offer,
            Frame::Want { .. } => Kind::Want,
            Frame::Data { .. } => Kind::Data,
            Frame::Status { .. } => Kind::Status,
            Frame::Detach { .. } => Kind::Detach,
            Frame::Reserved => Kind::Reserved,
        }
    }

    /// Writes the frame into `buffer`, and returns the frame's length.
    ///
    /// # Errors
    /// The buffer is too small.
    pub fn write(&self, buffer: &mut [u8]) -> Result<usize, BufferFull> {
        let mut writer = Writer::new(buffer);
        writer.varint(varint(self.kind().frame_type()))?;
        // 512 bytes are enough for every frame without its payload: the data of a DATA frame and
        // the bytes that an OFFER carries come last and are written separately.
        let mut space = [0; 512];
        let mut body = Writer::new(&mut space);
        let mut data: &[u8] = &[];
        match self {
            Frame::Offer(offer) => {
                body.varint(varint(offer.plugin))?;
                body.bytes(&offer.hash)?;
                body.varint(varint(offer.size))?;
                body.varint(varint(offer.preamble))?;
                body.varint(varint(offer.replaces.map_or(0, |plugin| plugin + 1)))?;
                body.varint(varint(offer.frame_types.len() as u64))?;
                for frame_type in &offer.frame_types {
                    body.varint(varint(*frame_type))?;
                }
                body.varint(varint(offer.carried.len() as u64))?;
                data = &offer.carried;
            }
            Frame::Want { plugin, limit } => {
                body.varint(varint(*plugin))?;
                body.varint(varint(*limit))?;
            }
            Frame::Data { plugin, offset, data: bytes } => {
                body.varint(varint(*plugin))?;
                body.varint(varint(*offset))?;
                data = bytes;
            }
            Frame::Status { plugin, status, reason } => {
                body.varint(varint(*plugin))?;
                body.varint(varint(status.code()))?;
                body.varint_bytes(reason.as_bytes())?;
            }
            Frame::Detach { plugin } => body.varint(varint(*plugin))?,
            Frame::Reserved => {}
        }
        writer.varint(varint((body.position() + data.len()) as u64))?;
        writer.bytes(body.written())?;
        writer.bytes(data)?;
        Ok(writer.position())
    }
}

pub(super) fn varint(value: u64) -> VarInt {
    VarInt::new(value).unwrap_or(VarInt::MAX)
}

fn offer(plugin: u64, reader: &mut Reader<'_>) -> Result<Offer, Violation> {
    let cut = |_: UnexpectedEnd| Violation::Cut;
    let hash = *reader.array::<32>().map_err(cut)?;
    let size = reader.varint().map_err(cut)?.get();
    let preamble = reader.varint().map_err(cut)?.get();
    let replaces = reader.varint().map_err(cut)?.get().checked_sub(1);
    if replaces.is_some_and(|other| other >= MAX_OFFERS || other == plugin) {
        return Err(Violation::PluginId(replaces.unwrap_or(plugin)));
    }
    let count = reader.varint().map_err(cut)?.get();
    let count = usize::try_from(count).ok().filter(|count| *count <= MAX_TYPES);
    let mut frame_types = Vec::with_capacity(MAX_TYPES);
    for _ in 0..count.ok_or(Violation::TooManyTypes)? {
        frame_types.push(reader.varint().map_err(cut)?.get());
    }
    let carried = reader.varint_bytes().map_err(cut)?.to_vec();
    if carried.len() > MAX_CARRIED || carried.len() as u64 > preamble {
        return Err(Violation::Carried(plugin));
    }
    Ok(Offer { plugin, hash, size, preamble, replaces, frame_types, carried })
}

/// Skips the options at the end of a frame or of the transport parameter. An option is a number and
/// a value. No option is defined yet, but each one must be complete.
pub(super) fn options(reader: &mut Reader<'_>) -> Result<(), Violation> {
    while !reader.is_empty() {
        let whole = reader.varint().and_then(|_| reader.varint_bytes());
        whole.map_err(|_| Violation::Cut)?;
    }
    Ok(())
}
