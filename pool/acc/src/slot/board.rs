//! The accelerator of a slot by remote OpenCL: its objects, and steps as one task each.

use super::{Continuity, Done, Work};
use crate::step::Step;
use bytes::Bytes;
use fpga_accelerators::{Interface, KernelArgument, Launch};
use fpga_client::{
    ArgValue, Buffer, ClError, Context, DigestError, HostSource, Initial, Kernel, LeasedSession, Operation,
    Program, Queue, Reading, cl,
};
use fpga_pool_leases::ids::StepNumber;
use std::sync::Arc;

/// Number of pairs of buffers: one pair is filled while the other one is worked on.
const SIDES: usize = 2;
/// Buffers grow to multiples of this size, so that they seldom grow.
const GRAIN_BYTES: usize = 64 << 10;

/// The accelerator in a slot.
pub(super) struct Board {
    queue: Arc<Queue>,
    kernel: Arc<Kernel>,
    interface: Arc<Interface>,
    arguments: Option<Arc<Buffer>>,
    states: Option<States>,
    sides: [Side; SIDES],
    turn: usize,
}

/// Where the accelerator's state is.
enum States {
    /// The state before a step and after it, in turns.
    Turns([Arc<Buffer>; SIDES]),
    /// Every step begins with zeros, and what it leaves is not looked at.
    Fresh { zeros: Arc<Buffer>, left: Arc<Buffer> },
}

/// The buffers of a step.
#[derive(Default)]
struct Side {
    input: Option<Arc<Buffer>>,
    output: Option<Arc<Buffer>>,
}

/// A step that was started.
pub(super) struct UnderWay {
    step: StepNumber,
    output: Option<Reading>,
    state: Option<Reading>,
}

/// The reason why a slot can't be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum BoardError {
    #[error("the manager shows no device")]
    NoDevice,
    #[error(transparent)]
    Program(#[from] DigestError),
    #[error("the bitstream has no kernel {kernel} that takes {arguments} arguments")]
    Kernel { kernel: String, arguments: usize },
    #[error("OpenCL error {0}")]
    OpenCl(#[from] ClError),
}

impl BoardError {
    /// Whether the manager has refused the step, since it wants the slot back.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::OpenCl(ClError::LEASE_YIELDS))
    }
}

impl Board {
    /// Prepares the accelerator for its first step.
    pub(super) fn prepare(session: &LeasedSession, work: &Work) -> Result<Self, BoardError> {
        let platform = session.platforms().first();
        let device = platform.and_then(|platform| platform.devices().first()).ok_or(BoardError::NoDevice)?;
        let context = Context::new(&[Arc::clone(device)])?;
        let queue = Queue::new(&context, device, 0)?;
        let program = Program::with_digest(&context, device, *work.digest.as_bytes())?;
        program.build(&[], "")?;
        let spec = work.interface.spec();
        let expected = work.interface.kernel_arguments().len();
        let wrong = || BoardError::Kernel { kernel: spec.kernel.clone(), arguments: expected };
        let kernel = Kernel::new(&program, &spec.kernel).map_err(|_| wrong())?;
        if usize::try_from(kernel.info().num_args) != Ok(expected) {
            return Err(wrong());
        }
        let arguments = work.arguments.expose();
        let arguments = if arguments.is_empty() { None } else { Some(filled(&context, arguments)?) };
        let states = match usize::try_from(spec.state_bytes).unwrap_or(usize::MAX) {
            0 => None,
            bytes => Some(States::new(&context, bytes, &work.continuity)?),
        };
        let interface = Arc::clone(&work.interface);
        Ok(Self { queue, kernel, interface, arguments, states, sides: Default::default(), turn: 0 })
    }

    /// Starts a step: its bytes, the kernel, and the way back are one task.
    pub(super) fn start(&mut self, step: &Step) -> Result<UnderWay, BoardError> {
        let output_bytes = step.chunk.output.end - step.chunk.output.start;
        let output_bytes = usize::try_from(output_bytes).unwrap_or(usize::MAX);
        let launch = self.interface.launch(&step.chunk);
        let context = self.queue.context();
        let side = &mut self.sides[self.turn];
        let input = fitting(&mut side.input, context, step.input.len())?;
        let output = fitting(&mut side.output, context, output_bytes)?;
        self.set_arguments(&input, &output, launch)?;
        if !step.input.is_empty() {
            let data = HostSource::owned(step.input.clone());
            self.queue.enqueue(Operation::Write { buffer: &input, offset: 0, data }, &[])?;
        }
        let size = |size: u64| usize::try_from(size).unwrap_or(usize::MAX);
        let (global, local) = ([size(launch.global_size)], [size(launch.local_size.into())]);
        let kernel = &self.kernel;
        self.queue
            .enqueue(Operation::NdRange { kernel, offset: &[], global: &global, local: &local }, &[])?;
        let read = |buffer: &Arc<Buffer>, bytes| match bytes {
            0 => Ok(None),
            bytes => self.queue.read_bytes(buffer, 0, bytes).map(Some),
        };
        let output = read(&output, output_bytes)?;
        let state = match &self.states {
            None | Some(States::Fresh { .. }) => None,
            Some(States::Turns(states)) => {
                read(&states[other(self.turn)], size(self.interface.spec().state_bytes.into()))?
            }
        };
        self.queue.flush()?;
        self.turn = other(self.turn);
        Ok(UnderWay { step: step.number, output, state })
    }

