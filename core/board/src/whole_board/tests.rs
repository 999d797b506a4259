//! Manager and processes in random orders, with messages that wait on their ways and processes that end at any step.

use super::*;
use crate::slots::{SessionId, SlotIndex, SlotLoad};
use proptest::prelude::*;
use std::time::Duration;

/// A process, with the threads that its presence drives.
#[derive(Debug, Default)]
struct Process {
    presence: Presence,
    /// What the manager waits for.
    deadline: MemberDeadline,
    /// Whether it has been told to return for the first time.
    has_begun: bool,
    /// Whether it has objects of the vendor; while they are made again, too.
    has_objects: bool,
    to_process: VecDeque<Order>,
    to_manager: VecDeque<Word>,
    /// Work of its own thread.
    work: Option<Work>,
    /// A load, with the work of its thread.
    load: Option<(LoadTicket, TaskId, Digest, Option<LoadWork>)>,
    /// Tasks of its session that have not started yet, in their order.
    backlog: VecDeque<Grant>,
    /// Tasks that run.
    running: VecDeque<TaskId>,
    users: usize,
}

#[derive(Debug, Default)]
struct World {
    board: WholeBoard,
    processes: BTreeMap<MemberId, Process>,
    /// The task that has the slot.
    granted: Option<(MemberId, TaskId)>,
    tasks: u64,
    joined: u64,
    /// The image on the board; `None` if it is unknown.
    image: Option<Digest>,
    /// The image that the last load put on the board; `None` while one loads, and when the loading process was ended.
    on_board: Option<Digest>,
}

#[derive(Debug, Clone)]
enum Step {
    Join,
    Kill(usize),
    /// The dispatch grants the slot to a task of a process, for this image.
    Grant(usize, u8),
    /// The dispatch grants a task without kernels, which needs no slot.
    Transfer(usize),
    /// A session starts its next task.
    Go(usize),
    /// A message arrives at a process, or at the manager.
    ToProcess(usize),
    ToManager(usize),
    /// A user tries to come in, or leaves.
    Enter(usize),
    Exit(usize),
    /// The process's own thread takes its next step.
    Work(usize),
    /// The thread of a load takes its next step.
    LoadWork(usize),
    /// A session ends before its load begins.
    GivesUp(usize),
    /// A task ends.
    TaskEnds(usize),
}

fn image(number: u8) -> Digest {
    Digest::from_bytes([number; 32])
}

impl World {
    fn send(&mut self, orders: Orders) {
        for (member, order) in orders {
            let process = self.processes.get_mut(&member).expect("a member is a process");
            process.deadline.ordered(&order, Duration::ZERO);
            process.to_process.push_back(order);
        }
    }

    fn at(&self, index: usize) -> Option<MemberId> {
        self.processes.keys().nth(index % self.processes.len().max(1)).copied()
    }

    /// Checks that nobody else has objects while `loader` loads.
    fn loads_alone(&self, loader: MemberId) {
        for (member, process) in &self.processes {
            assert!(
                *member == loader || !process.has_objects,
                "{member:?} has objects while {loader:?} loads"
            );
            assert!(process.users == 0, "{member:?} is used while {loader:?} loads");
            assert!(process.running.is_empty(), "{member:?} runs a task while {loader:?} loads");
        }
    }

    fn task_ended(&mut self, task: TaskId) {
        if self.granted.is_some_and(|(_, granted)| granted == task) {
            self.granted = None;
        }
        let (gave_up, orders) = self.board.ended(task);
        if gave_up {
            self.image = None;
        }
        self.send(orders);
    }

