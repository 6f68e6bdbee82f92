//! Traces and plugins that a scenario description refers to. Each of them is read once, from its
//! file or from a text that was stored with the results of a sweep.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use equic_sim::{MAX_TRACE_TEXT, Trace};

#[cfg(feature = "plugins")]
use crate::model::PluginFile;

/// Largest number of traces of one scenario description. Their total size is at most
/// [`MAX_TRACE_TEXT`] bytes.
const MOST: usize = 1_000;

/// Magic bytes at the start of every bundle (docs/plugins.md).
const BUNDLE_MAGIC: &[u8] = b"\x89QPLUG\n\x01";
/// Largest size of a plugin in bytes.
const MOST_OF_PLUGIN: usize = 2 << 20;

/// Texts of traces, and plugins in hexadecimal, by the names that the scenario description uses.
pub type TraceTexts = BTreeMap<String, String>;

/// Where traces and plugins are read from.
enum Source {
    /// Files. Names are paths relative to this directory.
    Folder(PathBuf),
    /// Texts that were stored with the results of a sweep, by name.
    Kept(TraceTexts),
}

/// The traces and plugins of one scenario description.
pub(crate) struct Traces {
    source: Source,
    read: BTreeMap<String, Result<Arc<Trace>, String>>,
    bundles: BTreeMap<String, Result<Arc<[u8]>, String>>,
    texts: TraceTexts,
    /// Total size of all texts in bytes.
    bytes: usize,
}

impl Traces {
    /// Creates a set that reads from files. Names are paths relative to this directory.
    pub(crate) fn beside(folder: &Path) -> Traces {
        Traces::new(Source::Folder(folder.to_owned()))
    }

    /// Creates a set that reads from stored texts.
    pub(crate) fn kept(texts: TraceTexts) -> Traces {
        Traces::new(Source::Kept(texts))
    }

    fn new(source: Source) -> Traces {
        Traces {
            source,
            read: BTreeMap::new(),
            bundles: BTreeMap::new(),
            texts: TraceTexts::new(),
            bytes: 0,
        }
    }

    /// Returns the texts of the traces that were read, by name.
    pub(crate) fn into_texts(self) -> TraceTexts {
        self.texts
    }

    /// Returns the trace of this name, or a message that says what is wrong with it.
    pub(crate) fn find(&mut self, name: &str) -> Result<Arc<Trace>, String> {
        if let Some(read) = self.read.get(name) {
            return read.clone();
        }
        if self.read.len() == MOST {
            return Err(format!("a scenario can use at most {MOST} traces"));
        }
        let read = self.load(name);
        self.read.insert(name.to_owned(), read.clone());
        read
    }

    /// Returns the content of the plugin of this name, or a message that says what is wrong with
    /// it.
    pub(crate) fn bundle(&mut self, name: &str) -> Result<Arc<[u8]>, String> {
        if let Some(read) = self.bundles.get(name) {
            return read.clone();
        }
        if self.bundles.len() == MOST {
            return Err(format!("a scenario can use at most {MOST} plugins"));
        }
        let read = self.load_bundle(name);
        self.bundles.insert(name.to_owned(), read.clone());
        read
    }

    fn load_bundle(&mut self, name: &str) -> Result<Arc<[u8]>, String> {
        let bundle = match &self.source {
            Source::Folder(folder) => text_of(&folder.join(name), MOST_OF_PLUGIN)?,
            Source::Kept(texts) => {
                let kept = texts.get(name).and_then(|kept| from_hex(kept));
                kept.ok_or_else(|| "the sweep did not store this plugin".to_owned())?
            }
        };
        if bundle.len() > MOST_OF_PLUGIN {
            return Err(format!("a plugin can have at most {MOST_OF_PLUGIN} bytes"));
        }
        if bundle.len() > MAX_TRACE_TEXT - self.bytes {
            return Err(format!(
                "the plugins of a scenario can have at most {MAX_TRACE_TEXT} bytes in total"
            ));
        }
        let bundle: Arc<[u8]> = bundle.into();
        // Without the feature `plugins`, this crate cannot load plugins.
        #[cfg(feature = "plugins")]
        crate::play::load_plugin(&PluginFile { name: name.to_owned(), bundle: bundle.clone() })?;
        // Stored texts are written into the directory of a sweep, which the user may publish. A
        // description must not be able to copy arbitrary files there, so only files that begin like
        // a plugin bundle are stored. Any other file is rejected later, when it is loaded as a
        // plugin.
        if bundle.starts_with(BUNDLE_MAGIC)
            && self.texts.insert(name.to_owned(), to_hex(&bundle)).is_some()
        {
            return Err(
                "this file cannot be used as a plugin, because it is already used as a trace"
                    .to_owned(),
            );
        }
        self.bytes += bundle.len();
        Ok(bundle)
    }

    fn load(&mut self, name: &str) -> Result<Arc<Trace>, String> {
        let left = MAX_TRACE_TEXT - self.bytes;
        let text = match &self.source {
            Source::Folder(folder) => text_of(&folder.join(name), left)?,
            Source::Kept(texts) => {
                let kept = texts
                    .get(name)
                    .ok_or_else(|| "the sweep did not store this trace".to_owned())?;
                kept.clone().into_bytes()
            }
        };
        if text.len() > left {
            return Err(format!(
                "the traces of a scenario can have at most {MAX_TRACE_TEXT} bytes in total"
            ));
        }
        let trace = Trace::parse(&text).map_err(|error| format!("{name}: {error}"))?;
        // Cannot fail for a valid trace: it consists of digits and line feeds.
        let text = String::from_utf8(text).map_err(|error| error.to_string())?;
        self.bytes += text.len();
        self.texts.insert(name.to_owned(), text);
        Ok(Arc::new(trace))
    }
}

/// Encodes bytes as hexadecimal text, which is stored with a grid.
fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Decodes hexadecimal text, or returns `None` if it is invalid.
fn from_hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    rest.is_empty().then(|| pairs.iter().map(byte).collect())?
}

/// Reads up to `most + 1` bytes of a file.
fn text_of(path: &Path, most: usize) -> Result<Vec<u8>, String> {
    let told = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    // The file type is checked before opening, because opening a pipe can block forever.
    if !std::fs::metadata(path).map_err(told)?.is_file() {
        return Err(format!("{} is not a regular file", path.display()));
    }
    let mut text = Vec::new();
    let file = File::open(path).map_err(told)?;
    file.take(most as u64 + 1).read_to_end(&mut text).map_err(told)?;
    Ok(text)
}
