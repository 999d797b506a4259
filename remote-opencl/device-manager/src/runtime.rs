//! Which vendor OpenCL runtime stands below the manager, and the environment that makes the ICD loader load it alone.
//!
//! A loader reads its environment once, before `main` for `LD_LIBRARY_PATH`. So the manager starts itself again with
//! the right one, in the same process id. Our own ICD never gets into it: the manager would call itself.

use crate::vendor;
use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

/// Where Intel's runtimes are: the folder with `libintelocl.so` and `libintelocl_emu.so`.
pub const INTEL_FOLDER_VARIABLE: &str = "FPGA_INTEL_OPENCL";

/// Set while the environment is the runtime's: the private folder with its one `.icd` file.
pub const ENTERED_VARIABLE: &str = "FPGA_DEVICE_MANAGER_ENTERED";

/// Where Intel's runtimes lie below the folder that `make setup` was called in.
const INTEL_SUBFOLDER: &str = "build/intel-opencl/lib";

/// Start of the file name of our own ICD, and its `CL_PLATFORM_ICD_SUFFIX_KHR`.
const OUR_ICD: &str = "libfpga_opencl_icd";
const OUR_SUFFIX: &[u8] = b"FPGA";
const CL_PLATFORM_ICD_SUFFIX_KHR: u32 = 0x0920;

/// Settings of the C library's allocator that programs can't make themselves.
pub const TUNABLES_VARIABLE: &str = "GLIBC_TUNABLES";
/// How many freed pieces of one size a thread keeps: a batch of 100 commands frees as many of each at once, and what is
/// not kept goes to the one arena (see `memory.rs`) that all threads share.
const KEPT_PIECES: &str = "glibc.malloc.tcache_count=127";

/// What would let another library into the manager, or make it a client of itself.
const FOREIGN_VARIABLES: [&str; 5] =
    ["OCL_ICD_FILENAMES", "OPENCL_LAYERS", "OPENCL_LIBRARY", "LD_PRELOAD", "FPGA_DEVICE_MANAGERS"];

/// A choice of runtime, as in `--runtime`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Runtime {
    /// PoCL of the system.
    Pocl,
    /// Intel's FPGA Emulation Platform.
    IntelFpga,
    /// Intel's CPU runtime.
    IntelCpu,
    /// The ICD at a path: a library, or an `.icd` file that names one.
    Icd(PathBuf),
}

/// Why a runtime can't be used.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The name is none of the known ones.
    #[error(
        "{0:?} is no runtime; write `pocl`, `intel-fpga`, `intel-cpu`, or the path of an ICD (with a `/` in it)"
    )]
    Unknown(String),
    /// PoCL isn't where systems have it.
    #[error(
        "PoCL is not installed; on Debian: apt-get install pocl-opencl-icd; or write --runtime /PATH/TO/libpocl.so"
    )]
    NoPocl,
    /// Intel's runtimes aren't found.
    #[error(
        "Intel's {library} is not in {folder}; in the project's folder, `RUNTIME={runtime} make setup` installs it, or \
         name its folder in {INTEL_FOLDER_VARIABLE}"
    )]
    NoIntel {
        /// The file that was looked for.
        library: &'static str,
        /// Where.
        folder: String,
        /// For what.
        runtime: Runtime,
    },
    /// There is no such file.
    #[error("the ICD {} can't be used: {source}", .path.display())]
    Icd {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The ICD is ours.
    #[error("the runtime is the remote OpenCL client itself; name the runtime of a vendor with --runtime")]
    Ourselves,
    /// The environment can't be prepared.
    #[error("cannot start with the runtime's environment: {0}")]
    Enter(#[source] io::Error),
    /// No ICD loader.
    #[error(transparent)]
    Loader(#[from] vendor::LoadError),
    /// The runtime was loaded, but there is no platform of it.
    #[error(
        "the runtime {runtime} gives no OpenCL platform ({error}); is {library} the ICD of this machine's kind?"
    )]
    NoPlatform {
        /// Which.
        runtime: Runtime,
        /// Its library.
        library: String,
        /// What the loader said.
        error: vendor::ClError,
    },
}

