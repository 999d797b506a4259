//! An OpenCL device that runs accelerators by what their interface says, and knows nothing else of them.

use anyhow::{Context as _, Result, bail, ensure};
use fpga_accelerators::{Accelerator, Arguments, Chunk, KernelArgument, chunks_of};
use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::{CL_DEVICE_TYPE_ALL, Device};
use opencl3::kernel::{ExecuteKernel, Kernel};
use opencl3::memory::{Buffer, CL_MEM_READ_WRITE};
use opencl3::platform::get_platforms;
use opencl3::program::Program;
use opencl3::types::CL_BLOCKING;
use std::num::NonZeroU32;
use std::ptr::null_mut;
use std::sync::Mutex;

/// Held while the loader looks for platforms: beside another thread's first search, one may find none.
static SEARCH: Mutex<()> = Mutex::new(());

/// Bytes after the output, which no kernel may write.
const GUARD: [u8; 64] = [0xa5; 64];

pub struct Board {
    context: Context,
    queue: CommandQueue,
}

impl Board {
    /// The first device of PoCL, or of the runtime of `RUNTIME`; Intel's have to be among the loader's
    /// (`OCL_ICD_VENDORS=build/intel-opencl/icd/intel-fpga`).
    pub fn of_environment() -> Result<Self> {
        let runtime = std::env::var("RUNTIME").unwrap_or_else(|_| "pocl".to_owned());
        let part_of_name = match runtime.as_str() {
            "pocl" => "Portable Computing Language",
            "intel-fpga" => "FPGA Emulation",
            "intel-cpu" => "Intel(R) OpenCL",
            other => bail!("{other} is no runtime; write pocl, intel-fpga or intel-cpu"),
        };
        let search = SEARCH.lock();
        let platforms = get_platforms()?;
        let platform = platforms.iter().find(|it| it.name().is_ok_and(|name| name.contains(part_of_name)));
        let platform = platform.with_context(|| format!("the OpenCL loader has no platform of {runtime}"))?;
        let device = *platform.get_devices(CL_DEVICE_TYPE_ALL)?.first().context("there is no device")?;
        drop(search);
        let context = Context::from_device(&Device::new(device))?;
        let queue = CommandQueue::create_default_with_properties(&context, 0, 0)?;
        Ok(Self { context, queue })
    }

    /// Builds the program of an accelerator.
    pub fn load(&self, accelerator: Accelerator) -> Result<Loaded<'_>> {
        let program = Program::create_and_build_from_source(&self.context, accelerator.source(), "")
            .map_err(anyhow::Error::msg)?;
        let kernel = Kernel::create(&program, &accelerator.interface().spec().kernel)?;
        Ok(Loaded { board: self, accelerator, kernel })
    }

    /// A new buffer with these bytes. OpenCL has no empty buffers: one for no bytes has a byte.
    fn buffer(&self, bytes: &[u8]) -> Result<Buffer<u8>> {
        let length = bytes.len().max(1);
        // SAFETY: no host pointer is passed, so none needs to stay valid.
        let mut buffer =
            unsafe { Buffer::<u8>::create(&self.context, CL_MEM_READ_WRITE, length, null_mut())? };
        if !bytes.is_empty() {
            // SAFETY: the buffer is no shorter than the bytes, and the write blocks.
            unsafe { self.queue.enqueue_write_buffer(&mut buffer, CL_BLOCKING, 0, bytes, &[])? };
        }
        Ok(buffer)
    }

    /// A new buffer for so many bytes that a kernel writes, with the guard behind them.
    fn guarded(&self, length: usize) -> Result<Buffer<u8>> {
        self.buffer(&[&vec![0; length][..], &GUARD].concat())
    }

    /// What a kernel wrote into a guarded buffer of so many bytes.
    fn written(&self, buffer: &Buffer<u8>, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length + GUARD.len()];
        // SAFETY: the buffer is no shorter than the bytes, and the read blocks.
        unsafe { self.queue.enqueue_read_buffer(buffer, CL_BLOCKING, 0, &mut bytes, &[])? };
        ensure!(bytes.split_off(length) == GUARD, "the kernel wrote behind its output");
        Ok(bytes)
    }
}

/// An accelerator on the board.
pub struct Loaded<'a> {
    board: &'a Board,
    accelerator: Accelerator,
    kernel: Kernel,
}

impl Loaded<'_> {
    /// The output for a stream, in chunks of at most so many bytes.
    pub fn run(&self, arguments: &Arguments, input: &[u8], most_bytes: NonZeroU32) -> Result<Vec<u8>> {
        let interface = self.accelerator.interface();
        let mut state = vec![0; interface.spec().state_bytes as usize];
        let mut output = Vec::new();
        for chunk in chunks_of(&interface, input.len() as u64, most_bytes)? {
            let bytes = &input[chunk.input.start as usize..chunk.input.end as usize];
            let (written, next_state) = self.step(arguments, &chunk, bytes, &state)?;
            ensure!(output.len() as u64 == chunk.output.start, "the chunk's output is not the next one");
            output.extend(written);
            state = next_state;
        }
        Ok(output)
    }

    /// Output and next state of a chunk.
    pub fn step(
        &self,
        arguments: &Arguments,
        chunk: &Chunk,
        bytes: &[u8],
        state: &[u8],
    ) -> Result<(Vec<u8>, Vec<u8>)> {
        let interface = self.accelerator.interface();
        let launch = interface.launch(chunk);
        let output_bytes = (chunk.output.end - chunk.output.start) as usize;

        let input = [bytes, &vec![0; chunk.zeros as usize]].concat();
        ensure!(input.len() == launch.input_bytes as usize, "the launch is for another chunk");
        let input = self.board.buffer(&input)?;
        let output = self.board.guarded(output_bytes)?;
        let state_before = self.board.buffer(state)?;
        let next_state = self.board.guarded(state.len())?;
        let arguments = self.board.buffer(arguments.expose())?;

        let mut execute = ExecuteKernel::new(&self.kernel);
        for argument in interface.kernel_arguments() {
            // SAFETY: each is what the kernel declares at this place.
            unsafe {
                match argument {
                    KernelArgument::Input => execute.set_arg(&input),
                    KernelArgument::Output => execute.set_arg(&output),
                    KernelArgument::InputBytes => execute.set_arg(&launch.input_bytes),
                    KernelArgument::State => execute.set_arg(&state_before),
                    KernelArgument::NextState => execute.set_arg(&next_state),
                    KernelArgument::IsLast => execute.set_arg(&u32::from(launch.is_last)),
                    KernelArgument::Arguments => execute.set_arg(&arguments),
                }
            };
        }
        execute.set_global_work_size(launch.global_size as usize);
        execute.set_local_work_size(launch.local_size as usize);
        // SAFETY: the buffers have the lengths that the interface promises the kernel.
        unsafe { execute.enqueue_nd_range(&self.board.queue)? };

        Ok((self.board.written(&output, output_bytes)?, self.board.written(&next_state, state.len())?))
    }
}
