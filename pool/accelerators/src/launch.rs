//! How a kernel is launched for a chunk.

use crate::chunks::{Chunk, Position};
use crate::interface::Interface;

/// What a kernel is passed, in this order; only those that [`Interface::kernel_arguments`] lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelArgument {
    /// Buffer with the bytes of the chunk, and the zeros after them: `global const T *`.
    Input,
    /// Buffer that takes the output of the chunk: `global T *`.
    Output,
    /// [`Launch::input_bytes`]: `uint`.
    InputBytes,
    /// Buffer with the state that the chunk before left, or zeros for the first chunk: `global const T *`. Where there is a state.
    State,
    /// Another buffer, which takes the state for the next chunk: `global T *`. Where there is a state. Since `State` stays
    /// as it is, a chunk can be done again.
    NextState,
    /// [`Launch::is_last`]: `uint`, 1 or 0. Where there is a state.
    IsLast,
    /// Buffer with the bytes of [`Arguments`](crate::Arguments): `global const T *`. Where there are parameters.
    Arguments,
}

/// The launch of a kernel for a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// Work-items in all, in the first dimension: a multiple of `local_size`.
    pub global_size: u64,
    /// Work-items of a group.
    pub local_size: u32,
    /// Bytes of the chunk that the kernel works on, with the zeros.
    pub input_bytes: u32,
    /// Whether the stream ends with the chunk.
    pub is_last: bool,
}

impl Interface {
    /// What the kernel is passed, in order.
    #[must_use]
    pub fn kernel_arguments(&self) -> Vec<KernelArgument> {
        use KernelArgument::{Arguments, Input, InputBytes, IsLast, NextState, Output, State};
        let state = if self.spec().state_bytes > 0 { &[State, NextState, IsLast][..] } else { &[] };
        let arguments = if self.spec().parameters.is_empty() { &[][..] } else { &[Arguments] };
        [&[Input, Output, InputBytes], state, arguments].concat()
    }

    /// The launch for a chunk of this interface.
    #[must_use]
    pub fn launch(&self, chunk: &Chunk) -> Launch {
        let spec = self.spec();
        let bytes = chunk.input.end - chunk.input.start + u64::from(chunk.zeros);
        let work_items = match spec.work_items_per_block {
            Some(per_block) => bytes.div_ceil(u64::from(spec.block_bytes)) * u64::from(per_block),
            None => 1,
        };
        let local_size = spec.work_group_size;
        Launch {
            // OpenCL takes no launch without work-items, and an empty chunk may have output.
            global_size: work_items.max(1).next_multiple_of(u64::from(local_size)),
            local_size,
            // A chunk that `chunks` returns has at most 4 MB.
            input_bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            is_last: chunk.position == Position::Last,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Accelerator, chunks};

    fn first(accelerator: Accelerator, bytes: u64) -> Launch {
        let interface = accelerator.interface();
        interface.launch(&chunks(&interface, bytes).unwrap().next().unwrap())
    }

    #[test]
    fn a_launch_has_whole_groups_and_at_least_one() {
        let launch = first(Accelerator::Aes256Ctr, 16 * 256 + 1);
        assert_eq!(launch, Launch { global_size: 512, local_size: 256, input_bytes: 4097, is_last: true });
        let launch = first(Accelerator::Sha256, 0);
        assert_eq!(launch, Launch { global_size: 1, local_size: 1, input_bytes: 0, is_last: true });
        let launch = first(Accelerator::ReedSolomon, 40_961);
        assert_eq!((launch.global_size, launch.input_bytes), (2 * 1024, 81_920));
    }

    #[test]
    fn a_kernel_is_passed_only_what_it_has() {
        use KernelArgument::{Arguments, Input, InputBytes, IsLast, NextState, Output, State};
        let passed = |accelerator: Accelerator| accelerator.interface().kernel_arguments();
        assert_eq!(
            passed(Accelerator::Aes256Ctr),
            [Input, Output, InputBytes, State, NextState, IsLast, Arguments]
        );
        assert_eq!(passed(Accelerator::Sha256), [Input, Output, InputBytes, State, NextState, IsLast]);
        assert_eq!(passed(Accelerator::ReedSolomon), [Input, Output, InputBytes, Arguments]);
        assert_eq!(passed(Accelerator::Fft), [Input, Output, InputBytes]);
    }
}