/// The library of a runtime and where its own libraries are.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Located {
    /// A path, or a name for the dynamic linker.
    icd: String,
    /// For `LD_LIBRARY_PATH`.
    libraries: Option<PathBuf>,
}

/// The process has the runtime's environment. Made by [`Runtime::enter`].
#[derive(Debug)]
pub struct Entered {
    runtime: Runtime,
    library: String,
    folder: PathBuf,
}

impl Runtime {
    /// What the label `fpga-scheduling.io/fpga-vendor` says of boards of this runtime, unless the user says otherwise.
    #[must_use]
    pub fn vendor(&self) -> &'static str {
        match self {
            Self::Pocl => "pocl",
            Self::IntelFpga | Self::IntelCpu => "intel",
            Self::Icd(_) => "unknown",
        }
    }

    /// The folders that are the runtime's own, besides the system's.
    #[must_use]
    pub fn folders(&self) -> Vec<PathBuf> {
        let located = self.locate(env::var_os(INTEL_FOLDER_VARIABLE).map(PathBuf::from));
        let Ok(located) = located else { return Vec::new() };
        let beside = Path::new(&located.icd).parent().map(Path::to_owned);
        // A name alone is the dynamic linker's to find.
        beside.into_iter().chain(located.libraries).filter(|folder| folder.is_absolute()).collect()
    }

    /// Makes the environment the runtime's: returns in the process that has it. Call it before any thread is started.
    ///
    /// # Errors
    /// [`RuntimeError`], with the way to a working choice.
    pub fn enter(&self) -> Result<Entered, RuntimeError> {
        let located = self.locate(env::var_os(INTEL_FOLDER_VARIABLE).map(PathBuf::from))?;
        refuse_ourselves(&located.icd)?;
        let entered = |folder| Entered { runtime: self.clone(), library: located.icd.clone(), folder };
        if let Some(folder) = env::var_os(ENTERED_VARIABLE).map(PathBuf::from)
            && env::var_os("OCL_ICD_VENDORS").is_some_and(|vendors| Path::new(&vendors) == folder)
            && fs::read_to_string(icd_file(&folder)).is_ok_and(|icd| icd.trim_end() == located.icd)
        {
            return Ok(entered(folder));
        }
        let folder = private_folder(&located.icd).map_err(RuntimeError::Enter)?;
        let error = environment(&located, &folder).exec();
        // It returned: there is no other process.
        let _ = fs::remove_dir_all(&folder);
        Err(RuntimeError::Enter(error))
    }

    fn locate(&self, intel_folder: Option<PathBuf>) -> Result<Located, RuntimeError> {
        match self {
            Self::Pocl => Ok(Located { icd: locate_pocl().ok_or(RuntimeError::NoPocl)?, libraries: None }),
            Self::IntelFpga => self.locate_intel("libintelocl_emu.so", intel_folder),
            Self::IntelCpu => self.locate_intel("libintelocl.so", intel_folder),
            Self::Icd(path) => locate_icd(path),
        }
    }

    fn locate_intel(&self, library: &'static str, folder: Option<PathBuf>) -> Result<Located, RuntimeError> {
        let folders: Vec<PathBuf> = match folder {
            Some(folder) => vec![folder],
            None => {
                let here = env::current_dir().unwrap_or_default();
                here.ancestors().map(|ancestor| ancestor.join(INTEL_SUBFOLDER)).collect()
            }
        };
        let found = folders.iter().find(|folder| folder.join(library).is_file());
        let found = found.and_then(|folder| folder.canonicalize().ok());
        match found {
            Some(folder) => {
                let icd = folder.join(library).to_string_lossy().into_owned();
                Ok(Located { icd, libraries: Some(folder) })
            }
            None => {
                let folder = match folders.as_slice() {
                    [only] => only.display().to_string(),
                    _ => format!("{INTEL_SUBFOLDER} under this folder or one above it"),
                };
                Err(RuntimeError::NoIntel { library, folder, runtime: self.clone() })
            }
        }
    }
}

