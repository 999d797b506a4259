//! Files of Debian packages that are installed on this machine.

use crate::error::ImageError;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

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

/// The copyright files of the packages that have these files. Empty where the files are of no package, and where this is
/// no Debian.
pub(crate) fn copyrights<'p>(files: impl Iterator<Item = &'p Path>) -> BTreeSet<PathBuf> {
    let mut command = Command::new("dpkg-query");
    command.arg("--search");
    for file in files {
        // The package may have been made for /lib, where this machine has /usr/lib.
        command.arg(file);
        if let Ok(rest) = file.strip_prefix("/usr") {
            command.arg(Path::new("/").join(rest));
        }
    }
    let Ok(output) = command.output() else { return BTreeSet::new() };
    // It fails where one of the files is unknown, and yet names the packages of the others.
    let text = String::from_utf8_lossy(&output.stdout);
    let packages = text.lines().filter_map(|line| line.split([':', ',']).next());
    let paths = packages.map(|package| Path::new("/usr/share/doc").join(package).join("copyright"));
    paths.filter(|path| path.is_file()).collect()
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
