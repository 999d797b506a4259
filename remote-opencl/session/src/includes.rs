//! Writes the files that clients send for their sources to include to disk, where builds can read them.
//!
//! The files of a build have a folder of their own. No other tenant can guess its name, and it is removed
//! when no build uses it any more. The same files get the same folder as long as the manager lives, so that a
//! runtime which remembers builds by their options recognises them.
//!
//! Files are written under the lock of their own folder, so that no build waits for another's. The number of
//! files and folders of one build and of one session is bounded.

use fpga_protocol::{include, v1};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

/// The place of the files. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Includes(Option<Arc<IncludesFolder>>);

#[derive(Debug)]
struct IncludesFolder {
    folder: PathBuf,
    /// Mixed into the folders' names. Without it anyone who knows the files could compute their folder.
    secret: [u8; 32],
    /// The folders, by name. The lock is held only to look one up.
    folders: Mutex<HashMap<String, Arc<Entry>>>,
}

/// The lock of one folder, and the folder while builds use it.
type Entry = Mutex<Weak<Folder>>;

/// A folder of files; dropping the value removes it.
#[derive(Debug)]
struct Folder {
    place: Arc<IncludesFolder>,
    entry: Arc<Entry>,
    name: String,
    path: PathBuf,
    identity: String,
}

/// The place of one session's files, and the session's account. Clones share both.
#[derive(Debug, Clone)]
pub struct SessionIncludes {
    place: Option<Arc<IncludesFolder>>,
    account: Arc<Mutex<Size>>,
}

/// The files of a build on disk.
#[derive(Debug)]
pub struct Laid {
    folder: Arc<Folder>,
    /// The part of the session's account that belongs to these files.
    size: Size,
    account: Arc<Mutex<Size>>,
}

/// An amount of files on disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Size {
    /// Number of files and folders.
    entries: usize,
    /// Bytes in the files.
    bytes: u64,
}

/// Most folders of one build.
const MAX_FOLDERS: usize = 4096;
/// Most files and bytes of all programs of one session.
const MAX_OF_SESSION: Size = Size { entries: 1 << 16, bytes: 256 << 20 };

/// The reason why files can't be written.
#[derive(Debug, thiserror::Error)]
pub enum LayOutError {
    /// There are too many files, or one has an invalid name.
    #[error("{0:?} can't be the name of a file to include")]
    Name(String),
    /// The build has too many folders.
    #[error("the files to include are in more than {MAX_FOLDERS} folders")]
    Folders,
    /// The session has too many files or bytes.
    #[error("the session's programs include more than is kept for one session; release some")]
    Session,
    /// A system call failed.
    #[error("files to include can't be laid out: {0}")]
    Io(#[from] io::Error),
}

impl Includes {
    /// Writes files below `folder`, which must exist.
    ///
    /// # Errors
    /// The random source can't be read.
    pub fn below(folder: PathBuf) -> io::Result<Self> {
        let mut secret = [0; 32];
        fs::File::open("/dev/urandom")?.read_exact(&mut secret)?;
        Ok(Self(Some(Arc::new(IncludesFolder { folder, secret, folders: Mutex::default() }))))
    }

    /// Writes nothing: sources can include only files that the manager can read.
    #[must_use]
    pub fn ignored() -> Self {
        Self(None)
    }

