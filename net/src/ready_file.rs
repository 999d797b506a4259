//! The ready file: a service writes its bound addresses there when it accepts requests, for the program that started
//! it.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

/// Writes `lines`, each with a line end, to the ready file. A program that waits for a regular file sees all lines or
/// none; a pipe is written directly.
///
/// # Errors
/// The system's error.
pub fn write(path: &Path, lines: impl IntoIterator<Item = impl AsRef<str>>) -> io::Result<()> {
    let mut text = String::new();
    for line in lines {
        text.push_str(line.as_ref());
        text.push('\n');
    }
    if std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo()) {
        return OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes());
    }
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    std::fs::write(&partial, text)?;
    std::fs::rename(&partial, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_all_lines_and_replaces_an_earlier_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ready");
        write(&path, ["127.0.0.1:1", "metrics:127.0.0.1:2"]).unwrap();
        write(&path, ["127.0.0.1:3"]).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "127.0.0.1:3\n");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
