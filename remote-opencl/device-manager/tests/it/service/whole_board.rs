//! A board that is reconfigured as a whole, with a process for each tenant: no process has a context of the board while
//! another one loads it, and whatever ends, the others go on.

use crate::harness::{Board, Client, Manager};
use crate::service::board::{Scaler, images};
use crate::service::health::Collector;
use fpga_core::device::Health;
use fpga_protocol::v1;
use fpga_protocol::v1::command::Operation;
use fpga_test_kit::processes::{children, runs};
use fpga_test_kit::{patience, until_async};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tonic::Code;

const TENANTS: [&str; 3] = ["alice", "bob", "carol"];

/// A board, its manager, and the tokens of the tenants.
struct Shared {
    board: Board,
    manager: Manager,
    _tokens: tempfile::TempDir,
}

impl Shared {
    fn new(args: &[&str]) -> Self {
        let tokens = tempfile::tempdir().unwrap();
        for name in TENANTS {
            std::fs::write(tokens.path().join(name), token(name)).unwrap();
        }
        let board = Board::new();
        let args = [&["--tokens", tokens.path().to_str().unwrap()], args].concat();
        let manager = board.manager_of_sharing_processes(&args);
        Self { board, manager, _tokens: tokens }
    }

    async fn client(&self, tenant: &str) -> Client {
        Client::with_token(self.manager.channel().await, &token(tenant)).await
    }

    async fn scaler(&self, tenant: &str, image: &[u8], factor: i32) -> Scaler {
        Scaler::of(self.client(tenant).await, image, factor).await
    }

    /// The process that a tenant's first session starts, and the session.
    async fn process_of(&self, tenant: &str, image: &[u8], factor: i32) -> (Pid, Scaler) {
        let before = children(self.manager.pid().as_raw().unsigned_abs());
        let scaler = self.scaler(tenant, image, factor).await;
        let is_new = |process: &u32| !before.contains(process);
        let new = children(self.manager.pid().as_raw().unsigned_abs())
            .into_iter()
            .find(is_new)
            .expect("the tenant has a process");
        (Pid::from_raw(new.try_into().unwrap()), scaler)
    }

    /// Checks that nobody was in anybody's way.
    fn is_calm(&self) {
        let controls = self.board.controls;
        assert_eq!(
            (controls.refused(), controls.busy()),
            (0, 0),
            "kernels of other images, loads beside contexts"
        );
    }
}

fn token(name: &str) -> String {
    format!("token-of-{name}-0123456789")
}

#[tokio::test]
async fn tenants_take_turns_on_a_board_that_their_processes_share() {
    let images = images(&[3, 5]).await;
    let shared = Shared::new(&[]);
    let mut sessions = [
        shared.scaler("alice", &images[0], 3).await,
        shared.scaler("bob", &images[1], 5).await,
        // The same image as alice's, in another process.
        shared.scaler("carol", &images[0], 3).await,
        shared.scaler("alice", &images[1], 5).await,
    ];
    for round in 0..24 {
        let which = [0, 1, 2, 1, 3, 0, 2, 2][round % 8];
        assert_eq!(sessions[which].round().await, [0, 0], "round {round}");
        if round == 12 {
            // Bob goes and comes again.
            sessions[1] = shared.scaler("bob", &images[1], 5).await;
        }
    }
    shared.is_calm();
    // The processes report their loads apart from the answers to their clients.
    let loads = shared.board.controls.loads();
    shared.manager.counts(&format!("fpga_device_manager_reconfigurations_total {loads}")).await;
}

#[tokio::test]
async fn rounds_of_all_tenants_at_the_same_time_end_well() {
    let images = images(&[3, 5]).await;
    let shared = Shared::new(&[]);
    let mut alice = shared.scaler("alice", &images[0], 3).await;
    let mut bob = shared.scaler("bob", &images[1], 5).await;
    let mut carol = shared.scaler("carol", &images[0], 3).await;
    for _ in 0..6 {
        let ended = tokio::join!(alice.round(), bob.round(), carol.round());
        assert_eq!(ended, ([0, 0], [0, 0], [0, 0]));
    }
    shared.is_calm();
}

