//! Writes the C headers in `include`, which are generated from this crate. `make header` in the
//! root folder runs this program. C programs include `equic.h`, which includes `equic_proof.h` with
//! the items of [`PROOF`].

use std::fs;
use std::path::Path;

use cbindgen::{
    Bindings, Builder, Config, DocumentationLength, DocumentationStyle, EnumConfig, Language, Style,
};

/// Source files whose items are declared in `equic_proof.h`.
const PROOF: [&str; 2] = ["src/retry.rs", "src/ids.rs"];

/// Text at the top of `equic.h`.
const TOP: &str = r#"/*
 * libequic: an XDP gateway for QUIC servers. The kernel enforces quotas, rates and lists, and the
 * server reports its connections.
 *
 * There are two APIs:
 *
 * 1. The paper's API, with equic_t: five calls attach a gateway to an interface. The functions
 *    return no errors. They print errors to stderr, and end the process with EXIT_FAILURE.
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
 *    This protects UDP port 443 on every address, and a source may hold 5 connections at a time,
 *    as in the paper. At the limit, packets that would open another connection are dropped, and
 *    open connections continue. Handshakes in progress count, because such a program does not
 *    close excess connections (policy "underway", see equic_set_policy). To use other values, call
 *    equic_set_port, equic_set_limit and equic_set_policy. For values without a call, set
 *    EQUIC_PORT, EQUIC_LIMIT and EQUIC_POLICY=new|underway|strict in the environment.
 *
 * 2. Handles and error codes: equic_gateway, equic_service, equic_connection. These functions print
 *    nothing and never end the process. equic_last_error_message() says what failed, why, and how
 *    to fix it.
 *
 *        const char *settings[] = {"max_connections=100", "retry=adaptive", NULL};
 *        equic_options options;
 *        equic_options_init(&options, sizeof options);
 *        options.settings = settings;
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
 * equic_proof.h, which this header includes, is for servers behind a gateway that sends Retry
 * packets or checks connection IDs.
 *
 * Pointers. NULL is an error, or ignored where the documentation says so. It never causes a crash.
 * Any other pointer must be valid for its type during the call. A string must be NUL-terminated
 * UTF-8. A sockaddr must have the number of bytes that its length, or its family, requires. A
 * handle must be one that this library returned and that was not released yet. A pointer to a
 * result may be NULL if the result is not needed, except for handles.
 *
 * Threads. Every function may be called from any thread at any time, even with the same handle.
 * Only the call that releases a handle must be its last use. Each thread has its own error messages.
 * The library runs two threads, which block all signals. One tells the kernel several times per
 * second that this process is alive. The other cleans up, or watches the joined gateway.
 *
 * fork. A child does not inherit the gateway: it must not use handles or an equic_t from before the
 * fork. A worker process that serves connections must call equic_gateway_join itself. In a child,
 * the signal callbacks end only the child, and the program stays attached.
 *
 * Capabilities. Loading needs CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN. Counting needs none, so a
 * server may drop its privileges once it has its service. Then it cannot join the next gateway if
 * it used equic_gateway_join. A server without any privileges uses equic_gateway_connect.
 */"#;

/// Text at the top of `equic_proof.h`.
const TOP_OF_PROOF: &str = r#"/*
 * Part of equic.h, which includes it: tokens of Retry packets, and verifiable connection IDs.
 *
 * A server behind a gateway that sends Retry packets declares when it joins that it checks tokens,
 * and checks the token of every Initial packet that has one. The library handles the keys:
 *
 *        equic_join_options options;
 *        equic_join_options_init(&options, sizeof options);
 *        options.token_check = EQUIC_TOKEN_CHECK_GATEWAY_KEYS;
 *        equic_gateway_join("eth0", "server", &options, &gateway);
 *        equic_gateway_ring(gateway, &ring);
 *        ...
 *        equic_retry_verify(ring, peer, peer_len, dcid, dcid_len, token, token_len, &proof);
 *
 * A ring can also be read from a file (equic_ring_read). This needs no gateway in this process and
 * no privileges.
 *
 * A server behind a gateway that checks connection IDs (check_ids) declares in the same way that it
 * supports this, and creates all its IDs with the gateway's keys:
 *
 *        options.issue_ids = 1;
 *        equic_gateway_join("eth0", "server", &options, &gateway);
 *        equic_gateway_ids(gateway, 0, &ids);
 *        ...
 *        equic_ids_generate(ids, id, EQUIC_ID_LENGTH);
 *
 * The rules of equic.h about pointers, threads, fork and capabilities apply here, too.
 */"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (name, text) in generate(folder)? {
        let (path, new) = (folder.join("include").join(name), format!("{name}.new"));
        let new = path.with_file_name(new);
        // The file is written under another name and then renamed. A compiler that reads it at the
        // same time therefore sees either the complete old file or the complete new file.
        fs::write(&new, text)?;
        fs::rename(new, path)?;
    }
    Ok(())
}

/// File name and content of a header.
type Header = (&'static str, Vec<u8>);

/// Generates the headers of the crate in `folder`.
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

/// Returns the names of the functions, types and constants that a source file exports to C.
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

/// Generates `equic.h` with all items except those of `equic_proof.h`, whose names are in `apart`.
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
        // <signal.h> is included because the listing in the eQUIC paper calls signal().
        sys_includes: ["signal.h", "stddef.h", "stdint.h", "sys/socket.h"]
            .map(str::to_owned)
            .to_vec(),
        // equic_proof.h uses all types of this header, so it is included at the end.
        trailer: Some("#include \"equic_proof.h\"".to_owned()),
        ..config(TOP, "EQUIC_H")
    };
    config.export.exclude = apart;
    config.export.include = ["equic_policy", "equic_mode", "equic_join_event", "equic_token_check"]
        .map(str::to_owned)
        .to_vec();
    Builder::new().with_crate(folder).with_config(config).generate()
}

/// Generates `equic_proof.h` with the items of the files in [`PROOF`].
fn proof_header(folder: &Path) -> Result<Bindings, cbindgen::Error> {
    let mut config =
        Config { includes: vec!["equic.h".to_owned()], ..config(TOP_OF_PROOF, "EQUIC_PROOF_H") };
    config.export.include = vec!["equic_clock".to_owned()];
    // Both headers must use the same name for this type. Otherwise, cgo treats it as two different
    // types.
    config.export.rename.insert("equic_error".to_owned(), "enum equic_error".to_owned());
    PROOF
        .iter()
        .fold(Builder::new(), |builder, source| builder.with_src(folder.join(source)))
        .with_config(config)
        .generate()
}

/// Returns the cbindgen settings that both headers share.
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
