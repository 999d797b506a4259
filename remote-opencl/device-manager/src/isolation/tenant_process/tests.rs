//! What the manager takes from a process on a board that is reconfigured as a whole.

use super::*;
use fpga_board::slots::{SlotIndex, SlotLoad};
use fpga_board::whole_board::{Loaded, Round, Step, Word};
use fpga_session::governor::{Governor, Limits};

const LEAVE: Duration = Duration::from_secs(60);
const FOREVER: Duration = Duration::from_secs(1 << 30);

/// A process that was let in, and the board. The other end of its control socket stays open.
fn process() -> (Arc<TenantProcess>, Arc<SharedBoard>, OwnedFd) {
    let limits = Limits { lasting: 1 << 20, passing: 1 << 20 };
    let account = Governor::new(limits, limits).tenant();
    let board = Arc::<SharedBoard>::default();
    let (control, theirs) = Control::pair().unwrap();
    let process =
        Arc::new(TenantProcess::new(Tenant::new("mallory"), TASK_IDS, control, account, Some(board.clone())));
    board.joined(process.member(), process.clone());
    (process, board, theirs)
}

fn load(task: u64) -> Grant {
    let load = SlotLoad { slot: SlotIndex(0), bitstream: Digest::from_bytes([7; 32]) };
    Grant { session: SessionId(1), task: TaskId(task), slots: vec![load.slot], load: vec![load] }
}

fn overdue(process: &TenantProcess) -> Option<Step> {
    process.state.lock().overdue(FOREVER, LEAVE)
}

#[test]
fn a_process_that_answers_a_request_to_leave_that_it_was_not_given_breaks_the_protocol() {
    let (process, board, _theirs) = process();
    board.granted(process.member(), load(1));
    for unknown in [Round(0), Round(2)] {
        let said = process.said(Word::IsOff(unknown));
        assert!(matches!(said, Err(Violation::Round(_))), "{unknown:?}: {said:?}");
    }
    assert_eq!(overdue(&process), Some(Step::Leave(Round(1))), "the board still waits for it");
}

#[test]
fn a_process_that_loads_the_board_is_awaited_until_it_is_back() {
    let (process, board, _theirs) = process();
    board.granted(process.member(), load(1));
    process.said(Word::IsOff(Round(1))).unwrap();
    assert_eq!(overdue(&process), Some(Step::Load));
    assert!(board.ended(TaskId(1)), "the load was given up");
    assert_eq!(overdue(&process), Some(Step::Return));
    process.said(Word::IsBack(Loaded::No)).unwrap();
    assert_eq!(overdue(&process), None);
}
