//! The images of our programs: what lies in each of them, and why.

use crate::elf;
use crate::error::ImageError;
use crate::file_tree::{FileTree, Origin};
use crate::image::Image;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

/// Folder of the client libraries in the node plugin's image.
const CLIENT_LIBRARIES: &str = "/usr/lib/kube-fpga";
/// The client library that every pod gets.
const ICD: &str = "libfpga_opencl_icd.so";
/// The client libraries besides: in the place of an ICD loader, and the OpenCL layer that times native applications.
const MORE_CLIENT_LIBRARIES: [&str; 2] = [DROP_IN, "libfpga_opencl_layer.so"];
/// Linked from an archive, which names no crates; they are those of the ICD.
const DROP_IN: &str = "libOpenCL.so.1";
/// PoCL, its built-in functions and headers, and the ICD loader.
const POCL_PACKAGES: [&str; 4] = ["libpocl2", "libpocl2-common", "pocl-opencl-icd", "ocl-icd-libopencl1"];
/// What the compiler in PoCL asks the linker to link with. It takes the folder of a GCC for whole if that has
/// `crtbegin.o`.
const LINKED_BY_POCL: [&str; 9] = [
    "crtbegin.o",
    "libgcc.a",
    "libgcc_s.so",
    "libc.so",
    "libc_nonshared.a",
    "libm.so",
    "libc.so.6",
    "libm.so.6",
    "libmvec.so.1",
];
/// Certificate authorities, where programs look for them.
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
/// Root. What lies below the kubelet's folders and in the folder of tokens is root's.
const ROOT: &str = "0:0";
/// The user of device managers, who are let in by their group: no user of a system.
const DEVICE_MANAGER: &str = "10460:10460";

/// An image that the chart installs, or kube-scheduler's, which the tests install besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shipped {
    /// The scheduler extender.
    SchedulerExtender,
    /// The collector.
    Collector,
    /// The node plugin, with the client libraries that it installs on nodes.
    NodePlugin,
    /// The endpoint picker.
    EndpointPicker,
    /// The registry.
    Registry,
    /// The broker of the pool.
    Pool,
    /// The device manager with PoCL, and all that PoCL needs to build kernels.
    DeviceManagerPocl,
    /// An unmodified kube-scheduler, for nodes that reach no registry.
    KubeScheduler,
    /// The function of `manifests/examples/sobel`. The chart does not install it.
    FunctionSobel,
}

/// Which client libraries an image takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientLibraries {
    /// All, and each must load in images with glibc 2.28 or newer.
    Portable,
    /// The ICD alone, as it was built for this machine. For tests, whose pods have this machine's glibc.
    OfThisMachine,
}

/// What images are made of.
#[derive(Debug, Clone)]
pub struct Parts {
    /// Folder of our programs.
    pub programs: PathBuf,
    /// Folder of our client libraries.
    pub client_libraries: PathBuf,
    /// Which client libraries an image takes.
    pub portability: ClientLibraries,
    /// kube-scheduler.
    pub kube_scheduler: PathBuf,
    /// What comes before `kube-fpga/` in the names, without a slash at the end; empty for nothing.
    pub registry: String,
    /// Tag of our images.
    pub tag: String,
    /// The commit that the programs were built from; empty where it is unknown.
    pub revision: String,
    /// The time of that commit in RFC 3339; empty where it is unknown.
    pub created: String,
}

impl Shipped {
    /// The images that the chart installs.
    pub const OURS: [Self; 7] = [
        Self::SchedulerExtender,
        Self::Collector,
        Self::NodePlugin,
        Self::EndpointPicker,
        Self::Registry,
        Self::Pool,
        Self::DeviceManagerPocl,
    ];