impl Entered {
    /// Loads the runtime and finds its platforms. What was made for the loader is removed.
    ///
    /// # Errors
    /// [`RuntimeError`] if there is no platform, or if it is our own.
    pub fn load(self) -> Result<Vec<vendor::PlatformId>, RuntimeError> {
        vendor::load()?;
        let platforms = vendor::platforms().map_err(|error| RuntimeError::NoPlatform {
            runtime: self.runtime.clone(),
            library: self.library.clone(),
            error,
        })?;
        let is_ours = |platform: &vendor::PlatformId| {
            vendor::platform_info(*platform, CL_PLATFORM_ICD_SUFFIX_KHR)
                .is_ok_and(|suffix| suffix.strip_suffix(&[0]).unwrap_or(&suffix) == OUR_SUFFIX)
        };
        if platforms.iter().any(is_ours) { Err(RuntimeError::Ourselves) } else { Ok(platforms) }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // The loader has read it, or never will; a folder that stays is a few bytes in the temporary folder.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The command that starts this program again with the arguments it has and the environment of the runtime.
fn environment(located: &Located, folder: &Path) -> Command {
    let mut arguments = env::args_os();
    let mut command = Command::new("/proc/self/exe");
    command.arg0(arguments.next().unwrap_or_else(|| OsString::from("fpga-device-manager")));
    command.args(arguments).env("OCL_ICD_VENDORS", folder).env(ENTERED_VARIABLE, folder);
    command.env(TUNABLES_VARIABLE, tunables(env::var_os(TUNABLES_VARIABLE)));
    for variable in FOREIGN_VARIABLES {
        command.env_remove(variable);
    }
    if let Some(libraries) = &located.libraries {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    command
}

/// Ours, before the user's, which count.
fn tunables(users: Option<OsString>) -> OsString {
    let mut tunables = OsString::from(KEPT_PIECES);
    if let Some(users) = users {
        tunables.push(":");
        tunables.push(users);
    }
    tunables
}

fn private_folder(icd: &str) -> io::Result<PathBuf> {
    let folder = tempfile::Builder::new().prefix("fpga-runtime-").tempdir()?;
    fs::write(icd_file(folder.path()), format!("{icd}\n"))?;
    Ok(folder.keep())
}

fn icd_file(folder: &Path) -> PathBuf {
    folder.join("runtime.icd")
}

fn locate_pocl() -> Option<String> {
    if let Ok(text) = fs::read_to_string("/etc/OpenCL/vendors/pocl.icd") {
        return text.lines().next().map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned);
    }
    let architecture = format!("/usr/lib/{}-linux-gnu", env::consts::ARCH);
    let folders = [architecture.as_str(), "/usr/lib64", "/usr/lib", "/usr/local/lib64", "/usr/local/lib"];
    folders.iter().find_map(|folder| {
        let files = fs::read_dir(folder).ok()?;
        let mut libraries: Vec<PathBuf> = files.flatten().map(|file| file.path()).collect();
        libraries.retain(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libpocl.so"))
        });
        libraries.sort();
        libraries.pop().map(|path| path.to_string_lossy().into_owned())
    })
}

fn locate_icd(path: &Path) -> Result<Located, RuntimeError> {
    let failed = |source| RuntimeError::Icd { path: path.to_owned(), source };
    let path = path.canonicalize().map_err(failed)?;
    if path.extension().is_some_and(|extension| extension == "icd") {
        let text = fs::read_to_string(&path).map_err(failed)?;
        let icd = text.lines().next().unwrap_or_default().trim().to_owned();
        return Ok(Located { icd, libraries: None });
    }
    // An ICD often has its libraries beside it, as Intel's have.
    let libraries = path.parent().map(Path::to_owned);
    Ok(Located { icd: path.to_string_lossy().into_owned(), libraries })
}

fn refuse_ourselves(icd: &str) -> Result<(), RuntimeError> {
    let name = Path::new(icd).file_name().unwrap_or_default().to_string_lossy();
    if name.starts_with(OUR_ICD) { Err(RuntimeError::Ourselves) } else { Ok(()) }
}

impl FromStr for Runtime {
    type Err = RuntimeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "pocl" => Ok(Self::Pocl),
            "intel-fpga" => Ok(Self::IntelFpga),
            "intel-cpu" => Ok(Self::IntelCpu),
            path if path.contains('/') => Ok(Self::Icd(path.into())),
            _ => Err(RuntimeError::Unknown(text.to_owned())),
        }
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pocl => f.write_str("pocl"),
            Self::IntelFpga => f.write_str("intel-fpga"),
            Self::IntelCpu => f.write_str("intel-cpu"),
            Self::Icd(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtimes_survive_a_round_trip_and_unknown_names_list_the_known_ones() {
        for text in ["pocl", "intel-fpga", "intel-cpu", "/opt/x/libvendor.so", "./libvendor.so"] {
            assert_eq!(text.parse::<Runtime>().unwrap().to_string(), text);
        }
        let error = "cuda".parse::<Runtime>().unwrap_err().to_string();
        assert!(error.contains("\"cuda\"") && error.contains("`intel-fpga`"), "{error}");
    }

    #[test]
    fn the_users_settings_of_the_allocator_come_after_ours_and_count() {
        assert_eq!(tunables(None), KEPT_PIECES);
        let both = format!("{KEPT_PIECES}:glibc.malloc.tcache_count=7");
        assert_eq!(tunables(Some("glibc.malloc.tcache_count=7".into())), *both);
    }

    #[test]
    fn our_own_icd_is_no_runtime() {
        let dir = tempfile::tempdir().unwrap();
        let ours = dir.path().join("libfpga_opencl_icd.so");
        fs::write(&ours, "").unwrap();
        fs::write(dir.path().join("a.icd"), format!("{}\n", ours.display())).unwrap();
        for path in [ours, dir.path().join("a.icd")] {
            assert!(matches!(Runtime::Icd(path).enter(), Err(RuntimeError::Ourselves)));
        }
    }

    #[test]
    fn a_missing_intel_runtime_names_the_folder_and_the_command() {
        let dir = tempfile::tempdir().unwrap();
        let error = Runtime::IntelFpga.locate(Some(dir.path().to_owned())).unwrap_err().to_string();
        assert!(error.contains(&dir.path().display().to_string()), "{error}");
        assert!(error.contains("RUNTIME=intel-fpga make setup"), "{error}");
        fs::write(dir.path().join("libintelocl_emu.so"), "").unwrap();
        let located = Runtime::IntelFpga.locate(Some(dir.path().to_owned())).unwrap();
        assert_eq!(located.libraries, Some(dir.path().canonicalize().unwrap()));
    }

    #[test]
    fn the_environment_of_the_runtime_has_nothing_of_the_caller_in_it() {
        let located = Located { icd: "libx.so".into(), libraries: Some("/opt/x".into()) };
        let command = environment(&located, Path::new("/tmp/f"));
        let set: Vec<_> = command.get_envs().collect();
        let value = |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        assert_eq!(value("LD_LIBRARY_PATH"), Some(Some("/opt/x".as_ref())));
        assert_eq!(value("OCL_ICD_VENDORS"), Some(Some("/tmp/f".as_ref())));
        assert_eq!((value("LD_PRELOAD"), value("FPGA_DEVICE_MANAGERS")), (Some(None), Some(None)));
    }
}
