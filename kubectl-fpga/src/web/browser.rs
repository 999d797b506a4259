//! Opens the page in the user's browser.
//!
//! Other users of a machine see the arguments of all programs, so the address is none: the browser gets a file that only
//! the user can read and that leads to the address.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A file that leads to the page. Dropping it removes it.
pub struct Door(PathBuf);

impl Door {
    /// Opens `url` in the browser of a desktop; `None` if there is none.
    #[must_use]
    pub fn open(url: &str) -> Option<Self> {
        let has_desktop = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some());
        let folder =
            std::env::var_os("XDG_RUNTIME_DIR").filter(|_| has_desktop || cfg!(target_os = "macos"))?;
        let door = Self::write(Path::new(&folder), url).ok()?;
        let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
        let mut command = Command::new(opener);
        command.arg(&door.0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().is_ok().then_some(door)
    }

    fn write(folder: &Path, url: &str) -> std::io::Result<Self> {
        let path = folder.join(format!("kubectl-fpga-{}.html", std::process::id()));
        // A file of a former process with the same number may be there.
        let _ = std::fs::remove_file(&path);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let door = Self(path);
        // The address consists of digits, letters, and `:/.`, which mean nothing in HTML.
        write!(file, "<!doctype html><meta http-equiv=\"refresh\" content=\"0;url={url}\">")?;
        Ok(door)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // The system empties the folder when the user logs out.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_file_is_the_users_alone_and_goes_with_the_page() {
        let folder = tempfile::tempdir().unwrap();
        let door = Door::write(folder.path(), "http://127.0.0.1:1/token/").unwrap();
        let path = door.0.clone();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(std::fs::read_to_string(&path).unwrap().contains("url=http://127.0.0.1:1/token/"));
        drop(door);
        assert!(!path.exists());
    }
}
