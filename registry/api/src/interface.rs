//! What an accelerator of the pool takes and gives, as a Bitstream says it.

use fpga_accelerators::Interface;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the kernel takes and gives, so that jobs of the pool can run it (P-8): a stream of `in` bytes has `a·in + b` bytes of
/// output, where `a` is `outputBytesPerBlock / blockBytes`, and `b` is `outputBytesAtEnd`.
// Its JSON is that of `fpga_accelerators::Interface`.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.outputBytesPerBlock > 0 || self.outputBytesAtEnd > 0").message("the accelerator has no output; write outputBytesPerBlock or outputBytesAtEnd"),
    validation = Rule::new("self.tail != 'Partial' || self.blockBytes < 1 || self.outputBytesPerBlock % self.blockBytes == 0").message("outputBytesPerBlock is no multiple of blockBytes, so that a shorter block has no output; write a multiple, or `tail: ZeroFilled`"),
    validation = Rule::new("self.outputBytesAtEnd == 0 || self.stateBytes > 0").message("outputBytesAtEnd needs a state that is carried to the end; write stateBytes"),
    validation = Rule::new("has(self.workItemsPerBlock) || self.workGroupSize == 1").message("workGroupSize needs work for each work-item; write workItemsPerBlock, or `workGroupSize: 1` for a single work-item")
)]
pub struct AcceleratorInterface {
    /// Name of the kernel in the program.
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^[A-Za-z][A-Za-z0-9_]*$')").message("kernel is no name of a kernel; write letters, digits and `_`, a letter first, for example aes_256_ctr"))]
    pub kernel: String,
    /// Bytes of a block of the input. Streams are cut between blocks only.
    #[x_kube(validation = Rule::new("self >= 1 && self <= 4000000").message("blockBytes is the size of a block of the input; write 1 to 4000000"))]
    pub block_bytes: i32,
    /// Bytes of output for a block of the input.
    #[serde(default)]
    #[x_kube(validation = Rule::new("self >= 0 && self <= 4000000").message("outputBytesPerBlock is the size of the output for a block; write 0 to 4000000"))]
    pub output_bytes_per_block: i32,
    /// Bytes of output after the last block.
    #[serde(default)]
    #[x_kube(validation = Rule::new("self >= 0 && self <= 65536").message("outputBytesAtEnd is the size of the output after the last block; write 0 to 65536"))]
    pub output_bytes_at_end: i32,
    /// What happens to input after the last whole block. `Partial`: the kernel takes a shorter block; `ZeroFilled`: zeros fill
    /// the block; `Refused`: the stream is refused.
    pub tail: InterfaceTail,
    /// Bytes of state that a chunk hands to the next one. The first chunk gets zeros.
    #[serde(default)]
    #[x_kube(validation = Rule::new("self >= 0 && self <= 65536").message("stateBytes is the size of what a chunk hands to the next one; write 0 to 65536"))]
    pub state_bytes: i32,
    /// Whether output and next state of a chunk follow from its input, its state and the arguments alone. Chunks of others
    /// are not tried again.
    #[serde(default)]
    pub pure: bool,
    /// The parameters, in the order in which their values lie in the kernel's buffer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Map(vec!["name".to_owned()]))]
    pub parameters: Vec<InterfaceParameter>,
    /// Work-items of a work-group, all in the first dimension.
    #[x_kube(validation = Rule::new("self >= 1 && self <= 1024").message("workGroupSize is what the kernel's reqd_work_group_size says first; write 1 to 1024"))]
    pub work_group_size: i32,
    /// Work-items for a block; without it one work-item does the whole chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 1 && self <= 65536").message("workItemsPerBlock is a number of work-items; write 1 to 65536, or leave it out for a single work-item"))]
    pub work_items_per_block: Option<i32>,
}

/// What happens to input after the last whole block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InterfaceTail {
    /// The kernel takes a shorter block.
    Partial,
    /// Zeros fill the block.
    ZeroFilled,
    /// The stream is refused.
    Refused,
}

/// A value that a job gives to the kernel, the same for all its chunks.
#[derive(KubeSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InterfaceParameter {
    /// Name of the parameter.
    #[schemars(length(max = 64))]
    #[x_kube(validation = Rule::new("self.matches('^[a-z][a-z0-9_]*$')").message("name is no name of a parameter; write lower-case letters, digits and `_`, a letter first, for example key"))]
    pub name: String,
    /// Bytes of the value.
    #[x_kube(validation = Rule::new("self >= 1 && self <= 65536").message("bytes is the size of the value; write 1 to 65536"))]
    pub bytes: i32,
}

impl AcceleratorInterface {
    /// The interface as programs use it. It is checked again: a cluster may have an older definition.
    ///
    /// # Errors
    /// A value is not possible, or does not fit the others.
    pub fn parse(&self) -> serde_json::Result<Interface> {
        serde_json::from_value(serde_json::to_value(self)?)
    }

    /// The interface as a Bitstream says it.
    ///
    /// # Errors
    /// None that is known: all numbers of an interface fit.
    pub fn of(interface: &Interface) -> serde_json::Result<Self> {
        serde_json::from_value(serde_json::to_value(interface)?)
    }
}
