//! Files that clients send for what their sources include, laid out where a build can read them.
//!
//! Each build's files have a folder of their own, whose name nobody else can guess and which goes when nobody builds with
//! it any more. The same files are in the same folder as long as the manager lives, so that a runtime which remembers
//! builds by their options finds them again.

use crate::objects::lock;
use fpga_protocol::{include, v1};
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

/// Where they are laid out. Clones are the same place.
#[derive(Debug, Clone, Default)]
pub struct Includes(Option<Arc<Place>>);

#[derive(Debug)]
struct Place {
    folder: PathBuf,
    /// Without it whoever knows the files would know where they are.
    secret: [u8; 32],
    laid: Mutex<HashMap<String, Weak<Laid>>>,
}

/// The files of a build; they go with the last of these.
#[derive(Debug)]
pub struct Laid {
    place: Arc<Place>,
    name: String,
    folder: PathBuf,
    identity: String,
}

/// What keeps files from being laid out.
#[derive(Debug, thiserror::Error)]
pub enum LayOutError {
    /// Too many, or a name that is none.
    #[error("{0:?} can't be the name of a file to include")]
    Name(String),
    /// The system's.
    #[error("files to include can't be laid out: {0}")]
    Io(#[from] io::Error),
}

impl Includes {
    /// Laid out below this folder, which is there.
    ///
    /// # Errors
    /// The system's.
    pub fn below(folder: PathBuf) -> io::Result<Self> {
        let mut secret = [0; 32];
        fs::File::open("/dev/urandom")?.read_exact(&mut secret)?;
        Ok(Self(Some(Arc::new(Place { folder, secret, laid: Mutex::default() }))))
    }

    /// Nowhere: sources include what the manager's files offer.
    #[must_use]
    pub fn ignored() -> Self {
        Self(None)
    }

    /// Lays these out; nothing where they are ignored.
    ///
    /// # Errors
    /// [`LayOutError`]; nothing is left of them.
    pub fn lay_out(&self, includes: &v1::Includes) -> Result<Option<Arc<Laid>>, LayOutError> {
        let Some(place) = &self.0 else { return Ok(None) };
        if includes.files.len() > include::MAX_FILES {
            return Err(LayOutError::Name(format!("{} files", includes.files.len())));
        }
        if let Some(file) = includes.files.iter().find(|file| !include::is_name(&file.path)) {
            return Err(LayOutError::Name(file.path.clone()));
        }
        let identity = digest(&parts(includes));
        let name = digest(&[&place.secret, identity.as_bytes()]);
        let mut laid = lock(&place.laid);
        if let Some(there) = laid.get(&name).and_then(Weak::upgrade) {
            return Ok(Some(there));
        }
        let folder = place.folder.join(&name);
        // Of one that is just going.
        remove(&folder);
        if let Err(error) = write_all(&folder, includes) {
            remove(&folder);
            return Err(error.into());
        }
        let new = Arc::new(Laid { place: place.clone(), name: name.clone(), folder, identity });
        laid.insert(name, Arc::downgrade(&new));
        drop(laid);
        Ok(Some(new))
    }
}

impl Laid {
    /// These options with the folders that have files, before those that they stand for. What is beside the source comes
    /// last.
    #[must_use]
    pub fn options(&self, options: &str, folder: &str) -> String {
        let mut full = String::new();
        let mut copied = 0;
        for its in include::folders(options) {
            full.push_str(&options[copied..its.at.start]);
            copied = its.at.start;
            if let Some(laid) = self.folder_of(folder, &its.path) {
                // Writing to a string doesn't fail.
                let _ = write!(full, "{} ", option(&laid));
            }
        }
        full.push_str(&options[copied..]);
        if let Some(laid) = self.folder_of(folder, ".") {
            let _ = write!(full, " {}", option(&laid));
        }
        full
    }

    /// Tells these files from others, wherever they are.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// A text of the compiler's, with the client's names of the files.
    #[must_use]
    pub fn as_the_client_knows_them(&self, text: &str) -> String {
        text.replace(&*self.folder.to_string_lossy(), "")
    }

