//! The vendor's OpenCL runtime below the manager, and the environment in which the ICD loader loads that runtime
//! alone.
//!
//! A loader reads its environment once, and `LD_LIBRARY_PATH` is read before `main`. So the manager executes itself
//! again with the right environment, in the same process. The runtime is never this project's own ICD: the manager
//! would be its own client.

use crate::api::{LoadError, load};
use crate::info::{PlatformId, platform_info, platforms};
use fpga_protocol::cl_error::ClError;
use std::env;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

/// Variable with the folder of Intel's runtimes, `libintelocl.so` and `libintelocl_emu.so`.
pub const INTEL_FOLDER_VARIABLE: &str = "FPGA_INTEL_OPENCL";

/// Variable that is set in the runtime's environment: the private folder with the runtime's `.icd` file.
pub const ENTERED_VARIABLE: &str = "FPGA_DEVICE_MANAGER_ENTERED";

/// Folder of Intel's runtimes, relative to the one in which `make setup` was called.
const INTEL_SUBFOLDER: &str = "build/intel-opencl/lib";

/// Prefix of the file name of this project's ICD, and its `CL_PLATFORM_ICD_SUFFIX_KHR`.
const OUR_ICD: &str = "libfpga_opencl_icd";
const OUR_SUFFIX: &[u8] = b"FPGA";
const CL_PLATFORM_ICD_SUFFIX_KHR: u32 = 0x0920;

/// Variable with settings of the C library's allocator that a program can't make itself.
pub const TUNABLES_VARIABLE: &str = "GLIBC_TUNABLES";
/// Setting of the number of freed chunks of one size that a thread keeps. A batch of 100 commands frees as many of
/// each size at once; chunks beyond the number go to the one heap that all threads share (see `memory.rs`).
const KEPT_PIECES: &str = "glibc.malloc.tcache_count=127";

/// Variables that would load another library into the manager, or make it a client of itself.
const FOREIGN_VARIABLES: [&str; 6] = [
    "OCL_ICD_FILENAMES",
    "OPENCL_LAYERS",
    "OPENCL_LIBRARY",
    "LD_PRELOAD",
    "FPGA_DEVICE_MANAGERS",
    "FPGA_CLAIM_DIR",
];

/// A choice of runtime, as in `--runtime`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Runtime {
    /// The system's PoCL.
    Pocl,
    /// Intel's FPGA emulation.
    IntelFpga,
    /// Intel's CPU runtime.
    IntelCpu,
    /// The ICD at a path: a library, or an `.icd` file that contains the name of one.
    Icd(PathBuf),
}

/// The reason why a runtime can't be used.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The name is not known.
    #[error(
        "{0:?} is no runtime; write `pocl`, `intel-fpga`, `intel-cpu`, or the path of an ICD (with a `/` in it)"
    )]
    Unknown(String),
    /// PoCL is not in the usual places.
    #[error(
        "PoCL is not installed; on Debian: apt-get install pocl-opencl-icd; or write --runtime /PATH/TO/libpocl.so"
    )]
    NoPocl,
    /// Intel's runtime was not found.
    #[error(
        "Intel's {library} is not in {folder}; in the project's folder, `RUNTIME={runtime} make setup` installs it, or \
         name its folder in {INTEL_FOLDER_VARIABLE}"
    )]
    NoIntel {
        /// The file that was looked for.
        library: &'static str,
        /// The folder that was searched.
        folder: String,
        /// The requested runtime.
        runtime: Runtime,
    },
    /// The file of the ICD can't be read.
    #[error("the ICD {} can't be used: {source}", .path.display())]
    Icd {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The ICD is this project's own.
    #[error("the runtime is the remote OpenCL client itself; name the runtime of a vendor with --runtime")]
    Ourselves,
    /// The process can't be started with the runtime's environment.
    #[error("cannot start with the runtime's environment: {0}")]
    Enter(#[source] io::Error),
    /// The system has no usable ICD loader.
    #[error(transparent)]
    Loader(#[from] LoadError),
    /// The runtime was loaded, but it has no platform.
    #[error(
        "the runtime {runtime} gives no OpenCL platform ({error}); is {library} the ICD of this machine's kind?"
    )]
    NoPlatform {
        /// The runtime.
        runtime: Runtime,
        /// The runtime's library.
        library: String,
        /// The loader's error.
        error: ClError,
    },
}

/// The library of a runtime, and the folder of its dependencies.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Located {
    /// A path, or a name that the dynamic linker searches for.
    icd: String,
    /// Value of `LD_LIBRARY_PATH`.
    libraries: Option<PathBuf>,
}

/// The environment of this process is the runtime's. [`Runtime::enter`] makes this value.
#[derive(Debug)]
pub struct Entered {
    runtime: Runtime,
    library: String,
    folder: PathBuf,
}

impl Runtime {
    /// Default value of the label `fpga-scheduling.io/fpga-vendor` for boards of this runtime.
    #[must_use]
    pub fn vendor(&self) -> &'static str {
        match self {
            Self::Pocl => "pocl",
            Self::IntelFpga | Self::IntelCpu => "intel",
            Self::Icd(_) => "unknown",
        }
    }

    /// The runtime's own folders, besides the system's.
    #[must_use]
    pub fn folders(&self) -> Vec<PathBuf> {
        let located = self.locate(env::var_os(INTEL_FOLDER_VARIABLE).map(PathBuf::from));
        let Ok(located) = located else { return Vec::new() };
        let beside = Path::new(&located.icd).parent().map(Path::to_owned);
        // Only absolute paths count: the dynamic linker searches the system's folders for a name.
        beside.into_iter().chain(located.libraries).filter(|folder| folder.is_absolute()).collect()
    }

    /// Replaces this process by the same program in the runtime's environment. Returns in the process that has this
    /// environment. Call it before any thread starts.
    ///
    /// # Errors
    /// [`RuntimeError`], whose message suggests a working choice.
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
        // `exec` returns only if it failed.
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
    /// Loads the runtime and returns its platforms. Removes the private folder.
    ///
    /// # Errors
    /// [`RuntimeError`] if there is no loader or no platform, or if the platform is this project's own.
    pub fn load(self) -> Result<Vec<PlatformId>, RuntimeError> {
        load()?;
        let platforms = platforms().map_err(|error| RuntimeError::NoPlatform {
            runtime: self.runtime.clone(),
            library: self.library.clone(),
            error,
        })?;
        let is_ours = |platform: &PlatformId| {
            platform_info(*platform, CL_PLATFORM_ICD_SUFFIX_KHR)
                .is_ok_and(|suffix| suffix.strip_suffix(&[0]).unwrap_or(&suffix) == OUR_SUFFIX)
        };
        if platforms.iter().any(is_ours) { Err(RuntimeError::Ourselves) } else { Ok(platforms) }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // The loader has read the folder by now. If the removal fails, a few bytes stay in the system's temporary
        // folder.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The command that executes this program again, with the same arguments and the runtime's environment.
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

/// The manager's tunables before the user's: the last value of a tunable counts.
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
    // Some ICDs, such as Intel's, have their dependencies in the same folder.
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
