//! The processor in place of a slot that does not come in time.

use crate::asked::Known;
use crate::error::Error;
use fpga_accelerators::{Accelerator, ChunkInput, ChunkOutput};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Computes the chunks of a job on the processor of this machine. The accelerator's state goes on where a board ended, so that
/// the output is that of a board.
#[derive(Clone)]
pub struct Fallback(Compute);

#[derive(Clone)]
enum Compute {
    Shipped,
    Function(Arc<Function>),
}

type Function = dyn Fn(&ChunkInput<'_>, Room<'_>) -> Result<(), String> + Send + Sync;

/// Where the function of a program writes what comes out of a chunk. All of it is zeros at first.
#[derive(Debug)]
pub struct Room<'a> {
    /// The chunk's bytes of the output.
    pub output: &'a mut [u8],
    /// The state for the next chunk.
    pub next_state: &'a mut [u8],
}

/// A fallback, and how long a job waits for a slot before.
#[derive(Debug, Clone)]
pub(crate) struct OrElse {
    pub(crate) after: Duration,
    pub(crate) fallback: Fallback,
}

impl Fallback {
    /// The library's own code of the accelerators that are shipped.
    #[must_use]
    pub fn shipped() -> Self {
        Self(Compute::Shipped)
    }

    /// A function of the program. It gets what the kernel gets: whole blocks, the state that the chunk before left (zeros at
    /// first), and the arguments. It runs on a thread of the library, one call after the other; a call that has begun ends also
    /// if the job is given up. An error ends the job with that text.
    #[must_use]
    pub fn function(
        compute: impl Fn(&ChunkInput<'_>, Room<'_>) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self(Compute::Function(Arc::new(compute)))
    }

    /// Checks that there is code for an accelerator.
    pub(crate) fn check(&self, accelerator: &str) -> Result<(), Error> {
        match (&self.0, Accelerator::named(accelerator)) {
            (Compute::Shipped, None) => Err(Error::NoFallback(accelerator.to_owned())),
            _ => Ok(()),
        }
    }

    /// Computes a chunk, whose output has so many bytes.
    pub(crate) fn compute(
        &self,
        accelerator: &str,
        known: &Known,
        chunk: &ChunkInput<'_>,
        output_bytes: usize,
    ) -> Result<ChunkOutput, String> {
        match &self.0 {
            Compute::Function(compute) => {
                let mut output =
                    ChunkOutput { bytes: vec![0; output_bytes], state: vec![0; chunk.state.len()] };
                compute(chunk, Room { output: &mut output.bytes, next_state: &mut output.state })?;
                Ok(output)
            }
            Compute::Shipped => {
                let shipped = Accelerator::named(accelerator);
                // The pool may have another accelerator of this name.
                let same = shipped.filter(|shipped| shipped.interface() == *known.interface);
                let same = same.ok_or("the pool's accelerator of this name is not the shipped one")?;
                same.compute(chunk).map_err(|error| error.to_string())
            }
        }
    }
}

impl fmt::Debug for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Compute::Shipped => "Fallback::shipped()",
            Compute::Function(_) => "Fallback::function(_)",
        })
    }
}
