//! Interprets the folder and file names in the published data of "QUIC on the Highway".

use std::path::Path;

/// Returns the experiment and the variant of a run, from the path of its folder below `results` and
/// from the names of its hosts.
pub(super) fn place(run: &Path, hosts: &str) -> (String, String) {
    let parts: Vec<String> = run.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let (experiment, variant) = match parts[..] {
        // baseline/client-timestamps/goracle/run2
        ["baseline", _, variant, ..] => ("baseline", variant),
        // offloading/goracle/off/run1
        ["offloading", _, variant, ..] => ("offloading", variant),
        // crypto/aes-noni/tcp2
        ["crypto", variant, ..] => ("crypto", variant),
        // buffer/udp/run3/udp-buffer-106496
        ["buffer", .., run] => ("rcvbuf", run.rsplit('-').next().unwrap_or(run)),
        // In hardware/optimized/tcp-tinyman, the hosts determine the variant.
        ["hardware", ..] => ("hardware", hosts),
        [first, .., last] => (first, last),
        [one] => (one, ""),
        [] => ("", ""),
    };
    (experiment.to_owned(), variant.to_owned())
}

/// Returns the name of an implementation. TCP has two names in the published data, and
/// builds without ChaCha20 have a suffix.
pub(super) fn implementation(experiment: &str, name: &str) -> String {
    match name {
        "tls1.3" | "tcp+tls" => "TCP+TLS".to_owned(),
        _ if experiment == "crypto" => name.strip_suffix("-aes").unwrap_or(name).to_owned(),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_the_repository() {
        let of = |run: &str| place(Path::new(run), "a-b");
        let pair = |experiment: &str, variant: &str| (experiment.to_owned(), variant.to_owned());
        assert_eq!(of("baseline/client-timestamps/goracle/run2"), pair("baseline", "goracle"));
        assert_eq!(of("offloading/goracle/only-udp/run1"), pair("offloading", "only-udp"));
        assert_eq!(of("crypto/aes-noni/tcp2"), pair("crypto", "aes-noni"));
        assert_eq!(of("buffer/udp/run3/udp-buffer-106496"), pair("rcvbuf", "106496"));
        assert_eq!(of("hardware/optimized/tcp-tinyman"), pair("hardware", "a-b"));
        assert_eq!(of("mine/now/here"), pair("mine", "here"));
        assert_eq!(of("mine"), pair("mine", ""));
        assert_eq!(of(""), pair("", ""));
    }

    #[test]
    fn names_of_the_same_are_the_same() {
        assert_eq!(implementation("crypto", "lsquic-aes"), "lsquic");
        assert_eq!(implementation("baseline", "lsquic-aes"), "lsquic-aes");
        assert_eq!(implementation("crypto", "tls1.3"), implementation("offloading", "tcp+tls"));
    }
}