    fn folder_of(&self, folder: &str, path: &str) -> Option<PathBuf> {
        let laid = self.folder.join(include::named(folder, path)?);
        laid.is_dir().then_some(laid)
    }
}

impl Drop for Laid {
    fn drop(&mut self) {
        let mut laid = lock(&self.place.laid);
        // The same may have been laid out anew.
        if laid.get(&self.name).is_none_or(|there| there.strong_count() == 0) {
            laid.remove(&self.name);
            remove(&self.folder);
        }
    }
}

fn remove(folder: &Path) {
    // Mostly it isn't there.
    let _ = fs::remove_dir_all(folder);
}

fn parts(includes: &v1::Includes) -> Vec<&[u8]> {
    let files = includes.files.iter().flat_map(|file| [file.path.as_bytes(), &file.content]);
    std::iter::once(includes.folder.as_bytes()).chain(files).collect()
}

fn digest(parts: &[&[u8]]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let mut name = String::new();
    for byte in hasher.finalize() {
        // Writing to a string doesn't fail.
        let _ = write!(name, "{byte:02x}");
    }
    name
}

fn write_all(folder: &Path, includes: &v1::Includes) -> io::Result<()> {
    fs::create_dir(folder)?;
    for file in &includes.files {
        let path = folder.join(&file.path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, &file.content)?;
    }
    Ok(())
}

fn option(folder: &Path) -> String {
    let folder = folder.to_string_lossy();
    if folder.contains(char::is_whitespace) { format!("-I\"{folder}\"") } else { format!("-I{folder}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn includes(files: &[(&str, &str)]) -> v1::Includes {
        let file = |(path, content): &(&str, &str)| v1::IncludeFile {
            path: (*path).to_owned(),
            content: content.as_bytes().to_vec().into(),
        };
        v1::Includes { folder: "/home/me".to_owned(), files: files.iter().map(file).collect() }
    }

    #[test]
    fn files_are_there_as_long_as_somebody_builds_with_them() {
        let folder = tempfile::tempdir().unwrap();
        let place = Includes::below(folder.path().to_owned()).unwrap();
        let count = || fs::read_dir(folder.path()).unwrap().count();
        let files = includes(&[("home/me/inc/a.h", "1"), ("home/me/in c/b.h", "2")]);
        let one = place.lay_out(&files).unwrap().unwrap();
        let two = place.lay_out(&files).unwrap().unwrap();
        let other = place.lay_out(&includes(&[("home/me/inc/a.h", "3")])).unwrap().unwrap();
        assert_eq!((count(), one.identity() == two.identity()), (2, true));
        let laid = one.folder.to_str().unwrap().to_owned();
        let options = one.options("-w -I inc -I \"/home/me/in c\" -Inone -DX", "/home/me");
        let expected = format!(
            "-w -I{laid}/home/me/inc -I inc -I\"{laid}/home/me/in c\" -I \"/home/me/in c\" -Inone -DX -I{laid}/home/me"
        );
        assert_eq!(options, expected);
        assert_eq!(
            one.as_the_client_knows_them(&format!("{laid}/home/me/inc/a.h:1: no")),
            "/home/me/inc/a.h:1: no"
        );
        drop(one);
        assert_eq!(fs::read_to_string(two.folder.join("home/me/inc/a.h")).unwrap(), "1");
        drop(two);
        assert_eq!(count(), 1);
        drop(other);
        assert_eq!(count(), 0);
        assert!(Includes::ignored().lay_out(&files).unwrap().is_none());
    }

    #[test]
    fn names_that_leave_the_folder_or_clash_lay_out_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("below");
        fs::create_dir(&below).unwrap();
        let place = Includes::below(below.clone()).unwrap();
        for files in [
            &[("a/../../../x.h", "")][..],
            &[("/etc/x.h", "")],
            &[("..", "")],
            &[("", "")],
            &[("a\0", "")],
            &[("a", ""), ("a/b", "")],
        ] {
            assert!(place.lay_out(&includes(files)).is_err(), "{files:?}");
        }
        let many = vec![v1::IncludeFile::default(); include::MAX_FILES + 1];
        assert!(place.lay_out(&v1::Includes { folder: String::new(), files: many }).is_err());
        assert_eq!(
            (fs::read_dir(&below).unwrap().count(), fs::read_dir(folder.path()).unwrap().count()),
            (0, 1)
        );
    }
}
