use super::*;
use fpga_board::dispatch::{Kind, Lanes, Tenant};
use fpga_board::slots::Demand;
use fpga_board::slots::OtherKernels;
use std::sync::atomic::AtomicUsize;
use std::sync::mpsc;
use std::thread;

fn request(dispatcher: &Dispatcher, session: SessionId, bitstream: u8) -> TaskRequest {
    TaskRequest {
        session,
        task: dispatcher.new_task(),
        tenant: Tenant::new("uid:0"),
        lanes: Lanes::Any,
        kind: None,
        bytes: 0,
        demand: Demand::of([Digest::from_bytes([bitstream; 32])], OtherKernels::None),
    }
}

#[test]
fn a_waiting_task_of_another_session_is_granted_when_a_slot_gets_free() {
    let dispatcher = Dispatcher::new(NonZeroU32::MIN, DispatchRules::default(), Reports::off());
    let (a, b) = (dispatcher.new_session(), dispatcher.new_session());
    let first = dispatcher.submit(request(&dispatcher, a, 1)).unwrap().unwrap();
    assert_eq!(dispatcher.submit(request(&dispatcher, b, 2)).unwrap(), None);
    assert_eq!((dispatcher.waiting(), dispatcher.running()), (1, 1));
    let next = dispatcher.finished(first.task);
    assert_eq!((next.len(), next[0].session, next[0].load.len()), (1, b, 1));
    assert_eq!(dispatcher.finished(first.task), [], "told twice, nothing happens");
    dispatcher.finished(next[0].task);
    assert_eq!((dispatcher.waiting(), dispatcher.running()), (0, 0));
}

/// Takes tasks of one bitstream, and counts them.
#[derive(Debug, Default)]
struct OneBitstream(Arc<AtomicUsize>);

impl Above for OneBitstream {
    fn max_bitstreams(&self) -> usize {
        1
    }

    fn submit(&self, _: &TaskRequest) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn finished(&self, _: TaskId) {}

    fn cancelled(&self, _: SessionId) {}

    fn load_failed(&self, _: TaskId) {}
}

#[test]
fn a_task_with_more_bitstreams_than_another_process_takes_is_refused_here() {
    let submitted = Arc::default();
    let above = Box::new(OneBitstream(Arc::clone(&submitted)));
    let dispatcher = Dispatcher::below(NonZeroU32::new(4).unwrap(), 0, above);
    assert_eq!(dispatcher.max_bitstreams(), 1);
    let session = dispatcher.new_session();
    let digests = [1, 2].map(|n| Digest::from_bytes([n; 32]));
    let demand = Demand::of(digests, OtherKernels::None);
    let two = TaskRequest { demand, ..request(&dispatcher, session, 1) };
    assert_eq!(dispatcher.submit(two), Err(TaskRefusal::TooManyBitstreams { needed: 2, slots: 1 }));
    assert_eq!(dispatcher.submit(request(&dispatcher, session, 1)), Ok(None));
    assert_eq!(submitted.load(Ordering::Relaxed), 1);
}

/// Admits the tasks of one session, and keeps what it hears.
#[derive(Debug)]
struct Heard {
    admits: SessionId,
    heard: Mutex<Vec<(u64, Option<TaskUse>)>>,
}

impl TaskWatch for Heard {
    fn starts(&self, session: SessionId, task: TaskId) -> Admission {
        if session != self.admits {
            return Admission::Refused;
        }
        self.heard.lock().push((task.0, None));
        Admission::Admitted
    }

    fn ended(&self, _: SessionId, task: TaskId, used: TaskUse) {
        self.heard.lock().push((task.0, Some(used)));
    }
}

