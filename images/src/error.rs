//! Why an image can't be made.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why an image can't be made.
#[derive(Debug, Error)]
pub enum ImageError {
    /// A file of this machine can't be read.
    #[error("can't read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file of the image can't be read or written to its layer.
    #[error("can't add {path} to the image: {source}")]
    Add {
        /// The path in the image.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The archive can't be written.
    #[error("can't write the archive {path}: {source}")]
    Write {
        /// The archive.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A command of this machine can't be started, or fails.
    #[error("`{command}` failed: {reason}")]
    Command {
        /// The command.
        command: String,
        /// What it wrote, or why it did not start.
        reason: String,
    },
    /// A program or library needs a library that this machine lacks.
    #[error("{program} needs libraries that this machine lacks:\n{missing}")]
    MissingLibrary {
        /// The program or library.
        program: PathBuf,
        /// The lines of `ldd`.
        missing: String,
    },
    /// A file is no program or library that can be read.
    #[error("{path} is no ELF file that can be read: {reason}")]
    NoElf {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// No image is made for this processor.
    #[error("{path} is for the processor {processor}; images are made for x86-64 and 64-bit Arm")]
    Processor {
        /// The program.
        path: PathBuf,
        /// The processor that the program is built for.
        processor: String,
    },
    /// The image lacks the program that it is to run.
    #[error("the image {image} has no file {entrypoint}, which it is to run")]
    NoEntrypoint {
        /// The image.
        image: String,
        /// The missing program.
        entrypoint: String,
    },
    /// A file of an image of ours is of no Debian package, so that no scanner would know it.
    #[error(
        "{path} is of no Debian package; images have files of packages only. Install the package that has it"
    )]
    NoPackage {
        /// The file.
        path: PathBuf,
    },
    /// A file is no longer as its Debian package brought it.
    #[error(
        "{path} is not as the package {package} brought it; install the package again: apt-get install --reinstall {package}"
    )]
    Changed {
        /// The file.
        path: PathBuf,
        /// Its package.
        package: String,
    },
    /// A program of ours does not name the crates that it is made of.
    #[error("{path} does not name its crates, so that no scanner would know them. Build it by `make dist`")]
    NoCrates {
        /// The program.
        path: PathBuf,
    },
    /// A client library would not load in images with an older glibc.
    #[error(
        "{path} needs symbols of a glibc newer than 2.28, so older images can't load it: {symbols}. Build it by `make dist`"
    )]
    NewGlibc {
        /// The library.
        path: PathBuf,
        /// The symbols with their versions.
        symbols: String,
    },
}