    /// Name without registry and tag, which is also that of the archive.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::SchedulerExtender => "fpga-scheduler-extender",
            Self::Collector => "fpga-collector",
            Self::NodePlugin => "fpga-node-plugin",
            Self::EndpointPicker => "fpga-endpoint-picker",
            Self::Registry => "fpga-registry",
            Self::Pool => "fpga-pool",
            Self::DeviceManagerPocl => "fpga-device-manager-pocl",
            Self::KubeScheduler => "kube-scheduler",
            Self::FunctionSobel => "function-sobel",
        }
    }

    /// The image.
    ///
    /// # Errors
    /// A file is missing, or a client library would not load in older images.
    pub fn image(self, parts: &Parts) -> Result<Image, ImageError> {
        if self == Self::KubeScheduler {
            return kube_scheduler(&parts.kube_scheduler, parts.origin());
        }
        let program = match self {
            Self::DeviceManagerPocl => "fpga-device-manager",
            Self::FunctionSobel => "sobel",
            _ => self.name(),
        };
        let of_this_machine = parts.programs.join(program);
        let entrypoint = format!("/usr/local/bin/{program}");
        let base = match self {
            Self::DeviceManagerPocl => pocl()?,
            _ => FileTree::new(),
        };
        let base = base.libraries_of(&of_this_machine)?;
        let base = match self {
            // Folders that the kubelet makes are root's: a container that starts before the collector gives them away.
            Self::Collector => base.of_this_machine(["/bin/chown".into()])?,
            // It fetches bitstreams by https.
            Self::NodePlugin => match parts.origin() {
                Origin::Packages => base.authorities(Path::new(AUTHORITIES))?,
                Origin::Anywhere => base.file(AUTHORITIES, AUTHORITIES),
            },
            _ => base,
        };
        // The function of the example is a program in C.
        if self != Self::FunctionSobel {
            parts.check_crates(&of_this_machine)?;
        }
        let top = FileTree::new().file(&entrypoint, of_this_machine);
        let top = match self {
            Self::NodePlugin => client_libraries(top, parts)?,
            _ => top,
        };
        let user = match self {
            // It makes the folders of tokens, and registers in the kubelet's.
            Self::NodePlugin => ROOT,
            Self::DeviceManagerPocl => DEVICE_MANAGER,
            _ => "65532:65532",
        };
        let image = Image::new(&parts.name_of(self), &entrypoint).user(user);
        let image = image.layer(common(base).package_database(parts.origin())?).layer(top);
        Ok(parts.label(image, self.description()))
    }

    fn description(self) -> &'static str {
        match self {
            Self::SchedulerExtender => "Tells kube-scheduler which nodes' boards suit a pod best",
            Self::Collector => "Measures what the boards of a node do",
            Self::NodePlugin => "Gives containers boards, a token for them, and the OpenCL client library",
            Self::EndpointPicker => "Sends requests to the replica whose board has the bitstream",
            Self::Registry => "Counts who uses bitstreams, and moves pods off lost boards",
            Self::Pool => "Gives jobs slots that boards lend",
            Self::DeviceManagerPocl => "Shares a board that PoCL emulates between pods",
            Self::KubeScheduler => "kube-scheduler, unmodified",
            Self::FunctionSobel => "Finds the edges of a picture by OpenCL: an example",
        }
    }
}

impl fmt::Display for Shipped {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Shipped {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let more = [Self::KubeScheduler, Self::FunctionSobel];
        let mut all = Self::OURS.into_iter().chain(more);
        all.find(|shipped| shipped.name() == text).ok_or_else(|| {
            let names = Self::OURS.map(Self::name).join(", ");
            format!("there is no such image; write one of {names}, {}", more.map(Self::name).join(", "))
        })
    }
}

impl Parts {
    /// The name of an image of ours, as the chart writes it.
    #[must_use]
    pub fn name_of(&self, shipped: Shipped) -> String {
        let separator = if self.registry.is_empty() { "" } else { "/" };
        format!("{}{separator}kube-fpga/{shipped}:{}", self.registry, self.tag)
    }

    /// Users' images have files of packages only.
    fn origin(&self) -> Origin {
        match self.portability {
            ClientLibraries::Portable => Origin::Packages,
            ClientLibraries::OfThisMachine => Origin::Anywhere,
        }
    }

    /// Checks that scanners know the crates of a program of ours.
    fn check_crates(&self, program: &Path) -> Result<(), ImageError> {
        match self.portability {
            ClientLibraries::Portable if elf::crates(program)?.is_none() => {
                Err(ImageError::NoCrates { path: program.to_owned() })
            }
            _ => Ok(()),
        }
    }

