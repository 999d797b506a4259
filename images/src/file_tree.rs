//! The files of a layer.

use crate::debian::{self, Package};
use crate::elf;
use crate::error::ImageError;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use tar::{EntryType, Header};

/// Folders of the root that are links into `/usr`, as distributions have them today.
const MERGED_INTO_USR: [&str; 4] = ["bin", "lib", "lib64", "sbin"];
const FOLDER_MODE: u32 = 0o755;

/// Files, links and folders by their paths in the image. All of them belong to root, who alone may write them.
#[derive(Debug, Clone, Default)]
pub struct FileTree {
    /// The paths are relative to the root.
    entries: BTreeMap<PathBuf, Entry>,
    /// Packages of which something is here that is no file of theirs.
    other_packages: BTreeSet<String>,
    packages: BTreeSet<Package>,
}

/// Where the files of a tree must be from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// From Debian packages, as these brought them.
    Packages,
    /// From anywhere, for tests on other distributions.
    Anywhere,
}

#[derive(Debug, Clone)]
enum Entry {
    /// A file of this machine. Who may execute it there may do so in the image.
    File(PathBuf),
    Text(String),
    Link(PathBuf),
    Folder {
        mode: u32,
    },
}

impl FileTree {
    /// No files.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file of this machine.
    #[must_use]
    pub fn file(self, path: impl AsRef<Path>, of_this_machine: impl Into<PathBuf>) -> Self {
        self.with(path.as_ref(), Entry::File(of_this_machine.into()))
    }

    /// Adds a file with this content.
    #[must_use]
    pub fn text(self, path: impl AsRef<Path>, content: impl Into<String>) -> Self {
        self.with(path.as_ref(), Entry::Text(content.into()))
    }

    /// Adds a folder with this mode. The folders of files need not be added.
    #[must_use]
    pub fn folder(self, path: impl AsRef<Path>, mode: u32) -> Self {
        self.with(path.as_ref(), Entry::Folder { mode })
    }

    /// Adds the shared libraries that a program or library of this machine needs, at their paths.
    ///
    /// # Errors
    /// The file can't be read, or a library is missing.
    pub fn libraries_of(mut self, program: &Path) -> Result<Self, ImageError> {
        for library in libraries_of(program)? {
            self = self.file(library.clone(), library);
        }
        Ok(self)
    }

    /// Adds files of this machine at their paths, and the shared libraries that they need.
    ///
    /// # Errors
    /// A file is missing, or a library.
    pub fn of_this_machine(mut self, paths: impl IntoIterator<Item = PathBuf>) -> Result<Self, ImageError> {
        for path in paths {
            if path.is_symlink() {
                let target = fs::read_link(&path).map_err(|source| read_error(&path, source))?;
                // A link that leaves its folder would need the folders on its way.
                if target.components().count() == 1 {
                    self = self.with(&path, Entry::Link(target));
                    continue;
                }
            }
            let real = path.canonicalize().map_err(|source| read_error(&path, source))?;
            if is_elf(&real)? {
                self = self.libraries_of(&real)?;
            }
            self = self.file(path, real);
        }
        Ok(self)
    }

    /// Adds the files of a Debian package that is installed on this machine, and the shared libraries that they need.
    ///
    /// # Errors
    /// The package is not installed, or a library is missing.
    pub fn debian_package(self, package: &str) -> Result<Self, ImageError> {
        self.of_this_machine(debian::files_of(package)?)
    }

    /// Adds the certificate authorities of the package ca-certificates at `path`.
    ///
    /// # Errors
    /// The package is not installed.
    pub(crate) fn authorities(mut self, path: &Path) -> Result<Self, ImageError> {
        self.other_packages.insert("ca-certificates".to_owned());
        Ok(self.text(path, debian::authorities()?))
    }

    /// Adds what says where the files here are from: their Debian packages' entries in dpkg's database, as scanners read
    /// them, the licences, and the name of the distribution. Nothing where no file is Debian's.
    ///
    /// # Errors
    /// dpkg fails, or a file is not from a package although it must be.
    pub(crate) fn package_database(self, origin: Origin) -> Result<Self, ImageError> {
        let system = ["/etc/debian_version", "/etc/os-release", "/usr/lib/os-release"].map(PathBuf::from);
        let mut tree = self.of_this_machine(system.into_iter().filter(|path| path.exists()))?;
        let files = tree.sources().map(|path| path.canonicalize().map_err(|source| read_error(path, source)));
        let files = files.collect::<Result<BTreeSet<_>, _>>()?;
        let owners = debian::owners(files.iter().map(PathBuf::as_path));
        let names: BTreeSet<String> = owners.values().chain(&tree.other_packages).cloned().collect();
        if origin == Origin::Packages {
            let changed = debian::changed(&names)?.iter().map(|path| in_image(path)).collect::<BTreeSet<_>>();
            for path in &files {
                let package = owners.get(path).ok_or_else(|| ImageError::NoPackage { path: path.clone() })?;
                if changed.contains(&in_image(path)) {
                    return Err(ImageError::Changed { path: path.clone(), package: package.clone() });
                }
            }
        }
        for name in names {
            let package = debian::package(&name)?;
            let entry = Path::new("/var/lib/dpkg/status.d").join(&package.name);
            let licence = Path::new("/usr/share/doc").join(&package.name).join("copyright");
            tree = tree.text(&entry, package.status.as_str());
            tree = tree
                .text(entry.with_file_name(format!("{}.md5sums", package.name)), package.checksums.as_str());
            if licence.is_file() {
                tree = tree.file(licence.clone(), licence);
            }
            tree.packages.insert(package);
        }
        Ok(tree)
    }

