//! Tests of `equic get` and `equic-lab net load` with servers that do not answer, or that answer
//! incorrectly.

use std::sync::Arc;

use quinn::{Endpoint, VarInt};
use serde_json::Value;

use crate::common::{equic, equic_lab};

/// An HTTP/3 response with status 200 and three bytes of content.
const OK: &[u8] = &[1, 3, 0, 0, 0xd9, 0, 3, b'o', b'k', b'\n'];
const REQUEST_REJECTED: u32 = 0x10b;

/// Response of the server to each request.
#[derive(Clone, Copy)]
enum Act {
    /// Sends these bytes and the end of the stream.
    Answer(&'static [u8]),
    /// Resets the request's stream.
    Reset(u32),
    /// Sends a GOAWAY frame with the ID of the first request.
    GoAway,
}

/// Starts a server that runs until the returned runtime is dropped, and returns its URL as well.
/// `script` chooses the answer by the number of the connection.
fn serve(script: impl Fn(usize) -> Act + Send + 'static) -> (tokio::runtime::Runtime, String) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let crypto = quinn::crypto::rustls::QuicServerConfig::try_from(tls).unwrap();
    let config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let endpoint = {
        let _entered = runtime.enter();
        Endpoint::server(config, "127.0.0.1:0".parse().unwrap()).unwrap()
    };
    let url = format!("https://{}/", endpoint.local_addr().unwrap());
    runtime.spawn(async move {
        let mut number = 0;
        while let Some(incoming) = endpoint.accept().await {
            let act = script(number);
            number += 1;
            tokio::spawn(async move {
                let Ok(connection) = incoming.await else { return };
                let mut control = connection.open_uni().await.unwrap();
                control.write_all(&[0, 4, 0]).await.unwrap();
                let mut open = Vec::new();
                while let Ok((mut send, mut receive)) = connection.accept_bi().await {
                    let _ = receive.read_to_end(10_000).await;
                    match act {
                        Act::Answer(bytes) => {
                            let _ = send.write_all(bytes).await;
                            let _ = send.finish();
                        }
                        Act::Reset(code) => drop(send.reset(VarInt::from_u32(code))),
                        Act::GoAway => {
                            let _ = control.write_all(&[7, 1, 0]).await;
                            open.push(send);
                        }
                    }
                }
            });
        }
    });
    (runtime, url)
}

fn lines(stdout: &str) -> Vec<Value> {
    stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn get_repeats_what_a_server_did_not_process() {
    for act in [Act::Reset(REQUEST_REJECTED), Act::GoAway] {
        let (_runtime, url) = serve(move |number| if number == 0 { act } else { Act::Answer(OK) });
        let got = equic(&["get", "--insecure", &url, &url]);
        assert_eq!(got.ok(), "ok\nok\n");
    }
}

#[test]
fn get_says_plainly_that_no_server_processed_the_request() {
    for (act, reason) in
        [(Act::Reset(REQUEST_REJECTED), "H3_REQUEST_REJECTED"), (Act::GoAway, "GOAWAY")]
    {
        let (_runtime, url) = serve(move |_| act);
        let got = equic(&["get", "--insecure", "--json", &url]);
        assert_eq!(got.code, Some(1), "{got:?}");
        let stderr = &got.stderr;
        assert!(
            stderr.contains("did not process the request") && stderr.contains(reason),
            "{stderr}"
        );
        let [line] = &lines(&got.stdout)[..] else { panic!("{got:?}") };
        assert_eq!((&line["schema"], &line["url"]), (&"equic.get.error/1".into(), &url.into()));
        assert!(line["error"].as_str().unwrap().contains(reason), "{line}");
    }
}

/// An incomplete body must be reported as an error, wherever it is written to.
#[test]
fn get_reports_no_part_of_a_body_as_success() {
    // A response with status 200 and content-length 9, but only five bytes of content.
    const SHORT: &[u8] = b"\x01\x06\0\0\xd9\x54\x019\0\x05short";
    // A response with five bytes of content, and trailers with a field that only HTTP/1 permits.
    const TRAILERS: &[u8] = b"\x01\x03\0\0\xd9\0\x05short\x01\x0d\0\0\x27\0upgrade\x01x";
    // A response whose DATA frame of nine bytes is truncated.
    const CUT: &[u8] = b"\x01\x03\0\0\xd9\0\x09short";
    for (answer, reason) in [(SHORT, "announced"), (TRAILERS, "H3_MESSAGE_ERROR"), (CUT, "frame")] {
        let (_runtime, url) = serve(move |_| Act::Answer(answer));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("body");
        let to_file = ["-o", file.to_str().unwrap()];
        for to in
            [&[][..], &["--discard"], &["--json"], &["--json", to_file[0], to_file[1]], &to_file]
        {
            let got = equic(&[&["get", "--insecure", &url], to].concat());
            assert_eq!(got.code, Some(1), "{to:?}: {got:?}");
            assert!(got.stderr.contains(reason), "{to:?}: {got:?}");
            if to.contains(&"--json") {
                let [line] = &lines(&got.stdout)[..] else { panic!("{got:?}") };
                assert_eq!(line["schema"], "equic.get.error/1", "{line}");
                assert!(line["error"].as_str().unwrap().contains(reason), "{line}");
            }
        }
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 0, "{reason}: the temporary file is removed");
    }
}

/// Temporary files must neither have the name of another URL's file, nor follow a link that another
/// user has created in the directory.
#[test]
fn get_replaces_only_the_files_of_its_urls() {
    use std::os::unix::fs::PermissionsExt as _;

    let (_runtime, url) = serve(|_| Act::Answer(OK));
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir(at("to")).unwrap();
    std::fs::write(at("victim"), "keep").unwrap();
    std::os::unix::fs::symlink(at("victim"), at("to/a.part")).unwrap();
    std::os::unix::fs::symlink(at("victim"), at("to/b")).unwrap();
    let urls = ["a", "a.part", "b"].map(|name| format!("{url}{name}"));
    let to = at("to");
    let args = ["get", "--insecure", "-o", to.to_str().unwrap(), &urls[0], &urls[1], &urls[2]];
    equic(&args).ok();
    for name in ["a", "a.part", "b"] {
        let file = to.join(name);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "ok\n", "{name}");
        let metadata = std::fs::symlink_metadata(&file).unwrap();
        assert!(metadata.is_file(), "{name} is not a link");
        // The permissions are those of a new file under this process's umask.
        let new = at("new");
        std::fs::write(&new, "").unwrap();
        let usual = std::fs::metadata(&new).unwrap().permissions().mode();
        assert_eq!(metadata.permissions().mode(), usual, "{name}");
    }
    assert_eq!(std::fs::read_dir(&to).unwrap().count(), 3);
    assert_eq!(std::fs::read_to_string(at("victim")).unwrap(), "keep");
}

#[test]
fn load_repeats_what_a_server_did_not_process() {
    let act = |number: usize| match number % 2 {
        0 => Act::Reset(REQUEST_REJECTED),
        _ => Act::Answer(OK),
    };
    let (_runtime, url) = serve(act);
    let load = ["net", "load", "well", "--insecure", "--json", "--requests", "2", "--count", "20"];
    let done = equic_lab(&[&load[..], &[&url]].concat()).json();
    let summary = &done["summary"];
    assert_eq!((&summary["ok"], &summary["refused"]), (&20.into(), &0.into()), "{done}");
    let (_runtime, url) = serve(|_| Act::Reset(REQUEST_REJECTED));
    let done = equic_lab(&[&load[..], &[&url]].concat()).json();
    let summary = &done["summary"];
    assert_eq!((&summary["ok"], &summary["refused"]), (&0.into(), &20.into()), "{done}");
}
