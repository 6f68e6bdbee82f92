//! The plugins of this source tree. Their C code and manifests, from the folder `plugins/`, are
//! compiled into this crate.

use equic_plugin::{Bundle, Origin, Plugin, Policy, SigningKey, decide, pack};
use equic_transport::congestion::Algorithm;

use crate::clang::compile_text_with;
use crate::network::End;
use crate::pair::TrialError;

/// A plugin of this source tree.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// Name of the plugin, which is also its folder in `plugins/`.
    pub name: &'static str,
    /// The plugin's C code.
    pub code: &'static str,
    /// Its manifest.
    pub manifest: &'static str,
}

/// Returns the ends at which a plugin is meant to run on a connection where a server sends data to
/// a client.
fn ends(name: &str) -> &'static [End] {
    match name {
        "ack-delay" | "ack-path" => &[End::Client],
        "ecn" | "fec-rlc" | "fec-xor" | "messages" => &[End::Client, End::Server],
        _ => &[End::Server],
    }
}

macro_rules! tree {
    ($($name:literal),+ $(,)?) => {
        /// All plugins of this source tree, sorted by name.
        pub const TREE: &[Source] = &[$(Source {
            name: $name,
            code: include_str!(concat!("../../../plugins/", $name, "/", $name, ".c")),
            manifest: include_str!(concat!("../../../plugins/", $name, "/plugin.toml")),
        }),+];
    };
}

tree![
    "ack-delay",
    "ack-frequency",
    "ack-path",
    "cap",
    "cap-path",
    "cubic",
    "deadline",
    "ecn",
    "fec-rlc",
    "fec-xor",
    "lowest-latency",
    "messages",
    "monitor",
    "nagle",
    "priorities",
    "rate",
    "redundant",
    "reno",
    "tail-loss-probe",
    "weighted",
];

impl Source {
    /// Returns the plugin with this name, or `None` if the tree has no such plugin.
    pub fn find(name: &str) -> Option<Source> {
        TREE.iter().copied().find(|one| one.name == name)
    }

    /// Returns the ends at which the plugin is meant to run on a connection where a server sends
    /// data to a client.
    pub fn ends(&self) -> &'static [End] {
        ends(self.name)
    }

    /// Returns the native congestion controller for comparisons with the plugin. If the plugin is a
    /// congestion controller, it is a native controller of the same kind. If `attached` is true, it
    /// is the controller of the connection on which the plugin runs, whose window must be settable.
    pub(crate) fn counterpart(&self, attached: bool) -> Algorithm {
        match self.name {
            "reno" => Algorithm::NewReno,
            "rate" if !attached => Algorithm::Bbr,
            _ => Algorithm::Cubic,
        }
    }

    /// Returns the number of paths that a connection for the plugin needs.
    pub fn paths(&self) -> usize {
        let several =
            ["ack-path", "cap-path", "deadline", "lowest-latency", "redundant", "weighted"];
        if several.contains(&self.name) { 2 } else { 1 }
    }

    /// Returns the number of lines of the plugin's C code, including comments and empty lines.
    pub fn lines(&self) -> usize {
        self.code.lines().count()
    }

    /// Compiles the plugin and loads it as the owner's own plugin, so that it gets all permissions
    /// that it declares.
    ///
    /// # Errors
    /// Those of [`Source::bundle`], or the plugin cannot be loaded.
    pub fn load(&self) -> Result<Plugin, TrialError> {
        self.load_with(&[])
    }

    /// Loads the plugin like [`Source::load`], with values for macros that its code uses as
    /// settings, for example `[("RATE", "3000000")]`.
    ///
    /// # Errors
    /// Those of [`Source::load`].
    pub fn load_with(&self, settings: &[(&str, &str)]) -> Result<Plugin, TrialError> {
        let bytes = self.bundle_with(settings, None)?;
        let bundle = Bundle::parse(&bytes).map_err(TrialError::of)?;
        let granted = decide(&bundle, Origin::Own, &Policy::default(), 0);
        Plugin::load(&bundle, &granted.map_err(TrialError::of)?).map_err(TrialError::of)
    }

    /// Compiles the plugin and packs it with its manifest into a bundle. With `key`, the bundle is
    /// signed.
    ///
    /// # Errors
    /// Clang is not installed, the code does not compile, or the manifest is refused.
    pub fn bundle(&self, key: Option<&SigningKey>) -> Result<Vec<u8>, TrialError> {
        self.bundle_with(&[], key)
    }

    /// Returns a bundle like [`Source::bundle`], with settings as in [`Source::load_with`].
    ///
    /// # Errors
    /// Those of [`Source::bundle`].
    pub fn bundle_with(
        &self,
        settings: &[(&str, &str)],
        key: Option<&SigningKey>,
    ) -> Result<Vec<u8>, TrialError> {
        let object = compile_text_with(self.name, self.code, settings).map_err(TrialError::of)?;
        pack(self.manifest, &object, key).map_err(TrialError::of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every folder in `plugins/`, except that of the headers, must be in the list. Every plugin
    /// must have fewer than 200 lines of C code.
    #[test]
    fn tree_lists_every_plugin_and_each_is_short() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../plugins");
        let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> =
            names.map(|name| name.into_string().unwrap()).filter(|name| name != "sdk").collect();
        names.sort();
        let known: Vec<&str> = TREE.iter().map(|one| one.name).collect();
        assert_eq!(names, known);
        for one in TREE {
            assert!(one.lines() < 200, "{}: {} lines", one.name, one.lines());
        }
    }
}