    /// The place of a new session's files.
    #[must_use]
    pub fn of_session(&self) -> SessionIncludes {
        SessionIncludes { place: self.0.clone(), account: Arc::default() }
    }
}

impl SessionIncludes {
    /// Writes these files to disk; `None` if files are ignored.
    ///
    /// # Errors
    /// [`LayOutError`]; no file is left on disk then.
    pub fn lay_out(&self, includes: &v1::Includes) -> Result<Option<Arc<Laid>>, LayOutError> {
        let Some(place) = &self.place else { return Ok(None) };
        if includes.files.len() > include::MAX_FILES {
            return Err(LayOutError::Name(format!("{} files", includes.files.len())));
        }
        if let Some(file) = includes.files.iter().find(|file| !include::is_name(&file.path)) {
            return Err(LayOutError::Name(file.path.clone()));
        }
        let size = size_of(includes).ok_or(LayOutError::Folders)?;
        self.account.lock().add(size).ok_or(LayOutError::Session)?;
        match Folder::of(place, includes) {
            Ok(folder) => Ok(Some(Arc::new(Laid { folder, size, account: self.account.clone() }))),
            Err(error) => {
                self.account.lock().subtract(size);
                Err(error.into())
            }
        }
    }
}

impl Size {
    /// Adds to the account of a session, unless it would exceed the session's limit.
    fn add(&mut self, more: Self) -> Option<()> {
        let sum = Self { entries: self.entries + more.entries, bytes: self.bytes + more.bytes };
        if sum.entries > MAX_OF_SESSION.entries || sum.bytes > MAX_OF_SESSION.bytes {
            return None;
        }
        *self = sum;
        Some(())
    }

    fn subtract(&mut self, less: Self) {
        self.entries -= less.entries;
        self.bytes -= less.bytes;
    }
}

/// Number of entries and bytes of these files; `None` if they are in too many folders.
fn size_of(includes: &v1::Includes) -> Option<Size> {
    let mut folders = BTreeSet::new();
    let mut bytes = 0;
    for file in &includes.files {
        bytes += file.content.len() as u64;
        for (at, _) in file.path.match_indices('/').rev() {
            // The folders above a known folder are known too.
            if !folders.insert(&file.path[..at]) {
                break;
            }
        }
        if folders.len() > MAX_FOLDERS {
            return None;
        }
    }
    Some(Size { entries: includes.files.len() + folders.len(), bytes })
}

impl Folder {
    /// The folder with these files, which are written if they are not there.
    fn of(place: &Arc<IncludesFolder>, includes: &v1::Includes) -> io::Result<Arc<Self>> {
        let identity = digest(&parts(includes));
        let name = digest(&[&place.secret, identity.as_bytes()]);
        let entry = place.folders.lock().entry(name.clone()).or_default().clone();
        let mut known = entry.lock();
        if let Some(there) = known.upgrade() {
            return Ok(there);
        }
        let path = place.folder.join(&name);
        // The folder may be left from a value that is just being dropped.
        remove(&path);
        let written = write_all(&path, includes);
        let new = Arc::new(Self { place: place.clone(), entry: entry.clone(), name, path, identity });
        if written.is_ok() {
            *known = Arc::downgrade(&new);
        }
        drop(known);
        // If writing failed, dropping the value removes the folder.
        written.map(|()| new)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        {
            let known = self.entry.lock();
            // The same files may have been written again meanwhile.
            if known.strong_count() > 0 {
                return;
            }
            remove(&self.path);
        }
        let mut folders = self.place.folders.lock();
        // Only the map and this value have the entry, so nobody is about to write the folder again.
        if Arc::strong_count(&self.entry) == 2 {
            folders.remove(&self.name);
        }
    }
}

impl Drop for Laid {
    fn drop(&mut self) {
        self.account.lock().subtract(self.size);
    }
}

impl Laid {
    /// Adds include options for the folders on disk to `options`, each before the option that it stands for.
    /// The option for the folder of the source comes last.
    #[must_use]
    pub fn options(&self, options: &str, folder: &str) -> String {
        let mut full = String::new();
        let mut copied = 0;
        for its in include::folders(options) {
            full.push_str(&options[copied..its.at.start]);
            copied = its.at.start;
            if let Some(laid) = self.folder_of(folder, &its.path) {
                // Writing to a string can't fail.
                let _ = write!(full, "{} ", option(&laid));
            }
        }
        full.push_str(&options[copied..]);
        if let Some(laid) = self.folder_of(folder, ".") {
            let _ = write!(full, " {}", option(&laid));
        }
        full
    }

    /// A digest that identifies the files' names and contents, wherever the files are.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.folder.identity
    }