    /// A grant of a new task to a process.
    fn grant(&mut self, member: MemberId, slots: Vec<SlotIndex>, load: Vec<SlotLoad>) {
        self.tasks += 1;
        let task = TaskId(self.tasks);
        let orders = self.board.granted(member, Grant { session: SessionId(1), task, slots, load });
        self.send(orders);
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Join => {
                if self.processes.len() < 4 {
                    self.joined += 1;
                    let member = MemberId(self.joined);
                    self.processes.insert(member, Process::default());
                    let orders = self.board.joined(member);
                    self.send(orders);
                }
            }
            Step::Kill(index) => {
                let Some(member) = self.at(index) else { return };
                let process = self.processes.remove(&member).unwrap();
                if process.load.is_some_and(|(_, _, _, work)| matches!(work, Some(LoadWork::Restore))) {
                    self.on_board = None;
                }
                let orders = self.board.left(member);
                self.send(orders);
                if let Some((_, task)) = self.granted.filter(|(of, _)| *of == member) {
                    self.image = None;
                    self.task_ended(task);
                }
            }
            Step::Grant(index, number) => {
                let Some(member) = self.at(index).filter(|member| self.processes[member].has_begun) else {
                    return;
                };
                if self.granted.is_some() {
                    return;
                }
                let (slot, bitstream) = (SlotIndex(0), image(number));
                let load =
                    if self.image == Some(bitstream) { vec![] } else { vec![SlotLoad { slot, bitstream }] };
                // The dispatch counts the image as there from the grant on.
                self.image = Some(bitstream);
                self.granted = Some((member, TaskId(self.tasks + 1)));
                self.grant(member, vec![slot], load);
            }
            Step::Transfer(index) => {
                if let Some(member) = self.at(index).filter(|member| self.processes[member].has_begun) {
                    self.grant(member, Vec::new(), Vec::new());
                }
            }
            Step::Go(index) => self.on(index, Process::goes),
            Step::Enter(index) => self.on(index, |process| {
                if process.has_begun && process.presence.enter() {
                    assert!(!process.presence.is_off(), "a user is in without objects");
                    process.users += 1;
                    process.has_objects = true;
                }
            }),
            Step::Exit(index) => self.on(index, |process| {
                if process.users > 0 {
                    process.users -= 1;
                    process.presence.exit();
                }
            }),
            Step::ToProcess(index) => self.receive(index),
            Step::ToManager(index) => {
                let Some(member) = self.at(index) else { return };
                let process = self.processes.get_mut(&member).unwrap();
                let Some(word) = process.to_manager.pop_front() else { return };
                process.deadline.said(word).expect("a process keeps to the protocol");
                let orders = match word {
                    Word::IsOff(round) => self.board.is_off(member, round),
                    Word::IsBack(loaded) => self.board.is_back(member, loaded),
                };
                self.send(orders);
            }
            Step::Work(index) => {
                let on_board = self.on_board;
                self.on(index, |process| process.works(on_board));
            }
            Step::LoadWork(index) => self.load_works(index),
            Step::GivesUp(index) => {
                let Some(member) = self.at(index) else { return };
                // The process has the grant, and no thread for the load yet.
                let last = self.processes.get_mut(&member).unwrap().backlog.pop_back();
                if let Some(grant) = last {
                    self.task_ended(grant.task);
                }
            }
            Step::TaskEnds(index) => {
                let Some(member) = self.at(index) else { return };
                let process = self.processes.get_mut(&member).unwrap();
                if let Some(task) = process.running.pop_front() {
                    process.presence.exit();
                    self.task_ended(task);
                }
            }
        }
    }

    fn on(&mut self, index: usize, act: impl FnOnce(&mut Process)) {
        let Some(member) = self.at(index) else { return };
        act(self.processes.get_mut(&member).unwrap());
    }

    fn receive(&mut self, index: usize) {
        let Some(member) = self.at(index) else { return };
        let process = self.processes.get_mut(&member).unwrap();
        let Some(order) = process.to_process.pop_front() else { return };
        match order {
            Order::Leave(round) => process.presence.leave(round),
            Order::Return(images) => {
                process.has_begun = true;
                process.presence.may_return(images);
            }
            Order::Start(grant) => process.backlog.push_back(grant),
        }
    }

    /// The thread of a load: it begins a piece of work, or ends one.
    fn load_works(&mut self, index: usize) {
        let Some(member) = self.at(index) else { return };
        let process = self.processes.get_mut(&member).unwrap();
        let Some((ticket, task, image, work)) = process.load.take() else { return };
        match work {
            None => {
                let work = process.presence.loads_work();
                let loads = work == Some(LoadWork::Restore);
                process.has_objects |= loads;
                process.load = Some((ticket, task, image, work));
                if loads {
                    self.on_board = None;
                    self.loads_alone(member);
                }
            }
            Some(LoadWork::Release) => {
                process.presence.released();
                process.has_objects = false;
                process.load = Some((ticket, task, image, None));
            }
            Some(LoadWork::Restore) => {
                process.presence.restored();
                process.to_manager.extend(process.presence.load_ends(ticket, Loaded::Yes));
                assert!(process.presence.enter(), "the load's own task comes in");
                process.running.push_back(task);
                self.on_board = Some(image);
            }
        }
    }

    /// Lets everything happen that can happen without new tasks and users.
    fn settle(&mut self) {
        for _ in 0..60 {
            for index in 0..self.processes.len() {
                for step in
                    [Step::Exit(index), Step::ToProcess(index), Step::Work(index), Step::LoadWork(index)]
                {
                    self.step(&step);
                }
                for step in [Step::Go(index), Step::TaskEnds(index), Step::ToManager(index)] {
                    self.step(&step);
                }
            }
        }
    }
}

