//! Calls that need an image on the board: they wait for a slot as tasks do, and hold it until they are done.
//!
//! Making a program of binaries loads a board that has one image, and the vendor's programs of other images are not there
//! while a board that is reconfigured as a whole has this one. So such a call is a task without commands: no call loads the
//! board while another session's task runs on it.

use super::{Building, Session};
use crate::board::Use;
use crate::calls::Load;
use crate::commands::Operation;
use crate::dispatcher::{Demand, Lanes, OtherKernels, TaskId, TaskRequest};
use crate::governor::Hold;
use crate::objects::lock;
use crate::programs::Program;
use crate::vendor::ClResult;
use fpga_core::bitstream::Digest;
use fpga_protocol::v1;
use fpga_protocol::v1::call::Method;
use std::sync::Arc;

/// What is done when its image is on the board.
#[derive(Debug)]
pub(super) enum OnBoard {
    /// A program is made of its binaries.
    Load(Box<Load>),
    /// A call goes to the vendor; with the memory that is held for it.
    Call(Box<v1::Call>, Option<Hold>),
}

impl Session {
    /// Makes a program of its binaries: as a task where that loads the board.
    pub(super) fn load(&mut self, load: Box<Load>, used: &Use) {
        if self.shared.config.dispatcher.slots() > 1 {
            // A board of several slots is a model: the vendor has no image to lose.
            let (reply, _) = self.calls().load(*load);
            return self.answer(reply);
        }
        let images = load.images().to_vec();
        self.put_on_board(&images, OnBoard::Load(load), used);
    }

    /// Which images have to be on the board for this call; nothing where it can be done now.
    pub(super) fn images_for(&self, call: &v1::Call) -> Option<Vec<Digest>> {
        if !self.shared.config.board.is_whole() {
            return None;
        }
        let off_board = |program: Arc<Program>| program.is_off_board().then(|| program.digests().to_vec());
        let program = |id: u64| self.objects.program(id).ok().and_then(off_board);
        match call.method.as_ref()? {
            Method::BuildProgram(build) => program(build.program),
            Method::CompileProgram(compile) => program(compile.program),
            Method::LinkProgram(link) => link.programs.iter().find_map(|id| program(*id)),
            Method::CreateKernel(create) => program(create.program),
            Method::GetProgramBinaries(get) => program(get.program),
            Method::GetKernelSubGroupInfo(get) => {
                let kernel = self.objects.kernel(get.kernel).ok()?;
                let program = lock(&kernel).program.clone();
                off_board(program)
            }
            _ => None,
        }
    }

    /// Waits for the images as a task does. What the client says meanwhile waits.
    pub(super) fn put_on_board(&mut self, images: &[Digest], what: OnBoard, used: &Use) {
        let dispatcher = self.shared.config.dispatcher.clone();
        let task = dispatcher.new_task();
        let request = TaskRequest {
            session: self.id,
            task,
            tenant: self.tenant.clone(),
            demand: Demand::of(images.iter().copied(), OtherKernels::None),
            lanes: Lanes::Any,
            kind: None,
        };
        match dispatcher.submit(request) {
            Ok(grant) => {
                self.backlog.push(task, Vec::new());
                self.on_board = Some((task, what));
                self.building = Building::Yes;
                if let Some(grant) = grant {
                    self.grant(grant);
                }
            }
            Err(refusal) => {
                // Binaries for several devices: no board has them all.
                tracing::debug!(%refusal, "A call needs more images than the board has");
                // What fails has said so to the client.
                let _ = self.run_on_board(what, used);
            }
        }
    }

    /// The task has its slot, and the image is on the board, or is loaded by this.
    pub(super) fn on_board(&mut self, task: TaskId, what: OnBoard, used: &Use) {
        self.building = Building::No;
        if self.run_on_board(what, used).is_err() {
            self.shared.config.dispatcher.load_failed(task);
        }
        if self.building == Building::Yes {
            self.holds_for_build = Some(task);
        } else {
            self.task_ended(task);
        }
    }

    fn run_on_board(&mut self, what: OnBoard, used: &Use) -> ClResult<()> {
        match what {
            OnBoard::Load(load) => {
                let images = load.images().to_vec();
                let (reply, loaded) = self.calls().load(*load);
                self.shared.config.health.load_ended(&images, &loaded);
                self.answer(reply);
                loaded
            }
            OnBoard::Call(call, hold) => {
                if let Err(violation) = self.call_now(*call, used, hold) {
                    self.violation = Some(violation);
                }
                Ok(())
            }
        }
    }

    /// Loads the board with the image of the first task's kernels, where the grant says so and nobody else does.
    pub(super) fn load_first(&self) -> ClResult<()> {
        let config = &self.shared.config;
        let Some((grant, commands)) = self.backlog.first_with_contents() else { return Ok(()) };
        let loads_itself = self.on_board.as_ref().is_some_and(|(task, _)| *task == grant.task);
        if grant.load.is_empty() || loads_itself || config.board.is_whole() || config.dispatcher.slots() > 1 {
            return Ok(());
        }
        let program = commands.iter().find_map(|command| match &command.body.operation {
            Operation::Launch(launch) => {
                let program = lock(&launch.kernel).program.clone();
                let wanted = grant.load.iter().any(|load| program.digests().contains(&load.bitstream));
                wanted.then_some(program)
            }
            _ => None,
        });
        // Sources that count as bitstreams have no binary to load.
        let Some(program) = program else { return Ok(()) };
        let loaded = program.load_again();
        config.health.load_ended(program.digests(), &loaded);
        loaded
    }
}
