//! What programs and libraries say of themselves.

use crate::error::ImageError;
use crate::sbom::Crate;
use flate2::read::ZlibDecoder;
use object::elf::{DT_NEEDED, FileHeader64};
use object::read::elf::{Dyn as _, ElfFile64, FileHeader as _};
use object::{Architecture, Endianness, Object as _, ObjectSection as _};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;

/// The newest glibc whose symbols a client library may need: that of RHEL 8. Ubuntu 20.04 has 2.31.
const CLIENT_GLIBC: GlibcVersion = GlibcVersion { major: 2, minor: 28 };

/// The section in which `cargo auditable` names a program's crates.
const CRATES_SECTION: &str = ".dep-v0";
/// Longest list of crates that is read.
const MOST_CRATES_BYTES: u64 = 8 << 20;

/// Version of glibc in which a symbol appeared or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct GlibcVersion {
    major: u32,
    minor: u32,
}

impl GlibcVersion {
    /// Reads `GLIBC_2.34`. `GLIBC_2.2.5` is 2.2; other names are not versions.
    fn parse(name: &str) -> Option<Self> {
        let mut numbers = name.strip_prefix("GLIBC_")?.split('.').map(str::parse);
        Some(Self { major: numbers.next()?.ok()?, minor: numbers.next()?.ok()? })
    }
}

/// The processor of a program, as images name it.
pub(crate) fn architecture(path: &Path) -> Result<&'static str, ImageError> {
    let bytes = read(path)?;
    match parse(path, &bytes)?.architecture() {
        Architecture::X86_64 => Ok("amd64"),
        Architecture::Aarch64 => Ok("arm64"),
        other => Err(ImageError::Processor { path: path.to_owned(), processor: format!("{other:?}") }),
    }
}

/// Whether a file is a program or library that needs shared libraries.
pub(crate) fn needs_libraries(path: &Path) -> Result<bool, ImageError> {
    let bytes = read(path)?;
    let elf = parse(path, &bytes)?;
    let endian = elf.endian();
    let dynamic = elf
        .elf_section_table()
        .dynamic(endian, &*bytes)
        .map_err(|error| not_elf(path, &error))?
        .map_or(&[][..], |(entries, _)| entries);
    Ok(dynamic.iter().any(|entry| entry.tag(endian) == DT_NEEDED))
}

/// The crates that a program or library is made of, without those that only its build needed. `None` if it does not name
/// any.
pub(crate) fn crates(path: &Path) -> Result<Option<BTreeSet<Crate>>, ImageError> {
    let bytes = read(path)?;
    let elf = parse(path, &bytes)?;
    let Some(section) = elf.section_by_name(CRATES_SECTION) else { return Ok(None) };
    let data = section.data().map_err(|error| not_elf(path, &error))?;
    let mut text = Vec::new();
    let unreadable = |reason: String| ImageError::NoElf { path: path.to_owned(), reason };
    let read = ZlibDecoder::new(data).take(MOST_CRATES_BYTES).read_to_end(&mut text);
    read.map_err(|error| unreadable(format!("{CRATES_SECTION}: {error}")))?;
    let list: Value =
        serde_json::from_slice(&text).map_err(|error| unreadable(format!("{CRATES_SECTION}: {error}")))?;
    let packages = list["packages"].as_array().into_iter().flatten().filter(|one| one["kind"] != "build");
    let crates = packages.filter_map(|one| {
        let text = |key: &str| one[key].as_str().map(str::to_owned);
        Some(Crate {
            name: text("name")?,
            version: text("version")?,
            is_published: one["source"] == "crates.io",
        })
    });
    Ok(Some(crates.collect()))
}

/// Checks that a client library needs no symbol that RHEL 8 and Ubuntu 20.04 lack.
///
/// # Errors
/// It needs such symbols, and the error names them.
pub(crate) fn check_client_library(path: &Path) -> Result<(), ImageError> {
    let bytes = read(path)?;
    let symbols = newer_symbols(path, &bytes, CLIENT_GLIBC)?;
    if symbols.is_empty() {
        return Ok(());
    }
    Err(ImageError::NewGlibc { path: path.to_owned(), symbols: symbols.join(", ") })
}

/// The symbols that a library needs of a newer glibc than `limit`, each with its version.
fn newer_symbols(path: &Path, bytes: &[u8], limit: GlibcVersion) -> Result<Vec<String>, ImageError> {
    let not_elf = |error: object::Error| not_elf(path, &error);
    let elf = parse(path, bytes)?;
    let endian = elf.endian();
    let sections = elf.elf_section_table();
    let Some(versions) = sections.versions(endian, bytes).map_err(not_elf)? else { return Ok(Vec::new()) };
    let symbols = elf.elf_dynamic_symbol_table();
    let mut newer = Vec::new();
    for (index, symbol) in symbols.enumerate() {
        let version = versions.version(versions.version_index(endian, index)).map_err(not_elf)?;
        let Some(version) = version else { continue };
        let version = String::from_utf8_lossy(version.name());
        if GlibcVersion::parse(&version).is_some_and(|version| version > limit) {
            let name = symbols.symbol_name(endian, symbol).map_err(not_elf)?;
            newer.push(format!("{}@{version}", String::from_utf8_lossy(name)));
        }
    }
    Ok(newer)
}

fn read(path: &Path) -> Result<Vec<u8>, ImageError> {
    std::fs::read(path).map_err(|source| ImageError::Read { path: path.to_owned(), source })
}

fn parse<'b>(path: &Path, bytes: &'b [u8]) -> Result<ElfFile64<'b, Endianness>, ImageError> {
    FileHeader64::<Endianness>::parse(bytes)
        .and_then(|_| ElfFile64::parse(bytes))
        .map_err(|error| not_elf(path, &error))
}

fn not_elf(path: &Path, error: &object::Error) -> ImageError {
    ImageError::NoElf { path: path.to_owned(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_version(minor: u32) -> GlibcVersion {
        GlibcVersion { major: 2, minor }
    }

    #[test]
    fn versions_of_symbols_are_ordered_by_number() {
        assert_eq!(GlibcVersion::parse("GLIBC_2.2.5"), Some(mk_version(2)));
        assert!(GlibcVersion::parse("GLIBC_2.4") < GlibcVersion::parse("GLIBC_2.28"));
        assert_eq!(GlibcVersion::parse("GLIBC_PRIVATE"), None);
        assert_eq!(GlibcVersion::parse("GCC_3.0"), None);
    }

    #[test]
    fn the_symbols_that_a_program_needs_of_newer_glibcs_are_found() {
        // This test itself: std needs symbols of several versions.
        let program = std::env::current_exe().unwrap();
        let bytes = read(&program).unwrap();
        let needed = newer_symbols(&program, &bytes, mk_version(0)).unwrap();
        assert!(needed.iter().any(|symbol| symbol.starts_with("memcpy@GLIBC_2.")), "{needed:?}");
        assert_eq!(newer_symbols(&program, &bytes, mk_version(1000)).unwrap(), [""; 0]);
    }

    #[test]
    fn a_text_is_no_program() {
        let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        assert!(matches!(architecture(&text), Err(ImageError::NoElf { .. })));
    }

    #[test]
    fn a_program_has_the_processor_of_this_machine_and_needs_libraries() {
        let program = std::env::current_exe().unwrap();
        let expected = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        assert_eq!(architecture(&program).unwrap(), expected);
        assert!(needs_libraries(&program).unwrap());
    }
}
