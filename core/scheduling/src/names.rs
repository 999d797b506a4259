//! Names of our labels, annotations and managed resource.

/// Label of nodes, and of pods as a requirement: vendor of the board.
pub const VENDOR_LABEL: &str = "fpga-scheduling.io/fpga-vendor";
/// Label of nodes, and of pods as a requirement: version of the board's shell.
pub const SHELL_LABEL: &str = "fpga-scheduling.io/shell-version";
/// Label of nodes, and of pods as a requirement: name of the board.
pub const BOARD_LABEL: &str = "fpga-scheduling.io/board";
/// Pod annotation: the bitstreams that the pod uses, as comma-separated names or `sha256:` digests.
pub const BITSTREAMS_ANNOTATION: &str = "fpga-scheduling.io/bitstreams";
/// Pod annotation: the OpenCL platform that the board must belong to (B-6). Names of platforms have characters that a
/// label may not have.
pub const PLATFORM_ANNOTATION: &str = "fpga-scheduling.io/platform";
/// Pod annotation: the total number of slots that the board must have (S-7).
pub const SLOTS_ANNOTATION: &str = "fpga-scheduling.io/slots";
/// Pod annotation: bitstreams that must be in slots of the board already, written as in [`BITSTREAMS_ANNOTATION`]
/// (B-6).
pub const LOADED_ANNOTATION: &str = "fpga-scheduling.io/loaded-bitstreams";
/// Pod annotation: utilization of a board, from 0 to 1, above which the board is not considered.
pub const MAX_UTILIZATION_ANNOTATION: &str = "fpga-scheduling.io/max-utilization";
/// Pod annotation, which only the node plugin may write: the boards of the pod's containers, comma-separated.
pub const BOARDS_ANNOTATION: &str = "fpga-scheduling.io/boards";
/// Pod annotation, which only the node plugin may write: for each container of the pod a line with the reason why it has
/// its boards and no others.
pub const BOARDS_REASON_ANNOTATION: &str = "fpga-scheduling.io/boards-reason";
/// Pod annotation: `true` if the pod's replacement is to be Ready before the registry moves the pod. The registry needs
/// `--moves-new-before-old`, and no HorizontalPodAutoscaler may own the number of replicas.
pub const NEW_BEFORE_OLD_ANNOTATION: &str = "fpga-scheduling.io/new-before-old";
/// Annotation of one node, written by the extender: a hash of all Bitstreams. A new value makes kube-scheduler try rejected
/// pods again.
pub const LIBRARY_VERSION_ANNOTATION: &str = "fpga-scheduling.io/library-version";
/// Prefix of our labels, annotations and resources.
pub const OWN_PREFIX: &str = "fpga-scheduling.io/";
/// The managed resource: kube-scheduler calls the extender for pods that request it.
pub const ACCELERATED_RESOURCE: &str = "fpga-scheduling.io/accelerated";

/// Pod annotation of BlastFunction, alias of [`VENDOR_LABEL`] (B-7).
pub const VENDOR_ALIAS: &str = "blastfunction.io/vendor";
/// Pod annotation of BlastFunction, alias of [`BOARD_LABEL`] (B-7).
pub const BOARD_ALIAS: &str = "blastfunction.io/device";
/// Pod annotation with BlastFunction's prefix, alias of [`PLATFORM_ANNOTATION`] (B-6).
pub const PLATFORM_ALIAS: &str = "blastfunction.io/platform";
/// Pod annotation with BlastFunction's prefix, alias of [`SLOTS_ANNOTATION`].
pub const SLOTS_ALIAS: &str = "blastfunction.io/slots";
/// Pod annotation with BlastFunction's prefix, alias of [`LOADED_ANNOTATION`].
pub const LOADED_ALIAS: &str = "blastfunction.io/loaded-bitstreams";
/// Pod annotation with BlastFunction's prefix, alias of [`MAX_UTILIZATION_ANNOTATION`].
pub const MAX_UTILIZATION_ALIAS: &str = "blastfunction.io/max-utilization";
/// Pod annotation of BlastFunction: name of the bitstream (B-7).
pub const ACCELERATOR_ALIAS: &str = "blastfunction.io/accelerator";
/// Pod annotation of BlastFunction: digest of the bitstream (B-7).
pub const ACCELERATOR_HASH_ALIAS: &str = "blastfunction.io/acceleratorhash";
/// Prefix of all annotations of BlastFunction. A pod with any of them is an FPGA pod.
pub const ALIAS_PREFIX: &str = "blastfunction.io/";