    /// The Debian packages whose files are here, after [`Self::package_database`].
    pub(crate) fn packages(&self) -> &BTreeSet<Package> {
        &self.packages
    }

    /// The files of this machine.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &Path> {
        self.entries.values().filter_map(|entry| match entry {
            Entry::File(source) => Some(source.as_path()),
            _ => None,
        })
    }

    /// The file of this machine that lies at `path`.
    pub(crate) fn source(&self, path: &Path) -> Option<&Path> {
        match self.entries.get(&in_image(path))? {
            Entry::File(source) => Some(source),
            _ => None,
        }
    }

    fn with(mut self, path: &Path, entry: Entry) -> Self {
        self.entries.insert(in_image(path), entry);
        self
    }

    /// Writes the layer as a tar stream: sorted, folders before their files, all times zero.
    pub(crate) fn write(&self, to: impl Write) -> Result<(), ImageError> {
        let mut tar = tar::Builder::new(to);
        for (path, entry) in self.with_parents() {
            let failed = |source| ImageError::Add { path: path.clone(), source };
            match entry {
                Entry::File(source) => {
                    let unreadable = |error| read_error(&source, error);
                    let file = fs::File::open(&source).map_err(unreadable)?;
                    let metadata = file.metadata().map_err(unreadable)?;
                    let executable = metadata.permissions().mode() & 0o111 != 0;
                    let mode = if executable { 0o755 } else { 0o644 };
                    let mut header = header(EntryType::Regular, mode, metadata.len());
                    tar.append_data(&mut header, &path, file).map_err(failed)?;
                }
                Entry::Text(text) => {
                    let mut header = header(EntryType::Regular, 0o644, text.len() as u64);
                    tar.append_data(&mut header, &path, text.as_bytes()).map_err(failed)?;
                }
                Entry::Link(target) => {
                    let mut header = header(EntryType::Symlink, 0o777, 0);
                    tar.append_link(&mut header, &path, &target).map_err(failed)?;
                }
                Entry::Folder { mode } => {
                    let mut header = header(EntryType::Directory, mode, 0);
                    tar.append_data(&mut header, &path, io::empty()).map_err(failed)?;
                }
            }
        }
        let end = tar.into_inner().and_then(|mut to| to.flush());
        end.map_err(|source| ImageError::Add { path: "/".into(), source })
    }

    /// The entries with the folders that they are in, and with the links into `/usr` that they need.
    fn with_parents(&self) -> BTreeMap<PathBuf, Entry> {
        let mut all = BTreeMap::new();
        for path in self.entries.keys() {
            for folder in path.ancestors().skip(1).filter(|folder| *folder != Path::new("")) {
                all.insert(folder.to_owned(), Entry::Folder { mode: FOLDER_MODE });
            }
            if let Some(name) = merged_folder(path) {
                all.insert(name.into(), Entry::Link(Path::new("usr").join(name)));
            }
        }
        all.extend(self.entries.clone());
        all
    }
}

fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

/// The path relative to the root; `/lib/x` is `usr/lib/x`.
fn in_image(path: &Path) -> PathBuf {
    let path = path.strip_prefix("/").unwrap_or(path);
    let is_merged =
        path.components().count() > 1 && MERGED_INTO_USR.iter().any(|name| path.starts_with(name));
    if is_merged { Path::new("usr").join(path) } else { path.to_owned() }
}

/// The folder of the root that leads to this path by a link.
fn merged_folder(path: &Path) -> Option<&'static str> {
    let Some(Component::Normal(name)) = path.strip_prefix("usr").ok()?.components().next() else {
        return None;
    };
    MERGED_INTO_USR.into_iter().find(|merged| name == *merged)
}

/// Whether a file begins as programs and libraries do.
pub(crate) fn is_elf(path: &Path) -> Result<bool, ImageError> {
    let mut start = [0; 4];
    let mut file = fs::File::open(path).map_err(|source| read_error(path, source))?;
    match io::Read::read_exact(&mut file, &mut start) {
        Ok(()) => Ok(start == *b"\x7fELF"),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(source) => Err(read_error(path, source)),
    }
}

/// The paths of the shared libraries, and of the dynamic loader, that a file needs.
fn libraries_of(program: &Path) -> Result<BTreeSet<PathBuf>, ImageError> {
    // Of object files, which are linked into others, ldd says nothing.
    if !elf::needs_libraries(program)? {
        return Ok(BTreeSet::new());
    }
    let command = || format!("ldd {}", program.display());
    let output = Command::new("ldd")
        .arg(program)
        .output()
        .map_err(|error| ImageError::Command { command: command(), reason: error.to_string() })?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(ImageError::Command { command: command(), reason: text.into_owned() });
    }
    // Plugins of one folder find each other when the program that they belong to has loaded them.
    let lies_beside = |line: &str| {
        let name = line.split_whitespace().next().unwrap_or_default();
        program.parent().is_some_and(|folder| folder.join(name).exists())
    };
    let missing: Vec<&str> =
        text.lines().filter(|line| line.contains("not found") && !lies_beside(line)).collect();
    if !missing.is_empty() {
        return Err(ImageError::MissingLibrary { program: program.to_owned(), missing: missing.join("\n") });
    }
    let paths = text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from);
    Ok(paths.collect())
}

fn read_error(path: &Path, source: io::Error) -> ImageError {
    ImageError::Read { path: path.to_owned(), source }
}
