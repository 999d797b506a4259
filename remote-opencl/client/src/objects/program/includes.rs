//! Files that a program's source includes from the client's folders (`-I`). They are found here and sent with the
//! build, since the device manager has other files.
//!
//! Only the vendor's compiler preprocesses. The search here takes every name in quotes or angle brackets after a
//! `#`, or in quotes in the options, and sends each such file that exists. It rather sends too much than too
//! little, since names may come from macros.

use fpga_protocol::v1;
use fpga_protocol::{include, limits};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

/// Greatest sum of the files' sizes in bytes. The build and its files are one message.
const MAX_BYTES: usize = limits::MAX_MESSAGE_BYTES - (1 << 20);
/// Greatest number of paths that are tried.
const MAX_LOOKS: usize = 1 << 16;

/// The files that these sources may include; `None` if there are none.
pub(super) fn of<'a>(sources: impl Iterator<Item = &'a [u8]>, options: &str) -> Option<v1::Includes> {
    let sources: Vec<_> = sources.filter(|source| contains(source, b"include")).collect();
    if sources.is_empty() {
        return None;
    }
    let working = std::env::current_dir().ok()?;
    let folder = working.to_str()?.to_owned();
    let folders = include::folders(options).into_iter().map(|folder| working.join(folder.path)).collect();
    let mut search = Search { folders, files: Vec::new(), seen: HashSet::new(), bytes: 0, looks: 0 };
    for name in quoted(options.as_bytes()) {
        search.look_for(&name, Some(&working));
    }
    for source in sources {
        search.names_in(source, &working);
    }
    let mut read = 0;
    while let Some((content, beside)) =
        search.files.get(read).map(|(file, at)| (file.content.clone(), at.clone()))
    {
        search.names_in(&content, &beside);
        read += 1;
    }
    let files: Vec<_> = search.files.into_iter().map(|(file, _)| file).collect();
    (!files.is_empty()).then_some(v1::Includes { folder, files })
}

/// The state of a search.
struct Search {
    folders: Vec<PathBuf>,
    /// The found files, each with its folder.
    files: Vec<(v1::IncludeFile, PathBuf)>,
    seen: HashSet<String>,
    bytes: usize,
    looks: usize,
}

impl Search {
    /// Searches for the names after `#` in a text that lies in the folder `beside`.
    fn names_in(&mut self, text: &[u8], beside: &Path) {
        for line in text.split(|byte| *byte == b'\n') {
            let line = line.trim_ascii_start();
            if line.first() != Some(&b'#') {
                continue;
            }
            for name in quoted(line) {
                self.look_for(&name, Some(beside));
            }
            for name in between(line, b'<', b'>') {
                self.look_for(&name, None);
            }
        }
    }

    /// Takes the first file called `name`, from the folder of the including file or from the `-I` folders.
    fn look_for(&mut self, name: &str, beside: Option<&Path>) {
        if name.is_empty() || name.starts_with('/') || name.len() > include::MAX_PATH_BYTES {
            return;
        }
        let places: Vec<_> = beside.into_iter().chain(self.folders.iter().map(PathBuf::as_path)).collect();
        let looks = places.len();
        let found = places.into_iter().map(|folder| folder.join(name)).find(|path| path.is_file());
        self.looks += looks;
        if let Some(path) = found
            && self.looks <= MAX_LOOKS
        {
            self.take(&path);
        }
    }

    fn take(&mut self, path: &Path) {
        let Some(name) = path.to_str().and_then(|path| include::named("", path)) else { return };
        if !include::is_name(&name)
            || self.files.len() >= include::MAX_FILES
            || !self.seen.insert(name.clone())
        {
            return;
        }
        let with_name = self.bytes + name.len();
        let fits = |bytes: usize| with_name.saturating_add(bytes) <= MAX_BYTES;
        let size = std::fs::metadata(path).map_or(u64::MAX, |file| file.len());
        if !usize::try_from(size).is_ok_and(fits) {
            tracing::warn!(path = %path.display(), "A file that a source may include is left out: too much to send");
            return;
        }
        let Ok(content) = std::fs::read(path) else { return };
        // The file may have grown since its size was read.
        if !fits(content.len()) {
            return;
        }
        self.bytes = with_name + content.len();
        let beside = path.parent().map(Path::to_owned).unwrap_or_default();
        self.files.push((v1::IncludeFile { path: name, content: content.into() }, beside));
    }
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}

/// The texts between double quotes. Trailing backslashes are removed, since quotes in options are escaped.
fn quoted(line: &[u8]) -> Vec<String> {
    let mut names = between(line, b'"', b'"');
    for name in &mut names {
        name.truncate(name.trim_end_matches('\\').len());
    }
    names
}

fn between(line: &[u8], open: u8, close: u8) -> Vec<String> {
    let mut names = Vec::new();
    let mut rest = line;
    while let Some(at) = rest.iter().position(|byte| *byte == open) {
        rest = &rest[at + 1..];
        let Some(end) = rest.iter().position(|byte| *byte == close) else { break };
        names.extend(std::str::from_utf8(&rest[..end]).map(str::to_owned));
        rest = &rest[end + 1..];
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str, options: &str) -> Vec<String> {
        let includes = of(std::iter::once(source.as_bytes()), options).unwrap_or_default();
        let mut names: Vec<_> =
            includes.files.iter().map(|file| file.path.rsplit('/').next().unwrap().to_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_sources_and_their_headers_name_is_found_wherever_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("inc/a.h", "  #  include \"deep/b.h\"\n#include \"a.h\"\n");
        write("inc/deep/b.h", "#include \"../../beside/c.h\"\n");
        write("beside/c.h", "");
        write("other/d.h", "");
        write("inc/by_macro.h", "");
        write("inc/by_option.h", "");
        write("inc/unused.h", "");
        let root = folder.path().display();
        let options = format!("-w -I {root}/inc -I\"{root}/other\" -DH=\\\"by_option.h\\\"");
        assert_eq!(found("#include <a.h>\n", &options), ["a.h", "b.h", "by_option.h", "c.h"]);
        let source = "#define NAME \"by_macro.h\"\n#include NAME\n#include \"d.h\"\n#include \"none.h\"";
        assert_eq!(found(source, &options), ["by_macro.h", "by_option.h", "d.h"]);
        assert!(found("#include <a.h>", "-w").is_empty());
        assert!(found("kernel void k() {} // \"a.h\"", &options).is_empty());
        let absolute = format!("#include \"{root}/inc/a.h\"");
        assert!(found(&absolute, "").is_empty(), "only what folders offer");
    }

    #[test]
    fn what_is_too_much_is_left_out_and_devices_are_no_files() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("large.h"), vec![b' '; MAX_BYTES + 1]).unwrap();
        std::fs::write(folder.path().join("small.h"), "").unwrap();
        std::os::unix::fs::symlink("/dev/zero", folder.path().join("endless.h")).unwrap();
        let source = "#include \"large.h\"\n#include \"endless.h\"\n#include \"small.h\"";
        assert_eq!(found(source, &format!("-I {}", folder.path().display())), ["small.h"]);
    }
}
