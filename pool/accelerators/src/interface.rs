//! What a kernel takes and gives.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// Longest block of the input or of the output, in bytes: a whole chunk of 4 MB (P-6).
pub(crate) const MAX_BLOCK_BYTES: u32 = 4_000_000;
/// Maximum number of bytes of a state, of a parameter, and of the output at the end.
const MAX_SMALL_BYTES: u32 = 65_536;
/// Maximum number of parameters.
const MAX_PARAMETERS: usize = 16;
/// Longest name of a kernel or of a parameter.
const MAX_NAME_BYTES: usize = 64;
/// Largest work-group.
const MAX_WORK_GROUP_SIZE: u32 = 1_024;
/// Maximum number of work-items for a block.
const MAX_WORK_ITEMS_PER_BLOCK: u32 = 65_536;

/// An interface as people and files write it. [`Interface::new`] checks it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InterfaceSpec {
    /// Name of the kernel in the program.
    pub kernel: String,
    /// Bytes of a block of the input. Streams are cut between blocks only.
    pub block_bytes: u32,
    /// Bytes of output for a block of the input: the `a` of `out = a·in + b` is this by `block_bytes`.
    #[serde(default)]
    pub output_bytes_per_block: u32,
    /// Bytes of output after the last block, the `b` of `out = a·in + b`.
    #[serde(default)]
    pub output_bytes_at_end: u32,
    /// What happens to input after the last whole block.
    pub tail: Tail,
    /// Bytes of state that a chunk hands to the next one. The first chunk gets zeros.
    #[serde(default)]
    pub state_bytes: u32,
    /// Whether output and next state of a chunk follow from its input, its state and the arguments alone. A chunk of an
    /// accelerator that is not pure is never tried again.
    #[serde(default)]
    pub pure: bool,
    /// The parameters, in the order in which their values lie in the kernel's buffer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<Parameter>,
    /// Work-items of a work-group, all in the first dimension.
    pub work_group_size: u32,
    /// Work-items for a block; without it one work-item does the whole chunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_items_per_block: Option<u32>,
}

/// What happens to input after the last whole block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tail {
    /// The kernel takes a shorter block, and its output is shorter in the same ratio.
    Partial,
    /// Who launches the kernel fills the block with zeros, and its output is that of a whole block.
    ZeroFilled,
    /// The stream is refused.
    Refused,
}

/// A value that a job gives to the kernel, the same for all its chunks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Parameter {
    /// Name of the parameter, such as `key`.
    pub name: String,
    /// Bytes of the value.
    pub bytes: u32,
}

/// An interface whose values are possible and fit each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "InterfaceSpec", into = "InterfaceSpec")]
pub struct Interface(InterfaceSpec);

/// The reason why values form no [`Interface`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidInterface {
    /// The kernel can't have this name in OpenCL C.
    #[error(
        "kernel {0:?} is no name of a kernel; write letters, digits and `_`, a letter first, at most {MAX_NAME_BYTES}, for example aes_256_ctr"
    )]
    Kernel(String),
    /// A number is out of its range.
    #[error("{field} {value} is not possible; write {least} to {most}")]
    Range {
        /// Name of the field.
        field: &'static str,
        /// The value of the field.
        value: u32,
        /// Least possible value.
        least: u32,
        /// Highest possible value.
        most: u32,
    },
    /// The kernel would write nothing.
    #[error("the accelerator has no output; write outputBytesPerBlock or outputBytesAtEnd")]
    NoOutput,
    /// A shorter block would have an output of no whole number of bytes.
    #[error(
        "outputBytesPerBlock {output} is no multiple of blockBytes {block}, so that a shorter block has no output; write a multiple, or `tail: ZeroFilled`"
    )]
    PartialOutput {
        /// Bytes of a block of the input.
        block: u32,
        /// Bytes of output for a block.
        output: u32,
    },
    /// Only what is carried to the end can come out there.
    #[error("outputBytesAtEnd needs a state that is carried to the end; write stateBytes")]
    EndWithoutState,
    /// One work-item does the chunk, and others of its group would have nothing to do.
    #[error(
        "workGroupSize {0} needs work for each work-item; write workItemsPerBlock, or `workGroupSize: 1` for a single work-item"
    )]
    SingleWorkItem(u32),
    /// There are more than 16 parameters.
    #[error("there are {0} parameters; write at most {MAX_PARAMETERS}")]
    Parameters(usize),
    /// A parameter has no possible name.
    #[error(
        "{0:?} is no name of a parameter; write lower-case letters, digits and `_`, a letter first, at most {MAX_NAME_BYTES}, for example key"
    )]
    ParameterName(String),
    /// Two parameters have the same name.
    #[error("two parameters are called {0:?}; write another name for one of them")]
    ParameterTwice(String),
}

