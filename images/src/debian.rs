//! Debian packages that are installed on this machine, and their files.

use crate::error::ImageError;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// dpkg's own folder of lists of files.
const INFO: &str = "/var/lib/dpkg/info";
const OS_RELEASE: &str = "/usr/lib/os-release";
/// The certificate authorities that Mozilla trusts, by the package ca-certificates.
const AUTHORITIES: &str = "/usr/share/ca-certificates/mozilla";

/// An installed package.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) architecture: String,
    /// Name and version of the source package, where these differ.
    pub(crate) source: Option<(String, String)>,
    /// The package's entry in dpkg's database.
    pub(crate) status: String,
    /// The checksums of its files, as dpkg has them.
    pub(crate) checksums: String,
}

/// The distribution of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Distribution {
    /// Such as `debian`.
    pub(crate) id: String,
    /// Such as `12`.
    pub(crate) version: String,
}

/// The files and links of a package, without documents.
///
/// # Errors
/// The package is not installed.
pub(crate) fn files_of(package: &str) -> Result<Vec<PathBuf>, ImageError> {
    let output = run(Command::new("dpkg").args(["--listfiles", package]))?;
    if !output.status.success() {
        let reason = format!("{package} is not installed; on Debian: apt-get install {package}");
        return Err(ImageError::Command { command: format!("dpkg --listfiles {package}"), reason });
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let paths = text.lines().map(PathBuf::from).filter(|path| !is_document(path));
    Ok(paths.filter(|path| path.is_symlink() || path.is_file()).collect())
}

/// The names of the packages that have these files. Files of no package are left out; all are where this is no Debian.
pub(crate) fn owners<'p>(files: impl Iterator<Item = &'p Path>) -> BTreeMap<PathBuf, String> {
    let mut command = Command::new("dpkg-query");
    command.arg("--search");
    let mut asked = BTreeMap::new();
    for file in files {
        // The package may have been made for /lib, where this machine has /usr/lib.
        let unmerged = file.strip_prefix("/usr").ok().map(|rest| Path::new("/").join(rest));
        for path in unmerged.into_iter().chain([file.to_owned()]) {
            command.arg(&path);
            asked.insert(path, file);
        }
    }
    let Ok(output) = command.output() else { return BTreeMap::new() };
    // It fails where one of the files is unknown, and yet names the packages of the others.
    let text = String::from_utf8_lossy(&output.stdout);
    let owned = text.lines().filter(|line| !line.starts_with("diversion by ")).filter_map(|line| {
        let (packages, path) = line.split_once(": /")?;
        let file = asked.get(&Path::new("/").join(path))?;
        Some(((*file).to_owned(), packages.split(", ").next()?.to_owned()))
    });
    owned.collect()
}

/// The package of this name, which may end in `:ARCHITECTURE`.
///
/// # Errors
/// It is not installed.
pub(crate) fn package(name: &str) -> Result<Package, ImageError> {
    let output = run(Command::new("dpkg-query").args(["--status", name]))?;
    let status = String::from_utf8_lossy(&output.stdout).into_owned();
    let failed = |reason: &str| ImageError::Command {
        command: format!("dpkg-query --status {name}"),
        reason: reason.to_owned(),
    };
    let field = |field: &str| {
        let mut values = status.lines().filter_map(|line| line.strip_prefix(field)?.strip_prefix(": "));
        values.next().map(str::to_owned)
    };
    let needed = |name| field(name).ok_or_else(|| failed("the package is not installed"));
    let (name, version, architecture) = (needed("Package")?, needed("Version")?, needed("Architecture")?);
    let source = field("Source").map(|source| match source.split_once(" (") {
        Some((source, other)) => (source.to_owned(), other.trim_end_matches(')').to_owned()),
        None => (source, version.clone()),
    });
    let lists = [format!("{INFO}/{name}:{architecture}.md5sums"), format!("{INFO}/{name}.md5sums")];
    let checksums = lists.iter().find_map(|list| fs::read_to_string(list).ok()).unwrap_or_default();
    Ok(Package { source, status, checksums, name, version, architecture })
}

/// Those of the files of these packages that are no longer as the packages brought them.
///
/// # Errors
/// dpkg is missing.
pub(crate) fn changed(packages: &BTreeSet<String>) -> Result<BTreeSet<PathBuf>, ImageError> {
    if packages.is_empty() {
        return Ok(BTreeSet::new());
    }
    let output = run(Command::new("dpkg").arg("--verify").args(packages))?;
    Ok(changed_files(&String::from_utf8_lossy(&output.stdout)))
}

/// Reads what `dpkg --verify` writes: `??5?????? c /etc/file`.
fn changed_files(text: &str) -> BTreeSet<PathBuf> {
    let paths = text.lines().filter_map(|line| Some(Path::new("/").join(line.split_once(" /")?.1)));
    paths.collect()
}

/// The bundle of the certificate authorities in the package ca-certificates. This machine's own bundle may have more.
///
/// # Errors
/// The package is not installed.
pub(crate) fn authorities() -> Result<String, ImageError> {
    let failed = |source| ImageError::Read { path: AUTHORITIES.into(), source };
    let files = fs::read_dir(AUTHORITIES).map_err(failed)?;
    let mut files = files.map(|file| Ok(file?.path())).collect::<Result<Vec<_>, _>>().map_err(failed)?;
    files.sort();
    let texts = files.iter().map(|path| {
        fs::read_to_string(path).map_err(|source| ImageError::Read { path: path.clone(), source })
    });
    texts.collect()
}

/// The distribution, as `/usr/lib/os-release` has it.
pub(crate) fn distribution() -> Option<Distribution> {
    let text = fs::read_to_string(OS_RELEASE).ok()?;
    let field = |field: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix('='))?;
        Some(value.trim_matches('"').to_owned())
    };
    Some(Distribution { id: field("ID")?, version: field("VERSION_ID")? })
}

fn is_document(path: &Path) -> bool {
    ["/usr/share/doc", "/usr/share/man", "/usr/share/lintian", "/usr/share/bug"]
        .iter()
        .any(|folder| path.starts_with(folder))
}

fn run(command: &mut Command) -> Result<Output, ImageError> {
    command.output().map_err(|error| ImageError::Command {
        command: format!("{command:?}"),
        reason: format!("{error}; images of Debian's packages are made on Debian"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_changed_since_their_package_brought_them_are_read_from_dpkgs_report() {
        let report = "??5?????? c /etc/nsswitch.conf\nmissing     /usr/share/doc/x y/copyright\n??5??????   /lib/libc.so.6\n";
        let expected = ["/etc/nsswitch.conf", "/lib/libc.so.6", "/usr/share/doc/x y/copyright"];
        assert_eq!(changed_files(report), expected.map(PathBuf::from).into());
    }

    #[test]
    fn the_owner_of_a_file_is_a_package_with_a_version_and_checksums_and_other_files_have_none() {
        let dpkg = Path::new("/usr/bin/dpkg");
        let owners = owners([dpkg, Path::new("/usr/no-package")].into_iter());
        assert_eq!(owners, BTreeMap::from([(dpkg.to_owned(), "dpkg".to_owned())]));
        let package = package("dpkg").unwrap();
        assert!(package.version.starts_with(|first: char| first.is_ascii_digit()), "{package:?}");
        assert!(package.checksums.contains("  usr/bin/dpkg\n") && package.status.contains("\nStatus: "));
        let libc = self::package("libc6").unwrap();
        assert_eq!(libc.source, Some(("glibc".to_owned(), libc.version.clone())));
        assert!(matches!(self::package("no-such-package"), Err(ImageError::Command { .. })));
    }
}
