//! Creates the files of a case, with random content and random names, and checks the downloads.

use std::collections::BTreeSet;
use std::path::Path;

use rand::rngs::SmallRng;
use rand::{Rng as _, RngCore as _, SeedableRng as _};

use crate::InteropError;
use crate::case::CasePlan;

/// Writes the files of a case. Returns their names.
pub(crate) fn write(
    folder: &Path,
    plan: &CasePlan,
    seed: u64,
) -> Result<Vec<String>, InteropError> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut names = BTreeSet::new();
    for len in &plan.files {
        let mut name = letters(&mut rng, plan.name_len);
        while !names.insert(name.clone()) {
            name = letters(&mut rng, plan.name_len);
        }
        let mut content = vec![0; *len];
        rng.fill_bytes(&mut content);
        let path = folder.join(&name);
        std::fs::write(&path, content).map_err(InteropError::file("write", &path))?;
    }
    Ok(names.into_iter().collect())
}

fn letters(rng: &mut SmallRng, count: usize) -> String {
    (0..count).map(|_| char::from(rng.random_range(b'a'..=b'z'))).collect()
}

/// Writes a page for a browser. The page refers to each file as a picture and fetches each file. It
/// then writes the names and the received bytes in hexadecimal into its title.
pub(crate) fn write_page(folder: &Path, names: &[String]) -> Result<&'static str, InteropError> {
    const PAGE: &str = "page.html";
    let list = serde_json::to_string(names).unwrap_or_default();
    let page = format!(
        r#"<!doctype html>
<html><head><meta charset="utf-8"><title>eQUIC</title></head><body>
<pre id="got"></pre><script>
const hex = bytes => Array.from(bytes, b => b.toString(16).padStart(2, "0")).join("");
Promise.all({list}.map(async name => {{
  const answer = await fetch("/" + name);
  return name + " " + answer.status + " " + hex(new Uint8Array(await answer.arrayBuffer()));
}})).then(lines => document.getElementById("got").textContent = lines.join("\n"),
          error => document.getElementById("got").textContent = "failed " + error);
</script></body></html>
"#
    );
    let path = folder.join(PAGE);
    std::fs::write(&path, page).map_err(InteropError::file("write", &path))?;
    Ok(PAGE)
}

/// Compares the downloads with the original files. The error describes the difference.
pub(crate) fn compare(www: &Path, downloads: &Path, names: &[String]) -> Result<(), String> {
    let listed = std::fs::read_dir(downloads)
        .map_err(|error| format!("cannot list the downloads: {error}"))?;
    let mut came = BTreeSet::new();
    for entry in listed {
        let entry = entry.map_err(|error| format!("cannot list the downloads: {error}"))?;
        came.insert(entry.file_name().to_string_lossy().into_owned());
    }
    let missing = names.iter().filter(|name| !came.contains(*name)).count();
    if missing > 0 {
        return Err(format!("{missing} of {} requested files were not downloaded", names.len()));
    }
    if let Some(other) = came.iter().find(|name| !names.contains(name)) {
        return Err(format!("the file {other:?} was downloaded, but not requested"));
    }
    for name in names {
        let read = |folder: &Path| {
            std::fs::read(folder.join(name)).map_err(|error| format!("{name}: {error}"))
        };
        let (want, got) = (read(www)?, read(downloads)?);
        if want.len() != got.len() {
            let short: String = name.chars().take(12).collect();
            return Err(format!("{short} has {} bytes instead of {}", got.len(), want.len()));
        }
        if let Some(at) = want.iter().zip(&got).position(|(want, got)| want != got) {
            let short: String = name.chars().take(12).collect();
            return Err(format!("{short} differs from the original at byte {at}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Case, Size};

    #[test]
    fn files_comparison_finds_every_difference() {
        let (www, down) =
            (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let names = write(www.path(), &Case::Ipv6.plan(Size::Small), 5).expect("files are written");
        assert_eq!(names.len(), 2);
        let check = || compare(www.path(), down.path(), &names);
        assert!(check().unwrap_err().contains("2 of 2"), "{:?}", check());
        for name in &names {
            std::fs::copy(www.path().join(name), down.path().join(name)).expect("a copy");
        }
        check().expect("all is there");
        let first = down.path().join(&names[0]);
        let mut content = std::fs::read(&first).expect("it is there");
        let last = content.len() - 1;
        content[last] ^= 1;
        std::fs::write(&first, &content).expect("it is written");
        assert!(check().unwrap_err().contains(&format!("at byte {last}")), "{:?}", check());
        content.pop();
        std::fs::write(&first, &content).expect("it is written");
        assert!(check().unwrap_err().contains("bytes instead of"), "{:?}", check());
        std::fs::copy(www.path().join(&names[0]), &first).expect("a copy");
        std::fs::write(down.path().join("other"), "").expect("it is written");
        assert!(check().unwrap_err().contains("not requested"), "{:?}", check());
    }
}