    fn label(&self, image: Image, description: &str) -> Image {
        let image = image
            .label("org.opencontainers.image.title", "kube-fpga")
            .label("org.opencontainers.image.description", description)
            .created(&self.created)
            .label("org.opencontainers.image.source", env!("CARGO_PKG_REPOSITORY"))
            .label("org.opencontainers.image.version", env!("CARGO_PKG_VERSION"))
            .label("org.opencontainers.image.licenses", env!("CARGO_PKG_LICENSE"));
        if self.revision.is_empty() {
            return image;
        }
        image.label("org.opencontainers.image.revision", &self.revision)
    }
}

/// What every program expects of a system.
fn common(tree: FileTree) -> FileTree {
    tree.folder("/tmp", 0o1777)
        .text("/etc/passwd", "root:x:0:0:root:/:/sbin/nologin\n")
        // Without it glibc asks the name server before /etc/hosts.
        .text("/etc/nsswitch.conf", "hosts: files dns\n")
}

fn client_libraries(tree: FileTree, parts: &Parts) -> Result<FileTree, ImageError> {
    let names = match parts.portability {
        ClientLibraries::Portable => [&[ICD], MORE_CLIENT_LIBRARIES.as_slice()].concat(),
        ClientLibraries::OfThisMachine => vec![ICD],
    };
    let mut tree = tree;
    for name in names {
        let library = parts.client_libraries.join(name);
        if parts.portability == ClientLibraries::Portable {
            elf::check_client_library(&library)?;
        }
        if name != DROP_IN {
            parts.check_crates(&library)?;
        }
        tree = tree.file(Path::new(CLIENT_LIBRARIES).join(name), library);
    }
    Ok(tree)
}

/// PoCL with what it needs to build kernels: its compiler is a library, its linker a program.
fn pocl() -> Result<FileTree, ImageError> {
    let mut tree = FileTree::new();
    for package in POCL_PACKAGES {
        tree = tree.debian_package(package)?;
    }
    let linker = PathBuf::from("/usr/bin/ld");
    tree = tree.libraries_of(&linker)?.file("/usr/bin/ld", linker);
    for name in LINKED_BY_POCL {
        tree = tree.of_this_machine([file_of_gcc(name)?])?;
    }
    Ok(tree)
}

/// The path at which GCC finds a file to link with.
fn file_of_gcc(name: &str) -> Result<PathBuf, ImageError> {
    let command = format!("gcc -print-file-name={name}");
    let failed = |reason: String| ImageError::Command { command: command.clone(), reason };
    let output = Command::new("gcc").arg(format!("-print-file-name={name}")).output();
    let output =
        output.map_err(|error| failed(format!("{error}; on Debian: apt-get install gcc libc6-dev")))?;
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    // A name that GCC does not find comes back as it is.
    if path.is_relative() {
        return Err(failed(format!("there is no {name}; on Debian: apt-get install gcc libc6-dev")));
    }
    normal(&path).map_err(failed)
}

/// The path without `..`, of which the last name stays, also where it is a link.
fn normal(path: &Path) -> Result<PathBuf, String> {
    let folder = path.parent().unwrap_or(path).canonicalize().map_err(|error| error.to_string())?;
    Ok(folder.join(path.file_name().unwrap_or_default()))
}

/// kube-scheduler as its own project names it, in the version that it says it has.
fn kube_scheduler(program: &Path, origin: Origin) -> Result<Image, ImageError> {
    let command = format!("{} --version", program.display());
    let output = Command::new(program)
        .arg("--version")
        .output()
        .map_err(|error| ImageError::Command { command: command.clone(), reason: error.to_string() })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.split_whitespace().find(|word| word.starts_with('v')).ok_or_else(|| {
        ImageError::Command { command: command.clone(), reason: format!("it names no version: {text}") }
    })?;
    let entrypoint = "/usr/local/bin/kube-scheduler";
    let name = format!("registry.k8s.io/kube-scheduler:{version}");
    let base = FileTree::new().libraries_of(program)?;
    let image = Image::new(&name, entrypoint).layer(common(base).package_database(origin)?);
    Ok(image.layer(FileTree::new().file(entrypoint, program)))
}