impl Interface {
    /// Checks all values.
    ///
    /// # Errors
    /// The first value that is wrong.
    pub fn new(spec: InterfaceSpec) -> Result<Self, InvalidInterface> {
        spec.check()?;
        Ok(Self(spec))
    }

    /// The values.
    #[must_use]
    pub fn spec(&self) -> &InterfaceSpec {
        &self.0
    }
}

impl TryFrom<InterfaceSpec> for Interface {
    type Error = InvalidInterface;

    fn try_from(spec: InterfaceSpec) -> Result<Self, InvalidInterface> {
        Self::new(spec)
    }
}

impl From<Interface> for InterfaceSpec {
    fn from(interface: Interface) -> Self {
        interface.0
    }
}

/// What people want to see of an interface, in one line.
impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InterfaceSpec { kernel, block_bytes, output_bytes_per_block, output_bytes_at_end, tail, .. } =
            &self.0;
        write!(
            f,
            "kernel {kernel}: {output_bytes_per_block} bytes of output for each {block_bytes} bytes, {output_bytes_at_end} at the end, tail {tail:?}"
        )?;
        for Parameter { name, bytes } in &self.0.parameters {
            write!(f, ", argument {name} of {bytes} bytes")?;
        }
        Ok(())
    }
}

impl InterfaceSpec {
    fn check(&self) -> Result<(), InvalidInterface> {
        if !is_identifier(&self.kernel, char::is_alphabetic) {
            return Err(InvalidInterface::Kernel(self.kernel.clone()));
        }
        for (field, value, least, most) in [
            ("blockBytes", self.block_bytes, 1, MAX_BLOCK_BYTES),
            ("outputBytesPerBlock", self.output_bytes_per_block, 0, MAX_BLOCK_BYTES),
            ("outputBytesAtEnd", self.output_bytes_at_end, 0, MAX_SMALL_BYTES),
            ("stateBytes", self.state_bytes, 0, MAX_SMALL_BYTES),
            ("workGroupSize", self.work_group_size, 1, MAX_WORK_GROUP_SIZE),
            ("workItemsPerBlock", self.work_items_per_block.unwrap_or(1), 1, MAX_WORK_ITEMS_PER_BLOCK),
        ] {
            check_range(field, value, least, most)?;
        }
        if self.output_bytes_per_block == 0 && self.output_bytes_at_end == 0 {
            return Err(InvalidInterface::NoOutput);
        }
        let (block, output) = (self.block_bytes, self.output_bytes_per_block);
        if self.tail == Tail::Partial && !output.is_multiple_of(block) {
            return Err(InvalidInterface::PartialOutput { block, output });
        }
        if self.output_bytes_at_end > 0 && self.state_bytes == 0 {
            return Err(InvalidInterface::EndWithoutState);
        }
        if self.work_items_per_block.is_none() && self.work_group_size > 1 {
            return Err(InvalidInterface::SingleWorkItem(self.work_group_size));
        }
        self.check_parameters()
    }

    fn check_parameters(&self) -> Result<(), InvalidInterface> {
        if self.parameters.len() > MAX_PARAMETERS {
            return Err(InvalidInterface::Parameters(self.parameters.len()));
        }
        let mut names = BTreeSet::new();
        for Parameter { name, bytes } in &self.parameters {
            if !is_identifier(name, char::is_lowercase) {
                return Err(InvalidInterface::ParameterName(name.clone()));
            }
            if !names.insert(name) {
                return Err(InvalidInterface::ParameterTwice(name.clone()));
            }
            check_range("bytes of a parameter", *bytes, 1, MAX_SMALL_BYTES)?;
        }
        Ok(())
    }
}

fn check_range(field: &'static str, value: u32, least: u32, most: u32) -> Result<(), InvalidInterface> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(InvalidInterface::Range { field, value, least, most })
}

/// Whether `text` is a short identifier of ASCII whose letters are all `is_letter`.
fn is_identifier(text: &str, is_letter: fn(char) -> bool) -> bool {
    let is_letter = |c: char| c.is_ascii() && is_letter(c);
    text.len() <= MAX_NAME_BYTES
        && text.starts_with(is_letter)
        && text.chars().all(|c| is_letter(c) || c.is_ascii_digit() || c == '_')
}

#[cfg(test)]
mod tests;
