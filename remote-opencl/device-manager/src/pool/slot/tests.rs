use super::*;
use bytes::Bytes;
use fpga_board::dispatch::TaskId;
use fpga_board::dispatch::policy::DispatchRules;
use fpga_session::dispatcher::{Admission, TaskUse};
use fpga_session::settings::{Current, Settings};
use fpga_session::store::BitstreamStore;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};

const FORMER: SessionId = SessionId(7);

/// Admits the tasks of a session until its lease ends, and the lender's always.
#[derive(Debug, Default)]
struct Lease {
    is_over: AtomicBool,
}

impl TaskWatch for Lease {
    fn starts(&self, session: SessionId, _: TaskId) -> Admission {
        let is_over = self.is_over.load(Ordering::Relaxed);
        if session == LENDER || !is_over { Admission::Admitted } else { Admission::Refused }
    }

    fn ended(&self, _: SessionId, _: TaskId, _: TaskUse) {}
}

fn of_former(dispatcher: &Dispatcher) -> TaskRequest {
    TaskRequest {
        session: FORMER,
        task: dispatcher.new_task(),
        tenant: Tenant::new("a"),
        demand: Demand::of([Digest::from_bytes([1; 32])], OtherKernels::None),
        lanes: Lanes::Any,
        kind: None,
        bytes: 0,
    }
}

#[tokio::test]
async fn a_load_waits_until_the_tasks_of_a_former_lease_have_left_the_slot() {
    let store = Arc::new(BitstreamStore::in_memory(1 << 20));
    let bitstream = store.insert(Bytes::from_static(b"a bitstream")).unwrap();
    let slots = NonZeroU32::new(2).unwrap();
    let board = Dispatcher::new(slots, DispatchRules::default(), Reports::off());
    let config = Config::without_listeners(board, Settings::new(Current::default()), store);
    let lease = Arc::new(Lease::default());
    let slot = LentSlot::new(&config, SlotIndex(1), lease.clone());
    let dispatcher = slot.dispatcher();
    let submits = || dispatcher.submit(of_former(dispatcher)).unwrap();
    let running: Vec<_> = std::iter::from_fn(submits).collect();
    for _ in 0..3 {
        assert_eq!(submits(), None, "the slot has as many tasks as it takes");
    }
    lease.is_over.store(true, Ordering::Relaxed);
    let ends = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(dispatcher.waiting(), 4);
        for grant in running {
            assert_eq!(dispatcher.finished(grant.task), []);
        }
    };
    let (outcome, ()) = tokio::join!(slot.load(&config, bitstream), ends);
    assert_eq!(outcome, LoadOutcome::Loaded);
    assert!(slot.is_idle());
}
