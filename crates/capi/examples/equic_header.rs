//! Writes the headers in `include`, generated from this crate: `make header` at the root runs it. `equic.h` is the one that
//! programs include; it includes `equic_proof.h`, where the items of [`PROOF`] are.

use std::fs;
use std::path::Path;

use cbindgen::{
    Bindings, Builder, Config, DocumentationLength, DocumentationStyle, EnumConfig, Language, Style,
};

/// The sources whose items have a header of their own.
const PROOF: [&str; 2] = ["src/retry.rs", "src/ids.rs"];

/// Text at the top of `equic.h`, before anything generated.
const TOP: &str = r#"/*
 * libequic: an XDP gateway for QUIC servers. Quotas, rates and lists are enforced in the kernel,
 * driven live by the server.
 *
 * Two APIs:
 *
 * 1. The paper's, around equic_t: five calls put a gateway on an interface. Functions return
 *    nothing; errors are said on stderr and end the process with EXIT_FAILURE.
 *
 *        equic_t equic;
 *        equic_get_interface(&equic, "eth0");
 *        equic_read_object(&equic, "equic_kern.o");
 *        signal(SIGINT, equic_sigint_callback);
 *        signal(SIGTERM, equic_sigterm_callback);
 *        equic_load(&equic);
 *        ...
 *        equic_inc_counter(&equic, peer);   when a handshake is complete
 *        equic_dec_counter(&equic, peer);   when that connection is closed
 *
 *    UDP port 443 on every address is protected, and a source may hold 5 connections at a time, as
 *    in the paper. At the limit, what would open one more is dropped, and open connections go on;
 *    handshakes under way count, since such a program does not close what is too much (policy
 *    "underway"; equic_set_policy says what holds). Other values: equic_set_port, equic_set_limit,
 *    equic_set_policy, or, where the program calls none of these, EQUIC_PORT, EQUIC_LIMIT,
 *    EQUIC_POLICY=new|underway|strict in the environment.
 *
 * 2. Handles and error codes: equic_gateway, equic_service, equic_connection. Nothing is printed,
 *    nothing ends the process. equic_last_error_message() says what failed, why, and the mend.
 *
 *        equic_options options;
 *        equic_options_init(&options, sizeof options);
 *        options.max_connections = 100;
 *        equic_gateway *gateway;
 *        equic_service *service;
 *        if (equic_gateway_open(&options, &gateway) ||
 *            equic_gateway_attach(gateway, "eth0", EQUIC_MODE_AUTO) ||
 *            equic_gateway_service(gateway, NULL, &service))
 *                errx(1, "%s", equic_last_error_message());
 *        ...
 *        equic_opened(service, peer, peer_len, &connection, NULL, NULL);
 *        equic_connection_closed(connection);
 *
 * What a server does behind a gateway that answers with Retry packets, or checks connection IDs, is in
 * equic_proof.h, which this header includes.
 *
 * Pointers. NULL is an error (or ignored, where it says so), never a crash. Any other pointer must
 * be what its type says and live during the call: text NUL-terminated UTF-8; a sockaddr with as
 * many bytes as its length, or its family, says; a handle one that this library gave and that was
 * not released yet. A pointer that is a result may be NULL if the result is not wanted, except for
 * handles.
 *
 * Threads. Every function may be called from any thread at any time, also with the same handle;
 * only the call that ends a handle must be its last use. Error messages belong to the thread.
 * The library has two threads of its own, one that tells the kernel several times a second that
 * this process lives, one that cleans up (or watches the gateway that was joined); they block all
 * signals.
 *
 * fork. A child does not inherit the gateway: it must not use handles or an equic_t made before the
 * fork. A worker process that serves connections calls equic_gateway_join itself. Signal callbacks
 * in a child end the child, and leave the program where it is.
 *
 * Capabilities. Loading takes CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN. Counting takes none: a server may
 * drop its privileges once it has its service (and then does not join the next gateway, if it found
 * this one by equic_gateway_join), and one that never had any uses equic_gateway_connect.
 */"#;

/// Text at the top of `equic_proof.h`.
const TOP_OF_PROOF: &str = r#"/*
 * Part of equic.h, which includes it: tokens of Retry packets, and connection IDs that prove themselves.
 *
 * A server behind a gateway that answers with Retry packets says so as it joins, and checks the token of
 * every Initial packet that has one; the rest of the keys is the library's:
 *
 *        equic_gateway_join_checking("eth0", "server", EQUIC_TOKEN_KEYS_TAKE, &gateway);
 *        equic_gateway_ring(gateway, &ring);
 *        ...
 *        equic_retry_verify(ring, peer, peer_len, dcid, dcid_len, token, token_len, &proof);
 *
 * A ring can be read from a file, too (equic_ring_read), which needs no gateway in this process and no
 * privileges.
 *
 * A server behind a gateway that checks connection IDs (check_ids) says so in the same way, and makes all its IDs
 * by it:
 *
 *        equic_gateway_join_checking("eth0", "server", EQUIC_TOKEN_KEYS_TAKE_FOR_IDS, &gateway);
 *        equic_gateway_ids(gateway, 0, &ids);
 *        ...
 *        equic_ids_generate(ids, id, EQUIC_ID_LENGTH);
 *
 * What equic.h says of pointers, threads, fork and capabilities holds here.
 */"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (name, text) in generate(folder)? {
        let (path, new) = (folder.join("include").join(name), format!("{name}.new"));
        let new = path.with_file_name(new);
        // Whoever compiles meanwhile sees the old one or the new one.
        fs::write(&new, text)?;
        fs::rename(new, path)?;
    }
    Ok(())
}

