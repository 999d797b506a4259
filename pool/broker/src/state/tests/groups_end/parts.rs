//! The parties of a world: what each is told, and how its actions are carried out.

use super::super::*;
use super::world::{Session, Task, World};
use fpga_pool_leases::client::{self, Job};
use fpga_pool_leases::manager;
use fpga_pool_leases::messages::{ClientToManager, ManagerToClient};

impl World {
    /// Time passes, and the parties hear of each other meanwhile.
    pub(super) fn pass(&mut self, time: Millis) {
        let sessions: Vec<(LeaseId, JobUuid, ConnectionId)> =
            self.sessions.iter().map(|(lease, of)| (*lease, of.job, of.connection)).collect();
        for (lease, job, connection) in sessions {
            self.tell_job(job, client::Event::ManagerAlive(lease));
            self.tell_manager(manager::Event::ClientAlive(connection));
        }
        let outputs = self.bench.pass(time);
        self.send(outputs);
        let now = self.bench.now.now;
        let actions = self.manager.tick(now);
        self.manager_acts(actions);
        for job in self.jobs.keys().copied().collect::<Vec<_>>() {
            let actions = self.jobs.get_mut(&job).map(|machine| machine.tick(now));
            self.job_acts(job, actions.unwrap_or_default());
            let actions = self.jobs.get_mut(&job).map(Job::ask_by_itself);
            self.job_acts(job, actions.unwrap_or_default());
        }
    }

    pub(super) fn tell_broker(&mut self, input: Input) {
        let outputs = self.bench.input(input);
        self.send(outputs);
    }

    pub(super) fn send(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::ToManager(_, message) => self.to_manager.push_back(message),
                Output::ToClient(_, message) => self.to_client.push_back(message),
                Output::Close(_) | Output::SwapTerm { .. } => panic!("{output:?}"),
            }
        }
    }

    pub(super) fn tell_manager(&mut self, event: manager::Event) {
        let actions = self.manager.handle(event, self.bench.now.now);
        self.manager_acts(actions);
    }

    fn manager_acts(&mut self, actions: Vec<manager::Action>) {
        use manager::Action;
        for action in actions {
            match action {
                Action::ToBroker(message) => self.from_manager.push_back(message),
                Action::ToClient(connection, message) => self.tell_session(connection, Some(message)),
                Action::CloseClient(connection) => self.tell_session(connection, None),
                Action::Load { slot, lease, .. } => self.tasks.push(Task::Load(slot, lease)),
                Action::Start { slot, lease, step } => self.tasks.push(Task::Step(slot, lease, step)),
                Action::Kill { .. } | Action::Probe(_) | Action::ReapChildren => {}
            }
        }
    }

    fn tell_session(&mut self, connection: ConnectionId, message: Option<ManagerToClient>) {
        if let Some(session) = self.sessions.values_mut().find(|session| session.connection == connection) {
            session.to_client.push_back(message);
        }
    }

    pub(super) fn tell_job(&mut self, job: JobUuid, event: client::Event) {
        let now = self.bench.now.now;
        let actions = self.jobs.get_mut(&job).map(|machine| machine.handle(event, now));
        self.job_acts(job, actions.unwrap_or_default());
    }

    fn job_acts(&mut self, job: JobUuid, actions: Vec<client::Action>) {
        use client::Action;
        for action in actions {
            match action {
                Action::ToBroker(message) => self.from_client.push_back(message),
                Action::Attach { lease, .. } => self.attach(job, lease),
                Action::Decline { lease, .. } => {
                    self.attach(job, lease);
                    self.close(lease);
                }
                // The end of the session releases the lease; the handshake attaches.
                Action::Deliver(_)
                | Action::ToManager(_, ClientToManager::Release { .. } | ClientToManager::Attach { .. }) => {}
                Action::ToManager(lease, message) => {
                    let session = self.sessions.get_mut(&lease).expect("a step goes by the lease's session");
                    session.to_manager.push_back(Some(message));
                }
                Action::CloseManager(lease) => self.close(lease),
                Action::Ended(_) => {
                    self.jobs.remove(&job);
                }
            }
        }
    }

    pub(super) fn attach(&mut self, job: JobUuid, lease: LeaseId) {
        let connection = ConnectionId(10_000 + self.number());
        let to_manager = VecDeque::from([Some(ClientToManager::Attach { lease })]);
        self.sessions.insert(lease, Session { connection, job, to_manager, to_client: VecDeque::new() });
    }

    pub(super) fn close(&mut self, lease: LeaseId) {
        if let Some(session) = self.sessions.get_mut(&lease) {
            session.to_manager.push_back(None);
        }
    }
}
