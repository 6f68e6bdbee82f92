//! The messages of the handshake without protection. Their framing is that of TLS (RFC 8446 s.4): a
//! type, a length of three bytes and a body. The body contains the fields of the message, padded
//! with zeros.

use equic_wire::{Reader, UnexpectedEnd};

/// Largest length of the body of a handshake message, in bytes.
pub(super) const MAX_BODY: usize = 1 << 16;

/// Length of the type and the length field of a handshake message, in bytes.
const HEAD: usize = 4;

/// A message of the handshake without protection. The numbers of the types are those of TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message<'a> {
    /// The client's first message, with its offer.
    ClientHello(Hello<'a>),
    /// The server's first message. Its body has no fields.
    ServerHello,
    /// A ticket for a later connection. The flag says whether the client may send early data on
    /// that connection. It then also sends the 16 bytes.
    NewSessionTicket(bool, [u8; 16]),
    /// The server's transport parameters and choices. This message replaces EncryptedExtensions,
    /// Certificate and CertificateVerify.
    Answer(Answer<'a>),
    /// The last message of the handshake from either side.
    Finished,
}

/// A client's offer, which replaces the content of ClientHello.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hello<'a> {
    /// The client's transport parameters.
    pub parameters: &'a [u8],
    /// The ticket of an earlier connection (NewSessionTicket) if the client sends early data;
    /// otherwise `None`.
    pub ticket: Option<[u8; 16]>,
    /// Application protocols that the client offers, of 1 to 255 bytes each.
    pub alpn: Vec<&'a [u8]>,
}

/// A server's answer to a [`Hello`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Answer<'a> {
    /// The server's transport parameters.
    pub parameters: &'a [u8],
    /// True if the server accepts early data.
    pub early_data: bool,
    /// The selected application protocol. It is empty if none was selected.
    pub alpn: &'a [u8],
}

/// Error for bytes that are not a valid message of the handshake without protection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl From<UnexpectedEnd> for Malformed {
    fn from(_: UnexpectedEnd) -> Malformed {
        Malformed
    }
}

const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;
const NEW_SESSION_TICKET: u8 = 4;
const ENCRYPTED_EXTENSIONS: u8 = 8;
const FINISHED: u8 = 20;

impl<'a> Message<'a> {
    /// Appends the message to `out`, padded with zeros to at least `size` bytes.
    pub fn write(&self, size: usize, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; HEAD]);
        let kind = match self {
            Message::ClientHello(hello) => {
                put(out, hello.parameters);
                out.push(u8::from(hello.ticket.is_some()));
                out.extend(hello.ticket.iter().flatten());
                for name in &hello.alpn {
                    put_short(out, name);
                }
                CLIENT_HELLO
            }
            Message::ServerHello => SERVER_HELLO,
            Message::NewSessionTicket(early_data, ticket) => {
                out.push(u8::from(*early_data));
                out.extend_from_slice(ticket);
                NEW_SESSION_TICKET
            }
            Message::Answer(answer) => {
                put(out, answer.parameters);
                out.push(u8::from(answer.early_data));
                put_short(out, answer.alpn);
                ENCRYPTED_EXTENSIONS
            }
            Message::Finished => FINISHED,
        };
        let least = size.min(HEAD + MAX_BODY);
        if out.len() - start < least {
            out.resize(start + least, 0);
        }
        let length = (out.len() - start - HEAD) as u32;
        if let Some(head) = out.get_mut(start..start + HEAD) {
            head.copy_from_slice(&(u32::from(kind) << 24 | length).to_be_bytes());
        }
    }

    /// Reads the first handshake message in `bytes`. Returns the message and its length, or `None`
    /// if the message is incomplete.
    ///
    /// # Errors
    /// Fails if the message is unknown or too long.
    pub fn read(bytes: &'a [u8]) -> Result<Option<(Message<'a>, usize)>, Malformed> {
        let Some(([kind, a, b, c], rest)) = bytes.split_first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        if length > MAX_BODY {
            return Err(Malformed);
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        Ok(Some((Message::parse(*kind, &mut Reader::new(body))?, HEAD + length)))
    }

    fn parse(kind: u8, body: &mut Reader<'a>) -> Result<Message<'a>, Malformed> {
        Ok(match kind {
            CLIENT_HELLO => {
                let parameters = take(body)?;
                let ticket = match body.u8()? {
                    0 => None,
                    _ => Some(*body.array::<16>()?),
                };
                let mut alpn = Vec::new();
                while !body.is_empty() {
                    match body.u8()? {
                        0 => break,
                        length => alpn.push(body.bytes(length.into())?),
                    }
                }
                Message::ClientHello(Hello { parameters, ticket, alpn })
            }
            SERVER_HELLO => Message::ServerHello,
            NEW_SESSION_TICKET => Message::NewSessionTicket(body.u8()? != 0, *body.array()?),
            ENCRYPTED_EXTENSIONS => {
                let (parameters, early_data) = (take(body)?, body.u8()? != 0);
                let length = body.u8()?;
                let alpn = body.bytes(length.into())?;
                Message::Answer(Answer { parameters, early_data, alpn })
            }
            FINISHED => Message::Finished,
            _ => return Err(Malformed),
        })
    }
}

/// Appends `bytes` after a length field of two bytes. Longer input is truncated, but transport
/// parameters are never that long.
fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend(bytes.iter().take(length.into()));
}

fn put_short(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u8::try_from(bytes.len()).unwrap_or(u8::MAX);
    out.push(length);
    out.extend(bytes.iter().take(length.into()));
}

fn take<'a>(reader: &mut Reader<'a>) -> Result<&'a [u8], UnexpectedEnd> {
    let length = reader.u16()?;
    reader.bytes(length.into())
}
