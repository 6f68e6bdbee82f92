//! Tests of the QPACK integers that our server accepts (RFC 9204 s.4.1.1).

use equic_http3::ServerConfig;
use quinn::{ReadError, ReadToEndError};
use tokio::time::timeout;

use crate::common::{PATIENCE, loopback, start};
use crate::foreign::raw;
use crate::rules::field;

const DECOMPRESSION_FAILED: u64 = 0x200;

/// Returns GET /health with this prefix of the field section (RFC 9204 s.4.5.1).
fn request(prefix: &[u8]) -> Vec<u8> {
    let authority = field(":authority", "localhost");
    let block = [prefix, &[0xd1, 0xd7], b"\x51\x07/health", &authority].concat();
    [&[1, block.len() as u8], &*block].concat()
}

// RFC 9204 s.7.4 #2
#[tokio::test]
async fn qpack_integers_of_62_bits_are_read_and_longer_ones_end_their_stream() {
    let server = start(ServerConfig::new(loopback()));
    let (_endpoint, connection) = raw(&server).await;
    let most = [0xff; 8];
    for (prefix, is_read) in [
        (&[0, 0x7f, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20][..], true),
        // The largest 62-bit number with this prefix: 127 in the prefix, plus 2^62 - 128 in the
        // bytes after it.
        (&[&[0, 0x7f, 0x80], &most[..7], &[0x3f]].concat(), true),
        (&[&[0, 0x7f], &most[..], &[0x3f]].concat(), false),
        (&[&[0, 0x7f], &most[..], &[0x7f]].concat(), false),
        (&[&[0, 0x7f], &most[..], &[0xff, 1]].concat(), false),
        (&[0, 0], true),
    ] {
        let (mut send, mut receive) = connection.open_bi().await.unwrap();
        send.write_all(&request(prefix)).await.unwrap();
        let _ = send.finish();
        match timeout(PATIENCE, receive.read_to_end(10_000)).await.unwrap() {
            Ok(answer) => assert!(is_read && answer.ends_with(b"ok\n"), "{prefix:x?}"),
            Err(ReadToEndError::Read(ReadError::Reset(code))) => {
                assert_eq!(
                    (is_read, code.into_inner()),
                    (false, DECOMPRESSION_FAILED),
                    "{prefix:x?}"
                );
            }
            other => panic!("{prefix:x?}: {other:?}"),
        }
    }
}
