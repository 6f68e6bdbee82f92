//! `[gateway.socket]`: the Unix socket at which servers without privileges join the gateway.

use serde::{Deserialize, Serialize};

/// The gateway's Unix socket, the users that may open it, and the number of servers per user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct SocketConfig {
    /// Absolute path of the socket. It may have at most 90 bytes.
    pub path: String,
    /// Owner of the socket, by name or number. If it is `None`, the owner is the gateway's user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Group of the socket, by name or number. If it is `None`, it is the gateway's group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Mode of the socket, in octal. Users with write permission can connect.
    pub mode: String,
    /// Users that may join, by name or number. If it is empty, every user that can connect may
    /// join. Root may always join.
    pub users: Vec<String>,
    /// Maximum number of servers at a time; 1 to 16.
    pub max_servers: u32,
    /// Maximum number of servers of one user at a time; 1 to 16.
    pub max_per_user: u32,
}

impl Default for SocketConfig {
    fn default() -> SocketConfig {
        SocketConfig {
            path: "/run/equic/equic.sock".to_owned(),
            owner: None,
            group: None,
            mode: "0660".to_owned(),
            users: Vec::new(),
            max_servers: 16,
            max_per_user: 4,
        }
    }
}

impl SocketConfig {
    /// Returns the default settings with this path.
    pub fn at(path: impl Into<String>) -> SocketConfig {
        SocketConfig { path: path.into(), ..SocketConfig::default() }
    }

    /// Returns every invalid key, each with a description of what is wrong.
    pub(super) fn check(&self) -> Vec<(&'static str, String)> {
        let Self { path, mode, .. } = self;
        let mut wrong = Vec::new();
        // A socket address (`sun_path`) has 108 bytes, and the gateway first creates the socket
        // under a longer, temporary name.
        if !path.starts_with('/') || path.len() > 90 || path.contains('\0') {
            wrong.push((
                "path",
                format!("`{path}` is not usable: write an absolute path of at most 90 bytes"),
            ));
        }
        for (key, value) in [("owner", &self.owner), ("group", &self.group)] {
            if value.as_ref().is_some_and(String::is_empty) {
                let message = "the name is empty: write a name or a number, or remove the key";
                wrong.push((key, message.to_owned()));
            }
        }
        let octal = mode.bytes().all(|digit| (b'0'..=b'7').contains(&digit));
        if !octal || !(3..=4).contains(&mode.len()) {
            wrong.push((
                "mode",
                format!("`{mode}` is not a file mode: write, for example, \"0660\""),
            ));
        }
        for (key, value) in [("max_servers", self.max_servers), ("max_per_user", self.max_per_user)]
        {
            if !(1..=16).contains(&value) {
                wrong.push((key, format!("{value} is out of range: write a number from 1 to 16")));
            }
        }
        wrong
    }
}
