//! Files that a client's sources include: the folders that build options name, and the names of files on the wire.
//!
//! The client finds the files and the device manager lays them out, so both must parse options and paths in the
//! same way.

use std::ops::Range;

/// Greatest number of files of one build.
pub const MAX_FILES: usize = 4096;
/// Greatest length of a file's name on the wire, in bytes.
pub const MAX_PATH_BYTES: usize = 4096;
/// Greatest length of a path component, in bytes.
const MAX_PART_BYTES: usize = 255;
/// Greatest number of path components.
const MAX_PARTS: usize = 64;

/// An `-I` option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder {
    /// Byte range of the option in the options, including the folder.
    pub at: Range<usize>,
    /// The folder, as the program wrote it.
    pub path: String,
}

/// The `-I` folders among build options, in order. Whitespace between double quotes does not end a folder.
#[must_use]
pub fn folders(options: &str) -> Vec<Folder> {
    let mut found = Vec::new();
    let mut words = words(options).into_iter();
    while let Some((at, word)) = words.next() {
        let Some(path) = word.strip_prefix("-I") else { continue };
        if !path.is_empty() {
            found.push(Folder { at, path: path.to_owned() });
        } else if let Some((next, path)) = words.next() {
            found.push(Folder { at: at.start..next.end, path });
        }
    }
    found
}

/// The words of the options with their byte ranges. Quotes are removed.
fn words(options: &str) -> Vec<(Range<usize>, String)> {
    let mut words = Vec::new();
    let mut word: Option<(usize, String)> = None;
    let mut quoted = false;
    for (at, letter) in options.char_indices() {
        if letter.is_whitespace() && !quoted {
            words.extend(word.take().map(|(start, text)| (start..at, text)));
            continue;
        }
        let (_, text) = word.get_or_insert((at, String::new()));
        if letter == '"' {
            quoted = !quoted;
        } else {
            text.push(letter);
        }
    }
    words.extend(word.map(|(start, text)| (start..options.len(), text)));
    words
}

/// The name on the wire of `path`, which is relative to `folder` unless it is absolute. `.` and `..` are resolved
/// lexically; `None` if the result lies above the root.
#[must_use]
pub fn named(folder: &str, path: &str) -> Option<String> {
    let start = if path.starts_with('/') { "" } else { folder };
    let mut parts = Vec::new();
    for part in start.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Whether `path` is a name on the wire, that is, a relative path that can't leave the folder in which it is laid
/// out.
#[must_use]
pub fn is_name(path: &str) -> bool {
    let is_part =
        |part: &str| !matches!(part, "" | "." | "..") && part.len() <= MAX_PART_BYTES && !part.contains('\0');
    path.len() <= MAX_PATH_BYTES
        && path.split('/').take(MAX_PARTS + 1).count() <= MAX_PARTS
        && path.split('/').all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_found_apart_and_together_and_in_quotes() {
        let options = "-DX=1 -I one -Itwo -I \"three and\" -I\"four too\" -w -cl-std=CL1.2 -I";
        let found = folders(options);
        let paths: Vec<_> = found.iter().map(|folder| folder.path.as_str()).collect();
        assert_eq!(paths, ["one", "two", "three and", "four too"]);
        let written: Vec<_> = found.iter().map(|folder| &options[folder.at.clone()]).collect();
        assert_eq!(written, ["-I one", "-Itwo", "-I \"three and\"", "-I\"four too\""]);
        assert!(folders("").is_empty() && folders("-DI=\"-I no\" -cl-Ino").is_empty());
    }

    #[test]
    fn names_start_at_the_root_and_never_leave_it() {
        assert_eq!(named("/home/me", "inc").as_deref(), Some("home/me/inc"));
        assert_eq!(named("/home/me", "/opt//x/./y.h").as_deref(), Some("opt/x/y.h"));
        assert_eq!(named("/home/me/", "../you/a.h").as_deref(), Some("home/you/a.h"));
        assert_eq!(named("/home", "../../a.h"), None);
        for name in ["a", "a/b.h", "..a/b..", "ä/ö.h"] {
            assert!(is_name(name), "{name}");
        }
        let long = "x".repeat(MAX_PART_BYTES + 1);
        let deep = |parts| vec!["d"; parts].join("/");
        assert!(is_name(&deep(MAX_PARTS)));
        for name in ["", "/a", "a/", "a//b", "../a", "a/../b", "a/./b", "a\0b", &long, &deep(MAX_PARTS + 1)] {
            assert!(!is_name(name), "{name}");
        }
    }
}
