//! Clients that live and are not heard for long, since the manager or the board is busy: that is no silence. The board is an
//! emulated one, which is busy for as long as a test says.
//!
//! These clients answer pings within seconds of real time. What a lender makes of silence is tested on a paused clock beside it.

use super::{Pool, Worker, bitstream, source};
use crate::harness::Board;
use fpga_test_kit::until_async;
use std::cell::Cell;
use std::time::Duration;

/// Longer than a client may be silent.
const LONG: Duration = Duration::from_millis(6500);
const PARTIAL: [&str; 2] = ["--reconfiguration-time", "0ms"];
const FULL: [&str; 4] = ["--reconfiguration", "full", "--reconfiguration-time", "0ms"];

impl Pool {
    /// A pool with an emulated board, which is lent as a whole.
    async fn start_on(board: &Board, way: &[&str], args: &[&str]) -> Self {
        let args = [&["--pool-slots", "1"], way, args].concat();
        Self::start_by(|args| board.manager(args), &[bitstream(&source()).await], "", &args).await
    }

    /// Ends a lease whose client was there all the time.
    async fn ends(mut self, worker: Worker) {
        drop(worker);
        // A report of silence would come before.
        self.stream.freed().await;
    }
}

#[tokio::test]
#[ignore = "measures the machine: make test-timing"]
async fn a_client_keeps_its_slot_while_its_kernel_runs_for_long() {
    let board = Board::new();
    let mut pool = Pool::start_on(&board, &PARTIAL, &[]).await;
    let client = pool.holder(7, 0).await;
    let mut worker = Worker::new(client, &pool.bitstream, "increase").await;
    board.controls.never_end(true);
    let read = worker.step().await;
    let early = tokio::time::timeout(LONG, worker.client.status(read)).await;
    assert!(early.is_err(), "the kernel has ended");
    board.controls.never_end(false);
    worker.ends_well(read).await;
    pool.ends(worker).await;
}

#[tokio::test]
#[ignore = "measures the machine: make test-timing"]
async fn a_client_keeps_its_slot_while_the_manager_reads_nothing_since_its_budget_is_used_up() {
    /// Far more than the manager holds for a tenant, which is a sixth of the memory for clients.
    const FLUSHES: usize = 96;
    const WRITES: usize = 16;
    const BYTES: usize = 16 << 10;
    let board = Board::new();
    let mut pool = Pool::start_on(&board, &PARTIAL, &["--client-memory", "64MiB"]).await;
    let client = pool.holder(7, 0).await;
    let mut worker = Worker::new(client, &pool.bitstream, "increase").await;
    let much = worker.client.buffer(worker.context, BYTES as u64).await;
    board.controls.never_end(true);
    let read = worker.step().await;
    let mut flushes = Vec::new();
    for _ in 0..FLUSHES {
        let mut commands = Vec::new();
        for _ in 0..WRITES {
            commands.push(worker.client.write(worker.queue, much, vec![7; BYTES]).await);
        }
        flushes.push(commands);
    }
    let last = flushes[FLUSHES - 1][WRITES - 1].event;
    let sent = Cell::new(0);
    let sends = async {
        for commands in flushes {
            worker.client.flush(commands).await;
            sent.set(sent.get() + 1);
        }
    };
    let goes_on = async {
        tokio::time::sleep(LONG).await;
        let sent = sent.get();
        board.controls.never_end(false);
        sent
    };
    let ((), sent) = tokio::join!(sends, goes_on);
    assert!(sent < FLUSHES, "the manager has read everything");
    worker.ends_well(read).await;
    assert_eq!(worker.client.status(last).await, 0);
    pool.ends(worker).await;
}

#[tokio::test]
#[ignore = "measures the machine: make test-timing"]
async fn a_client_keeps_its_slot_while_the_board_waits_for_its_users_before_a_reconfiguration() {
    let board = Board::new();
    let mut pool = Pool::start_on(&board, &FULL, &[]).await;
    let mut client = pool.holder(7, 0).await;
    client.context().await;
    // The manager's own look at the board's health is a user of the board.
    board.controls.stuck(true);
    until_async("the manager to look", async || board.controls.held() > 0).await;
    let bitstream = pool.bitstream.clone();
    let goes_on = async {
        tokio::time::sleep(LONG).await;
        assert_eq!(board.controls.loads(), 0, "the board waits");
        board.controls.stuck(false);
    };
    let (mut worker, ()) = tokio::join!(Worker::new(client, &bitstream, "increase"), goes_on);
    let read = worker.step().await;
    worker.ends_well(read).await;
    pool.ends(worker).await;
}

#[tokio::test]
#[ignore = "measures the machine: make test-timing"]
async fn a_client_keeps_its_slot_while_its_bitstream_is_loaded_for_long() {
    for way in [&PARTIAL[..], &FULL[..]] {
        let board = Board::new();
        // Without looks at the board's health, which would come before the load.
        let mut pool = Pool::start_on(&board, way, &["--stuck-timeout", "0s"]).await;
        let client = pool.holder(7, 0).await;
        board.controls.stuck(true);
        let bitstream = pool.bitstream.clone();
        let goes_on = async {
            tokio::time::sleep(LONG).await;
            assert_eq!(board.controls.held(), 1, "the load waits");
            board.controls.stuck(false);
        };
        let (mut worker, ()) = tokio::join!(Worker::new(client, &bitstream, "increase"), goes_on);
        let read = worker.step().await;
        worker.ends_well(read).await;
        pool.ends(worker).await;
    }
}

#[tokio::test]
#[ignore = "measures the machine: make test-timing"]
async fn a_client_that_lives_keeps_its_slot_without_a_task() {
    let mut pool = Pool::start(&["--slots", "2", "--pool-slots", "1"]).await;
    let client = pool.holder(7, 0).await;
    tokio::time::sleep(LONG).await;
    let mut worker = Worker::new(client, &pool.bitstream, "increase").await;
    let read = worker.step().await;
    worker.ends_well(read).await;
}