    /// A text of the compiler in which paths are replaced by the client's names of the files.
    #[must_use]
    pub fn as_the_client_knows_them(&self, text: &str) -> String {
        text.replace(&*self.folder.path.to_string_lossy(), "")
    }

    fn folder_of(&self, folder: &str, path: &str) -> Option<PathBuf> {
        let laid = self.folder.path.join(include::named(folder, path)?);
        laid.is_dir().then_some(laid)
    }
}

fn remove(folder: &Path) {
    // Usually the folder does not exist.
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
        // Writing to a string can't fail.
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
        let place = Includes::below(folder.path().to_owned()).unwrap().of_session();
        let count = || fs::read_dir(folder.path()).unwrap().count();
        let files = includes(&[("home/me/inc/a.h", "1"), ("home/me/in c/b.h", "2")]);
        let one = place.lay_out(&files).unwrap().unwrap();
        let two = place.lay_out(&files).unwrap().unwrap();
        let other = place.lay_out(&includes(&[("home/me/inc/a.h", "3")])).unwrap().unwrap();
        assert_eq!((count(), one.identity() == two.identity()), (2, true));
        let laid = one.folder.path.to_str().unwrap().to_owned();
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
        assert_eq!(fs::read_to_string(two.folder.path.join("home/me/inc/a.h")).unwrap(), "1");
        drop(two);
        assert_eq!(count(), 1);
        drop(other);
        assert_eq!(count(), 0);
        assert!(Includes::ignored().of_session().lay_out(&files).unwrap().is_none());
    }

    #[test]
    fn names_that_leave_the_folder_or_clash_lay_out_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("below");
        fs::create_dir(&below).unwrap();
        let place = Includes::below(below.clone()).unwrap().of_session();
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

    #[test]
    fn folders_of_a_build_and_files_of_a_session_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let all = Includes::below(folder.path().to_owned()).unwrap();
        let count = || fs::read_dir(folder.path()).unwrap().count();
        // Short parts: two million folders in 4 MiB of names, were they allowed.
        let file = |path: String| v1::IncludeFile { path, content: "x".into() };
        let includes = |files| v1::Includes { folder: String::new(), files };
        let wide = |build: usize, folders: usize| {
            (0..folders).map(|n| file(format!("{build}/{n}/a.h"))).collect::<Vec<_>>()
        };
        let place = all.of_session();
        let too_many = place.lay_out(&includes(wide(0, MAX_FOLDERS)));
        assert!(matches!(too_many, Err(LayOutError::Folders)), "{too_many:?}");
        // The session's account is full after two builds, and nothing of the third is on disk.
        let each = size_of(&includes(wide(0, 100))).unwrap();
        assert_eq!(each, Size { entries: 201, bytes: 100 });
        *place.account.lock() = Size { entries: MAX_OF_SESSION.entries - 2 * each.entries, bytes: 0 };
        let laid: Vec<_> = (0..2).map(|n| place.lay_out(&includes(wide(n, 100))).unwrap()).collect();
        assert!(matches!(place.lay_out(&includes(wide(2, 100))), Err(LayOutError::Session)));
        assert!(
            all.of_session().lay_out(&includes(wide(2, 100))).is_ok(),
            "another session has its own account"
        );
        assert_eq!(count(), 2);
        drop(laid);
        assert_eq!(count(), 0);
        assert!(place.lay_out(&includes(wide(2, 100))).is_ok());
    }

    #[test]
    fn threads_that_lay_out_and_drop_the_same_files_find_them_whole() {
        let folder = tempfile::tempdir().unwrap();
        let all = Includes::below(folder.path().to_owned()).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..50 {
                        let content = (round % 3).to_string();
                        let files = includes(&[("a/b.h", &content)]);
                        let laid = all.of_session().lay_out(&files).unwrap().unwrap();
                        assert_eq!(fs::read_to_string(laid.folder.path.join("a/b.h")).unwrap(), content);
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(all.0.is_some_and(|place| place.folders.lock().is_empty()));
    }
}