#[test]
fn the_tasks_of_a_lent_slot_are_told_of_and_use_no_other_slot() {
    let others = Dispatcher::new(NonZeroU32::new(3).unwrap(), DispatchRules::default(), Reports::off());
    let (a, holder) = (others.new_session(), others.new_session());
    let watch = Arc::new(Heard { admits: holder, heard: Mutex::default() });
    let lent = others.lent(SlotIndex(3), Reports::off(), watch.clone());
    assert_ne!(lent.new_session(), others.new_session());
    let kind = Some(Kind(1));
    let first = lent.submit(TaskRequest { bytes: 7, kind, ..request(&lent, holder, 1) }).unwrap().unwrap();
    assert_eq!((first.slots.as_slice(), first.load[0].slot), ([SlotIndex(3)].as_slice(), SlotIndex(3)));
    assert_eq!((others.running(), others.residency(Digest::from_bytes([1; 32]))), (0, Residency::Absent));
    assert_eq!(lent.submit(request(&lent, a, 2)).unwrap(), None, "the one slot is in use");
    assert_eq!(lent.finished(first.task), [], "another session is not admitted");
    assert_eq!(lent.submit(request(&lent, a, 2)), Err(TaskRefusal::NoSlot));
    assert_eq!((lent.running(), lent.waiting()), (0, 0));
    let heard = watch.heard.lock();
    let heard: Vec<_> =
        heard.iter().map(|(task, used)| (*task, used.map(|used| (used.bytes, used.work)))).collect();
    assert_eq!(heard, [(first.task.0, None), (first.task.0, Some((7, TaskWork::Kernels)))]);
}

#[test]
fn a_task_that_wants_the_slot_alone_gets_it_once_no_other_task_is_left_and_never_waits() {
    let dispatcher = Dispatcher::new(NonZeroU32::MIN, DispatchRules::default(), Reports::off());
    let (a, b) = (dispatcher.new_session(), dispatcher.new_session());
    let first = dispatcher.submit(request(&dispatcher, a, 1)).unwrap().unwrap();
    assert_eq!(dispatcher.submit_alone(request(&dispatcher, b, 2)), None);
    assert_eq!((dispatcher.waiting(), dispatcher.running()), (0, 1));
    assert_eq!(dispatcher.finished(first.task), []);
    let alone = dispatcher.submit_alone(request(&dispatcher, b, 2)).unwrap();
    assert_eq!((alone.session, alone.load.len(), dispatcher.running()), (b, 1, 1));
}

#[test]
fn the_tasks_of_a_lent_slot_that_run_no_kernel_are_told_apart() {
    let others = Dispatcher::new(NonZeroU32::MIN, DispatchRules::default(), Reports::off());
    let holder = others.new_session();
    let watch = Arc::new(Heard { admits: holder, heard: Mutex::default() });
    let lent = others.lent(SlotIndex(1), Reports::off(), watch.clone());
    let load = request(&lent, holder, 1);
    let transfers = TaskRequest { demand: Demand::Nothing, ..request(&lent, holder, 1) };
    for (request, work) in [(load, TaskWork::Load), (transfers, TaskWork::Transfers)] {
        let granted = lent.submit(request).unwrap().unwrap();
        lent.finished(granted.task);
        let (task, used) = watch.heard.lock().last().copied().unwrap();
        assert_eq!((task, used.map(|used| used.work)), (granted.task.0, Some(work)));
    }
}

#[test]
fn sessions_on_their_own_threads_all_get_their_turns() {
    const TASKS: usize = 200;
    let slots = NonZeroU32::new(2).unwrap();
    let rules = DispatchRules::of(fpga_board::dispatch::policy::DispatchPolicy::DeficitRoundRobin);
    let dispatcher = Arc::new(Dispatcher::new(slots, rules, Reports::off()));
    let mut inboxes = std::collections::HashMap::new();
    let mut sessions = Vec::new();
    for _ in 0..6 {
        let (sender, receiver) = mpsc::channel::<Grant>();
        let session = dispatcher.new_session();
        inboxes.insert(session, sender);
        sessions.push((session, receiver));
    }
    let inboxes = Arc::new(inboxes);
    let threads: Vec<_> = sessions
        .into_iter()
        .map(|(session, receiver)| {
            let (dispatcher, inboxes) = (Arc::clone(&dispatcher), Arc::clone(&inboxes));
            thread::spawn(move || {
                let pass_on = |grants: Vec<Grant>| {
                    for grant in grants {
                        // Sending fails if the session has ended, which then has no tasks.
                        let _ = inboxes[&grant.session].send(grant);
                    }
                };
                for n in 0..TASKS {
                    let bitstream = u8::try_from(n % 3).unwrap();
                    let grant = match dispatcher.submit(request(&dispatcher, session, bitstream)).unwrap() {
                        Some(grant) => grant,
                        None => receiver.recv_timeout(fpga_test_kit::patience()).unwrap(),
                    };
                    assert_eq!((grant.session, grant.slots.len()), (session, 1));
                    pass_on(dispatcher.finished(grant.task));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!((dispatcher.waiting(), dispatcher.running()), (0, 0));
}