    fn set_arguments(
        &self,
        input: &Arc<Buffer>,
        output: &Arc<Buffer>,
        launch: Launch,
    ) -> Result<(), ClError> {
        let [bytes, is_last] = [launch.input_bytes, u32::from(launch.is_last)].map(u32::to_le_bytes);
        let states = self.states.as_ref().map(|states| states.before_and_after(self.turn));
        for (index, argument) in (0..).zip(self.interface.kernel_arguments()) {
            let buffer = match argument {
                KernelArgument::InputBytes => {
                    self.kernel.set_arg(index, ArgValue::Scalar(&bytes))?;
                    continue;
                }
                KernelArgument::IsLast => {
                    self.kernel.set_arg(index, ArgValue::Scalar(&is_last))?;
                    continue;
                }
                KernelArgument::Input => Some(Arc::clone(input)),
                KernelArgument::Output => Some(Arc::clone(output)),
                KernelArgument::State => states.map(|(before, _)| Arc::clone(before)),
                KernelArgument::NextState => states.map(|(_, after)| Arc::clone(after)),
                KernelArgument::Arguments => self.arguments.clone(),
            };
            self.kernel.set_arg(index, ArgValue::Buffer(buffer.ok_or(ClError::INVALID_KERNEL_ARGS)?))?;
        }
        Ok(())
    }
}

impl States {
    fn new(context: &Arc<Context>, bytes: usize, continuity: &Continuity) -> Result<Self, ClError> {
        let (before, after) = match continuity {
            Continuity::Stream { state } if state.len() == bytes => {
                (filled(context, state)?, zeros(context, bytes)?)
            }
            Continuity::Stream { .. } => (zeros(context, bytes)?, zeros(context, bytes)?),
            Continuity::None => {
                return Ok(Self::Fresh { zeros: zeros(context, bytes)?, left: zeros(context, bytes)? });
            }
        };
        Ok(Self::Turns([before, after]))
    }

    fn before_and_after(&self, turn: usize) -> (&Arc<Buffer>, &Arc<Buffer>) {
        match self {
            Self::Turns(states) => (&states[turn], &states[other(turn)]),
            Self::Fresh { zeros, left } => (zeros, left),
        }
    }
}

impl UnderWay {
    pub(super) fn number(&self) -> StepNumber {
        self.step
    }

    /// Waits for the end of the step.
    pub(super) fn finish(self) -> Result<Done, BoardError> {
        let bytes = |reading: Option<Reading>| reading.map_or(Ok(Bytes::new()), Reading::wait);
        Ok(Done { step: self.step, output: bytes(self.output)?, state: bytes(self.state)? })
    }
}

fn other(turn: usize) -> usize {
    (turn + 1) % SIDES
}

/// A buffer with this content, which is not empty.
fn filled(context: &Arc<Context>, bytes: &[u8]) -> Result<Arc<Buffer>, ClError> {
    Buffer::new(context, cl::MEM_COPY_HOST_PTR, bytes.len(), Initial::Copy(bytes))
}

fn zeros(context: &Arc<Context>, bytes: usize) -> Result<Arc<Buffer>, ClError> {
    Buffer::new(context, 0, bytes, Initial::Nothing)
}

/// The buffer, or a longer one in its place if it is too short.
fn fitting(
    buffer: &mut Option<Arc<Buffer>>,
    context: &Arc<Context>,
    bytes: usize,
) -> Result<Arc<Buffer>, ClError> {
    if let Some(buffer) = buffer.as_ref().filter(|buffer| buffer.size() >= bytes) {
        return Ok(Arc::clone(buffer));
    }
    // A kernel needs its buffers also where they have no bytes.
    let longer = zeros(context, bytes.max(1).next_multiple_of(GRAIN_BYTES))?;
    *buffer = Some(Arc::clone(&longer));
    Ok(longer)
}
