//! Writes the C headers for plugins into a folder. `make header` runs this program with the folder
//! `plugins/sdk`.

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from);
    let Some(folder) = folder else { return Err(std::io::Error::other("usage: header FOLDER")) };
    for header in equic_plugin::headers() {
        std::fs::write(folder.join(header.name), header.text)?;
    }
    Ok(())
}
