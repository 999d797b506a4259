//! Calls that need an image on the board. They wait for a slot like a task, and hold it until they have ended.
//!
//! Making a program from binaries loads a board that has a single image. And while a board that is reconfigured as
//! a whole has one image, the vendor has no programs of other images. So such a call becomes a task without
//! commands, and no call loads the board while another session's task runs on it.

use super::{BoardLoad, Building, Session, Submitted};
use crate::calls::{LoadedProgram, ProgramLoad, reply};
use crate::clock;
use crate::commands::Operation;
use crate::config::Loads;
use crate::governor::Hold;
use crate::programs::Program;
use crate::quiesce::InUse;
use crate::router::Input;
use fpga_board::dispatch::{Lanes, TaskRequest};
use fpga_board::slots::{Demand, OtherKernels};
use fpga_core::bitstream::Digest;
use fpga_protocol::v1;
use fpga_protocol::v1::call::Method;
use fpga_vendor::{ClError, ClResult};
use std::sync::Arc;

/// The work that starts once its image is on the board.
#[derive(Debug)]
pub(super) enum OnBoard {
    /// Makes a program from its binaries.
    Load(Box<ProgramLoad>),
    /// Makes a call to the vendor, with the memory that is held for it.
    Call(Box<v1::Call>, Option<Hold>),
}

impl Session {
    /// Makes a program from its binaries. If that loads the board, it becomes a task.
    pub(super) fn load(&mut self, load: Box<ProgramLoad>, used: &InUse) {
        if self.shared.config.loads == Loads::Simulated {
            let reply = self.calls().loaded(load.run());
            return self.answer(reply);
        }
        let images = load.images().to_vec();
        self.put_on_board(&images, OnBoard::Load(load), used);
    }

    /// The images that the board must have for this call; `None` if the call can be made now.
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
                let program = kernel.lock().program.clone();
                off_board(program)
            }
            _ => None,
        }
    }

    /// Queues a task that waits for the images. Later messages of the client wait for it.
    pub(super) fn put_on_board(&mut self, images: &[Digest], what: OnBoard, used: &InUse) {
        let dispatcher = self.shared.config.dispatcher.clone();
        let task = dispatcher.new_task();
        let request = TaskRequest {
            session: self.id,
            task,
            tenant: self.tenant.clone(),
            demand: Demand::of(images.iter().copied(), OtherKernels::None),
            lanes: Lanes::Any,
            kind: None,
            bytes: 0,
        };
        match dispatcher.submit(request) {
            Ok(grant) => {
                let now = clock::now_ns();
                self.traced.call_submitted(task, now);
                self.backlog.push(task, Submitted { commands: Vec::new(), at: now });
                self.on_board = Some((task, what));
                self.building = Building::Yes;
                if let Some(grant) = grant {
                    self.grant(grant);
                }
            }
            Err(refusal) => {
                // The program has binaries for several devices, and no board can have all these images.
                tracing::debug!(%refusal, "A call needs more images than the board has");
                // The reply to the client contains the error.
                match what {
                    OnBoard::Load(load) => self.program_made(load.run()),
                    OnBoard::Call(call, hold) => self.call_on_board(*call, hold, used),
                }
            }
        }
    }

    /// Does the work of the first task, which has its slot. The image is on the board, or this work loads it.
    pub(super) fn on_board(&mut self, what: OnBoard, used: &InUse) {
        match what {
            OnBoard::Load(load) => self.start_load(*load, used),
            OnBoard::Call(call, hold) => {
                self.building = Building::No;
                self.report_load(&Ok(()));
                self.call_on_board(*call, hold, used);
                let Some((task, _)) = self.backlog.pop() else { return };
                if self.building == Building::Yes {
                    self.holds_for_build = Some(task);
                } else {
                    self.task_ended(task);
                }
            }
        }
    }

    /// Makes the program of the first task, on a thread of its own: a board may take seconds to be loaded, and the
    /// session's thread answers the client's pings meanwhile. The task holds its slot until the load has ended.
    fn start_load(&mut self, load: ProgramLoad, used: &InUse) {
        let Some(grant) = self.backlog.first().cloned() else { return };
        let Some((task, _)) = self.backlog.pop() else { return };
        self.holds_for_build = Some(task);
        self.board_load = Some(BoardLoad { grant, loading: self.loading.take() });
        let (used, inbox, call) = (used.another(), self.inbox.clone(), load.call());
        let started = std::thread::Builder::new().name("load".to_owned()).spawn(move || {
            let loaded = load.run();
            drop(used);
            // The session waits for the load, so the inbox is open.
            let _ = inbox.send(Input::Loaded(Box::new(loaded)));
        });
        if let Err(error) = started {
            tracing::error!(%error, "No thread for a load: the program is not made");
            self.building = Building::No;
            self.board_load = None;
            // The slot does not have the image.
            self.shared.config.dispatcher.load_failed(task);
            self.answer(reply(call, Err(ClError::OUT_OF_HOST_MEMORY), None));
            self.end_held_task();
        }
    }

    /// Takes a program that was made on a thread of its own.
    pub(super) fn program_loaded(&mut self, loaded: LoadedProgram) {
        self.building = Building::No;
        self.program_made(loaded);
        self.end_held_task();
        self.start_granted();
    }

    /// Reports a load that has ended, and answers the call that wanted its program.
    fn program_made(&mut self, loaded: LoadedProgram) {
        self.load_ended(&loaded);
        let reply = self.calls().loaded(loaded);
        self.answer(reply);
    }

    /// Reports the end of a load that ran on its own thread.
    pub(super) fn load_ended(&mut self, loaded: &LoadedProgram) {
        let outcome = loaded.outcome();
        self.shared.config.health.load_ended(loaded.images(), &outcome);
        let Some(BoardLoad { grant, loading }) = self.board_load.take() else { return };
        if let Some(loading) = loading {
            self.report_load_of(&grant, loading, &outcome);
        }
        if outcome.is_err() {
            self.shared.config.dispatcher.load_failed(grant.task);
        }
    }

    /// Ends the task that has held its slot for a build or a load.
    pub(super) fn end_held_task(&mut self) {
        if let Some(task) = self.holds_for_build.take() {
            self.task_ended(task);
        }
    }

    fn call_on_board(&mut self, call: v1::Call, hold: Option<Hold>, used: &InUse) {
        if let Err(violation) = self.call_now(call, used, hold) {
            self.violation = Some(violation);
        }
    }

    /// Loads the board with the image of the first task's kernels, if the grant asks for it and no reconfiguration of
    /// the whole board does.
    pub(super) fn load_first(&self) -> ClResult<()> {
        let config = &self.shared.config;
        let Some((grant, Submitted { commands, .. })) = self.backlog.first_with_contents() else {
            return Ok(());
        };
        if grant.load.is_empty() || config.board.is_whole() || config.loads == Loads::Simulated {
            return Ok(());
        }
        let program = commands.iter().find_map(|command| match &command.body.operation {
            Operation::Launch(launch) => {
                let program = launch.kernel.lock().program.clone();
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