#[tokio::test]
async fn a_process_that_is_killed_while_it_leaves_or_loads_costs_its_own_sessions_alone() {
    let images = images(&[3, 5]).await;
    for victim in ["the one that leaves", "the one that loads"] {
        let mut shared = Shared::new(&[]);
        let (alices, mut alice) = shared.process_of("alice", &images[0], 3).await;
        let (bobs, mut bob) = shared.process_of("bob", &images[1], 5).await;
        assert_eq!((alice.round().await, bob.round().await), ([0, 0], [0, 0]));
        // Both processes hang while they save their buffers for alice's load.
        shared.board.controls.stuck(true);
        let events = alice.start().await;
        until_async("both leave", async || shared.board.controls.held() >= 2).await;
        let (killed, lost, mut goes_on, events) = match victim {
            "the one that leaves" => (bobs, bob, alice, Some(events)),
            _ => (alices, alice, bob, None),
        };
        kill(killed, Signal::SIGKILL).unwrap();
        let status = tokio::time::timeout(patience(), lost.end()).await.expect("no hang");
        assert_eq!(status.expect("an error").code(), Code::Aborted, "{victim}");
        shared.board.controls.stuck(false);
        if let Some(events) = events {
            assert_eq!(goes_on.ended(events).await, [0, 0], "{victim}");
        }
        assert_eq!(goes_on.round().await, [0, 0], "{victim}");
        let mut again = shared.scaler("carol", &images[0], 3).await;
        assert_eq!((again.round().await, goes_on.round().await), ([0, 0], [0, 0]), "{victim}");
        shared.is_calm();
        drop((again, goes_on));
        shared.manager.has_no_session().await;
        assert!(shared.manager.terminate().success(), "{victim}");
    }
}

#[tokio::test]
async fn a_process_that_does_not_leave_the_board_in_time_is_ended_and_its_client_hears_why() {
    let images = images(&[3, 5]).await;
    // The probe's marker would hang, too. All processes have this time to leave the board, also bob's, which leaves.
    let shared = Shared::new(&["--abandoned-timeout", "5s", "--stuck-timeout", "0s"]);
    let mut bob = shared.scaler("bob", &images[1], 5).await;
    let before = children(shared.manager.pid().as_raw().unsigned_abs());
    let mut alice = shared.client("alice").await;
    let context = alice.context().await;
    let queue = alice.queue(context, 0).await;
    shared.board.controls.hold_markers(true);
    let marker = alice.command(queue, Operation::Marker(v1::Marker {}));
    // A buffer makes that the marker is enqueued before bob's task is there.
    let buffer = alice.buffer(context, 4).await;
    let write = alice.write(queue, buffer, crate::service::ints([1])).await;
    alice.flush(vec![marker, write]).await;
    let alices = children(shared.manager.pid().as_raw().unsigned_abs())
        .into_iter()
        .find(|process| !before.contains(process))
        .unwrap();
    let _ = alice.context().await;
    let carol = shared.scaler("carol", &images[0], 3);
    let hears = async { tokio::time::timeout(patience(), alice.end()).await.expect("no hang") };
    let (mut carol, status) = tokio::join!(carol, hears);
    let status = status.expect("an error");
    assert_eq!(status.code(), Code::Aborted);
    assert!(status.message().contains("did not leave it in time"), "{status}");
    until_async("the process has ended", async || !runs(alices)).await;
    shared.board.controls.hold_markers(false);
    assert_eq!((carol.round().await, bob.round().await), ([0, 0], [0, 0]));
    shared.is_calm();
}

#[tokio::test]
async fn a_process_that_stays_against_its_word_costs_others_loads_and_nobody_a_session() {
    let images = images(&[3, 5]).await;
    let (collector, address) = Collector::start();
    let shared = Shared::new(&["--collector", &address]);
    let mut alice = shared.scaler("alice", &images[1], 5).await;
    let mut bob = shared.scaler("bob", &images[1], 5).await;
    assert_eq!((alice.round().await, bob.round().await), ([0, 0], [0, 0]));
    let (carols, mut carol) = shared.process_of("carol", &images[0], 3).await;
    shared.board.controls.stays(carols.as_raw().unsigned_abs());
    for _ in 0..2 {
        for scaler in [&mut alice, &mut bob] {
            assert!(scaler.round().await[0] < 0, "another image while carol has a context");
        }
    }
    collector.hears(Health::Unhealthy).await;
    assert_eq!(carol.round().await, [0, 0], "her own image");
    kill(carols, Signal::SIGKILL).unwrap();
    let status = tokio::time::timeout(patience(), carol.end()).await.expect("no hang");
    assert_eq!(status.expect("an error").code(), Code::Aborted);
    // With what their buffers held before.
    assert_eq!((alice.round().await, bob.round().await), ([0, 0], [0, 0]));
    collector.hears(Health::Healthy).await;
    assert_eq!((shared.board.controls.refused(), shared.board.controls.busy()), (0, 4));
}
