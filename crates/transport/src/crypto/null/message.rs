//! Messages of the handshake: as TLS frames them (RFC 8446 s.4), a type, a length of three bytes and a
//! body. In the body what there is to say, then zeros.

use equic_wire::{Reader, UnexpectedEnd};

/// Bytes of a message's body, at most.
pub(super) const MAX_BODY: usize = 1 << 16;

/// Type and length.
const HEAD: usize = 4;

/// One message. The numbers of the types are those of TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message<'a> {
    /// The client's first word.
    ClientHello(Hello<'a>),
    /// The server's; it says nothing.
    ServerHello,
    /// For a later connection: whether it may send early data, and what to say then.
    NewSessionTicket(bool, [u8; 16]),
    /// In the place of EncryptedExtensions, Certificate and CertificateVerify.
    Answer(Answer<'a>),
    /// Either side's last.
    Finished,
}

/// A client's offer, in the place of ClientHello.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hello<'a> {
    /// Its transport parameters.
    pub parameters: &'a [u8],
    /// It sends early data, with this of a NewSessionTicket.
    pub ticket: Option<[u8; 16]>,
    /// Application protocols, of 1 to 255 bytes each.
    pub alpn: Vec<&'a [u8]>,
}

/// A server's answer to a [`Hello`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Answer<'a> {
    /// Its transport parameters.
    pub parameters: &'a [u8],
    /// True if the server accepts early data.
    pub early_data: bool,
    /// The application protocol. Empty without a protocol.
    pub alpn: &'a [u8],
}

/// Error: the bytes are no message of this handshake.
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
    /// Appends it, with zeros up to `size` bytes in all.
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

    /// Reads the first message in `bytes`. Returns it and its length, or `None` if it is incomplete.
    ///
    /// # Errors
    /// The message is unknown or too long.
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

/// With a length of two bytes; what is longer is cut, which no transport parameters of ours are.
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
