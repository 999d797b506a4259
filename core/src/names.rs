//! The names that nodes and pods carry for us: labels, annotations, the managed resource.

/// Node label, and pod label as a requirement: the vendor of a board.
pub const VENDOR_LABEL: &str = "fpga-scheduling.io/fpga-vendor";
/// Node label, and pod label as a requirement: the version of a board's shell.
pub const SHELL_LABEL: &str = "fpga-scheduling.io/shell-version";
/// Node label, and pod label as a requirement: the board.
pub const BOARD_LABEL: &str = "fpga-scheduling.io/board";
/// Pod annotation: the bitstreams that it will use, comma-separated names or `sha256:` digests.
pub const BITSTREAMS_ANNOTATION: &str = "fpga-scheduling.io/bitstreams";
/// Pod annotation: the OpenCL platform that the board must belong to; a platform's name is too free for a label (B-6).
pub const PLATFORM_ANNOTATION: &str = "fpga-scheduling.io/platform";
/// Pod annotation: how many slots the board must have in total (S-7).
pub const SLOTS_ANNOTATION: &str = "fpga-scheduling.io/slots";
/// Pod annotation: bitstreams that the board must hold in its slots already, as in [`BITSTREAMS_ANNOTATION`] (B-6).
pub const LOADED_ANNOTATION: &str = "fpga-scheduling.io/loaded-bitstreams";
/// The resource for which kube-scheduler asks the extender.
pub const ACCELERATED_RESOURCE: &str = "fpga-scheduling.io/accelerated";

/// Pod annotation of BlastFunction, alias of [`VENDOR_LABEL`] (B-7).
pub const VENDOR_ALIAS: &str = "blastfunction.io/vendor";
/// Pod annotation of BlastFunction, alias of [`BOARD_LABEL`] (B-7).
pub const BOARD_ALIAS: &str = "blastfunction.io/device";
/// Pod annotation in the manner of BlastFunction, alias of [`PLATFORM_ANNOTATION`] (B-6).
pub const PLATFORM_ALIAS: &str = "blastfunction.io/platform";
/// Pod annotation of BlastFunction: the bitstream by name (B-7).
pub const ACCELERATOR_ALIAS: &str = "blastfunction.io/accelerator";
/// Pod annotation of BlastFunction: the bitstream by digest (B-7).
pub const ACCELERATOR_HASH_ALIAS: &str = "blastfunction.io/acceleratorhash";
/// Start of all annotations of BlastFunction: any of them makes a pod an FPGA pod.
pub const ALIAS_PREFIX: &str = "blastfunction.io/";