impl Process {
    /// Starts the session's next task, if the board lets it in, or begins with its load.
    fn goes(&mut self) {
        let Some(grant) = self.backlog.front() else { return };
        if self.load.is_some() {
            return;
        }
        if let Some(load) = grant.load.first() {
            self.load = Some((self.presence.load_begins(), grant.task, load.bitstream, None));
            self.backlog.pop_front();
        } else if self.presence.enter() {
            self.running.push_back(grant.task);
            self.backlog.pop_front();
            self.has_objects = true;
        }
    }

    /// The process's own thread begins a piece of work, or ends one.
    fn works(&mut self, on_board: Option<Digest>) {
        match self.work.take() {
            None => {
                self.work = self.presence.work();
                if let Some(Work::Restore(images)) = &self.work {
                    self.has_objects = true;
                    assert!(
                        images.iter().all(|image| on_board == Some(*image)),
                        "{images:?} on {on_board:?}"
                    );
                }
            }
            Some(Work::Release) => {
                self.presence.released();
                self.has_objects = false;
            }
            Some(Work::Restore(_)) => self.presence.restored(),
            Some(Work::Say(word)) => self.to_manager.push_back(word),
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let which = 0..4_usize;
    let step = prop_oneof![
        2 => Just(Step::Join),
        1 => which.clone().prop_map(Step::Kill),
        4 => (which.clone(), 1..4_u8).prop_map(|(index, image)| Step::Grant(index, image)),
        4 => which.clone().prop_map(Step::Transfer),
        12 => which.clone().prop_map(Step::Go),
        12 => which.clone().prop_map(Step::ToProcess),
        12 => which.clone().prop_map(Step::ToManager),
        6 => which.clone().prop_map(Step::Enter),
        6 => which.clone().prop_map(Step::Exit),
        12 => which.clone().prop_map(Step::Work),
        12 => which.clone().prop_map(Step::LoadWork),
        1 => which.clone().prop_map(Step::GivesUp),
        4 => which.prop_map(Step::TaskEnds),
    ];
    prop::collection::vec(step, 0..300)
}

proptest! {
    #[test]
    fn a_process_loads_alone_and_all_come_in_again_whatever_ends_when(steps in steps()) {
        let mut world = World::default();
        for step in &steps {
            world.step(step);
        }
        world.settle();
        prop_assert_eq!(world.granted, None, "the last task never ended: {:?}", world);
        prop_assert!(world.board.running.is_empty(), "{:?}", world);
        prop_assert!(matches!(world.board.phase, Phase::Open), "{:?}", world);
        for index in 0..world.processes.len() {
            world.step(&Step::Enter(index));
        }
        for _ in 0..4 {
            (0..world.processes.len()).for_each(|index| world.step(&Step::Work(index)));
        }
        let limits = TimeLimits { leave: Duration::ZERO, load: Duration::ZERO };
        for (member, process) in &mut world.processes {
            prop_assert_eq!(process.deadline.overdue(Duration::MAX, limits), None, "{:?} is awaited", member);
            prop_assert!(process.has_begun && process.presence.enter(), "{member:?} stays out: {process:?}");
        }
    }
}

#[test]
fn grants_of_a_session_follow_its_load_in_their_order_and_those_of_others_do_not_wait() {
    let mut board = WholeBoard::default();
    let [one, two] = [MemberId(1), MemberId(2)];
    let _ = (board.joined(one), board.joined(two));
    let grant_of = |session, task, load: &[u8]| Grant {
        session: SessionId(session),
        task: TaskId(task),
        slots: Vec::new(),
        load: load.iter().map(|number| SlotLoad { slot: SlotIndex(0), bitstream: image(*number) }).collect(),
    };
    let grant = |task, load: &[u8]| grant_of(1, task, load);
    let leave = board.granted(one, grant(1, &[7]));
    assert_eq!(leave, [(one, Order::Leave(Round(1))), (two, Order::Leave(Round(1)))]);
    assert_eq!(board.granted(one, grant(2, &[])), []);
    assert_eq!(board.granted(two, grant(3, &[])), [(two, Order::Start(grant(3, &[])))]);
    let of_other_session = grant_of(2, 4, &[]);
    assert_eq!(board.granted(one, of_other_session.clone()), [(one, Order::Start(of_other_session))]);
    assert_eq!(board.is_off(one, Round(1)), []);
    assert_eq!(board.is_off(two, Round(0)), [], "an answer to an older request");
    let start = [(one, Order::Start(grant(1, &[7]))), (one, Order::Start(grant(2, &[])))];
    assert_eq!(board.is_off(two, Round(1)), start);
    assert_eq!(board.is_back(two, Loaded::Yes), [], "it is not the one that loads");
    let back = [(two, Order::Return(vec![image(7)]))];
    assert_eq!(board.is_back(one, Loaded::Yes), back);
}