/// Name and text of a header.
type Header = (&'static str, Vec<u8>);

/// The headers of the crate in this folder.
pub(crate) fn generate(folder: &Path) -> Result<[Header; 2], Box<dyn std::error::Error>> {
    let mut apart = Vec::new();
    for source in PROOF {
        apart.extend(public_items(&fs::read_to_string(folder.join(source))?));
    }
    let main = main_header(folder, apart)?;
    let proof = proof_header(folder)?;
    let text = |bindings: Bindings| {
        let mut text = Vec::new();
        bindings.write(&mut text);
        text
    };
    Ok([("equic.h", text(main)), ("equic_proof.h", text(proof))])
}

/// Names of a source's functions, types and constants for C.
fn public_items(source: &str) -> Vec<String> {
    let kinds = [
        "pub unsafe extern \"C\" fn ",
        "pub extern \"C\" fn ",
        "pub struct ",
        "pub enum ",
        "pub const ",
    ];
    let name = |line: &str| {
        let rest = kinds.iter().find_map(|kind| line.strip_prefix(kind))?;
        let end = rest.find(|c: char| c != '_' && !c.is_ascii_alphanumeric());
        Some(rest[..end.unwrap_or(rest.len())].to_owned())
    };
    source.lines().filter_map(name).collect()
}

/// `equic.h`: everything but what is in the other header.
fn main_header(folder: &Path, apart: Vec<String>) -> Result<Bindings, cbindgen::Error> {
    let mut version = env!("CARGO_PKG_VERSION").split('.');
    let mut part = || version.next().unwrap_or("0");
    let after_includes = format!(
        "\n/* The version of this header; equic_version() is that of the library. */\n\
         #define EQUIC_VERSION \"{}\"\n#define EQUIC_VERSION_MAJOR {}\n#define EQUIC_VERSION_MINOR {}\n\
         #define EQUIC_VERSION_PATCH {}",
        env!("CARGO_PKG_VERSION"),
        part(),
        part(),
        part()
    );
    let mut config = Config {
        after_includes: Some(after_includes),
        // <signal.h>: the paper's listing calls signal().
        sys_includes: ["signal.h", "stddef.h", "stdint.h", "sys/socket.h"]
            .map(str::to_owned)
            .to_vec(),
        // Behind all types that the other one needs.
        trailer: Some("#include \"equic_proof.h\"".to_owned()),
        ..config(TOP, "EQUIC_H")
    };
    config.export.exclude = apart;
    config.export.include = ["equic_policy", "equic_mode", "equic_join_event", "equic_token_keys"]
        .map(str::to_owned)
        .to_vec();
    Builder::new().with_crate(folder).with_config(config).generate()
}

/// `equic_proof.h`: the items of [`PROOF`].
fn proof_header(folder: &Path) -> Result<Bindings, cbindgen::Error> {
    let mut config =
        Config { includes: vec!["equic.h".to_owned()], ..config(TOP_OF_PROOF, "EQUIC_PROOF_H") };
    config.export.include = vec!["equic_clock".to_owned()];
    // As in the other header: cgo takes the two for different types.
    config.export.rename.insert("equic_error".to_owned(), "enum equic_error".to_owned());
    PROOF
        .iter()
        .fold(Builder::new(), |builder, source| builder.with_src(folder.join(source)))
        .with_config(config)
        .generate()
}

/// Settings that both headers are generated with.
fn config(top: &str, guard: &str) -> Config {
    let mut config = Config {
        language: Language::C,
        cpp_compat: true,
        style: Style::Both,
        header: Some(format!("/* SPDX-License-Identifier: Apache-2.0 OR MIT */\n{top}")),
        autogen_warning: Some(
            "/* Generated by cbindgen from crates/capi/src: `make header` writes it again. Do not edit. */".to_owned(),
        ),
        include_guard: Some(guard.to_owned()),
        no_includes: true,
        documentation_style: DocumentationStyle::Doxy,
        documentation_length: DocumentationLength::Full,
        usize_is_size_t: true,
        tab_width: 8,
        line_length: 100,
        enumeration: EnumConfig { prefix_with_name: false, ..EnumConfig::default() },
        ..Config::default()
    };
    config.export.rename.insert("sockaddr".to_owned(), "struct sockaddr".to_owned());
    config.function.sort_by = Some(cbindgen::SortKey::None);
    config
}
