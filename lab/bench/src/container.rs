//! Runs stock endpoints in docker containers, and removes the containers.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::Implementation;
use crate::ends::NAME;
use crate::site::Site;

/// Returns the `docker run` command of a container in the network of docker's daemon, which must
/// run on this machine. The caller appends the container's name and the image.
pub(crate) fn docker(
    environment: &BTreeMap<String, String>,
    (own, files): (&Path, &Path),
    site: &Site<'_>,
    address: SocketAddr,
) -> Vec<String> {
    let mount = |from: &Path, to: &str| format!("type=bind,source={},target={to}", from.display());
    let mut words: Vec<String> =
        ["docker", "run", "--rm", "--init", "--network=host"].map(str::to_owned).into();
    words.push(format!("--add-host={NAME}:{}", address.ip()));
    for (name, value) in environment {
        // These variables name folders that are mounted in the container.
        if !["WWW", "DOWNLOADS", "CERTS", "LOGS"].contains(&name.as_str()) {
            words.extend(["--env".to_owned(), format!("{name}={value}")]);
        }
    }
    for (from, to) in [
        (files.join("www"), "/www"),
        (files.join("downloads"), "/downloads"),
        (site.certificates.to_owned(), "/certs"),
        (own.to_owned(), "/logs"),
    ] {
        words.extend(["--mount".to_owned(), mount(&from, to)]);
    }
    words
}

/// Returns true if the implementation runs in a docker container.
pub(crate) fn contained(who: &Implementation) -> bool {
    who.image.is_some() && who.path.is_none() && who.endpoint.is_empty()
}

/// A running container. It is removed when this value is dropped, because killing `docker run` does
/// not end the container.
pub(crate) struct Container(String);

impl Container {
    pub(crate) fn of(role: &str, who: &Implementation) -> Option<Container> {
        contained(who).then(|| Container(Container::name(role)))
    }

    pub(crate) fn name(role: &str) -> String {
        format!("equic-bench-{}-{role}", std::process::id())
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let mut command = Command::new("docker");
        command.args(["rm", "--force", &self.0]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // An error is expected, because usually the container has removed itself already.
        let _ = command.status();
    }
}
