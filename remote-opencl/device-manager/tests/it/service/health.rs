//! The health of the device, as the manager reports it, with faults of the emulated board.

use crate::harness::{Board, Client, Manager};
use crate::service::board::{FULL, PARTIAL, Scaler, images, scalers};
use fpga_core::device::{DeviceAnswer, Health, Rotation};
use fpga_emulated_board::Controls;
use fpga_hook::Endpoint;
use fpga_test_kit::{CollectorStandIn, Shared, until_async};
use std::time::{Duration, Instant};

/// A stand-in for the collector.
pub struct Collector {
    seen: Shared,
    _stand_in: CollectorStandIn,
}

impl Collector {
    /// A collector, and its address.
    pub fn start() -> (Self, String) {
        let seen = Shared::default();
        let stand_in = CollectorStandIn::tcp(&seen);
        let Endpoint::Tcp(address) = &stand_in.endpoint else { panic!("a port has a TCP address") };
        let address = format!("http://{address}");
        (Self { seen, _stand_in: stand_in }, address)
    }

    /// Answers all further statuses so.
    pub fn answers(&self, rotation: Rotation) {
        self.seen.lock().unwrap().answer = DeviceAnswer { rotation: Some(rotation) };
    }

    /// Health of the device by the last status that the collector has received.
    fn health(&self) -> Option<Health> {
        let seen = self.seen.lock().unwrap();
        seen.devices.last()?.1.as_ref().map(|status| status.health)
    }

    /// Waits until the collector has received this health.
    pub async fn hears(&self, health: Health) {
        until_async(format!("the collector to hear that the device is {health:?}"), async || {
            self.health() == Some(health)
        })
        .await;
    }
}

#[tokio::test]
async fn a_board_that_can_not_be_loaded_is_unhealthy_until_a_load_succeeds() {
    let images = images(&[3, 5]).await;
    for way in [PARTIAL, FULL] {
        let board = Board::new();
        let (collector, address) = Collector::start();
        let manager = board.manager(&[way, &["--collector", &address]].concat());
        let mut sessions = scalers(&manager, &images).await;
        collector.hears(Health::Healthy).await;
        board.controls.fail_loads(true);
        for _ in 0..3 {
            assert!(sessions[0].round().await[0] < 0, "{way:?}");
        }
        collector.hears(Health::Unhealthy).await;
        manager.counts("fpga_device_manager_healthy 0").await;
        let ready = manager.get("/readyz");
        assert!(ready.status == 503 && ready.text.contains("can't be loaded"), "{ready:?}");
        assert_eq!(manager.get("/healthz").status, 200, "a new process would not help");
        board.controls.fail_loads(false);
        assert_eq!(sessions[0].round().await, [0, 0], "{way:?}");
        collector.hears(Health::Healthy).await;
        assert_eq!(manager.get("/readyz").status, 200);
    }
}

const TENANTS: [&str; 2] = ["alice", "bob"];

/// A folder of tokens for two tenants.
fn tokens() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in TENANTS {
        std::fs::write(folder.path().join(name), token(name)).unwrap();
    }
    folder
}

fn token(name: &str) -> String {
    format!("token-of-{name}-0123456789")
}

/// A session of each tenant with a kernel of this image, which multiplies by `factor`.
async fn sessions(manager: &Manager, image: &[u8], factor: i32) -> [Scaler; 2] {
    let session = async |name| {
        let client = Client::with_token(manager.channel().await, &token(name)).await;
        Scaler::of(client, image, factor).await
    };
    [session(TENANTS[0]).await, session(TENANTS[1]).await]
}

/// A board and its manager for each isolation: tenants within the manager's process, and tenants in processes
/// of their own. The second manager starts when the first pair has been dropped: a collector of both would not tell their
/// statuses apart.
fn ways(tokens: &tempfile::TempDir, more: &[&str]) -> impl Iterator<Item = (Board, Manager)> + use<> {
    let args = [PARTIAL, &["--tokens", tokens.path().to_str().unwrap()], more].concat();
    let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
    let starts: [fn(&Board, &[&str]) -> Manager; 2] = [Board::manager, Board::manager_of_processes];
    starts.into_iter().map(move |start| {
        let board = Board::new();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let manager = start(&board, &args);
        (board, manager)
    })
}

#[tokio::test]
async fn a_board_on_which_the_kernels_of_several_tenants_fail_is_unhealthy_until_one_runs() {
    let images = images(&[3]).await;
    let tokens = tokens();
    for (board, manager) in ways(&tokens, &[]) {
        let mut sessions = sessions(&manager, &images[0], 3).await;
        board.controls.fail_kernels(true);
        for _ in 0..20 {
            assert!(sessions[0].round().await[0] < 0);
        }
        manager.counts("fpga_device_manager_healthy 1").await;
        assert!(sessions[1].round().await[0] < 0);
        manager.counts("fpga_device_manager_healthy 0").await;
        board.controls.fail_kernels(false);
        assert_eq!(sessions[0].round().await, [0, 0]);
        manager.counts("fpga_device_manager_healthy 1").await;
    }
}

#[tokio::test]
async fn loads_that_fail_in_processes_of_several_tenants_make_a_board_unhealthy_and_those_of_one_do_not() {
    let images = images(&[3, 5]).await;
    let (tokens, board) = (tokens(), Board::new());
    let args = [PARTIAL, &["--tokens", tokens.path().to_str().unwrap()]].concat();
    let manager = board.manager_of_processes(&args);
    let [mut alice, _] = sessions(&manager, &images[0], 3).await;
    // The image that was loaded last is on the board: the other tenant's.
    let [_, mut bob] = sessions(&manager, &images[1], 5).await;
    for session in [&mut alice, &mut bob] {
        assert_eq!(session.round().await, [0, 0]);
    }
    board.controls.fail_loads(true);
    for _ in 0..10 {
        assert!(alice.round().await[0] < 0);
    }
    manager.counts("fpga_device_manager_healthy 1").await;
    assert!(bob.round().await[0] < 0);
    manager.counts("fpga_device_manager_healthy 0").await;
    board.controls.fail_loads(false);
    assert_eq!(alice.round().await, [0, 0]);
    manager.counts("fpga_device_manager_healthy 1").await;
}

#[tokio::test]
async fn a_runtime_that_hangs_or_ends_no_command_is_unhealthy_and_fails_the_liveness_check_until_it_does() {
    let images = images(&[3]).await;
    let tokens = tokens();
    let faults: [fn(Controls, bool); 2] = [Controls::stuck, Controls::never_end];
    for fault in faults {
        let (collector, address) = Collector::start();
        for (board, manager) in ways(&tokens, &["--collector", &address, "--stuck-timeout", "2s"]) {
            let [mut session, _] = sessions(&manager, &images[0], 3).await;
            assert_eq!(session.round().await, [0, 0]);
            collector.hears(Health::Healthy).await;
            fault(board.controls, true);
            collector.hears(Health::Unhealthy).await;
            let alive = manager.get("/healthz");
            assert!(alive.status == 503 && alive.text.contains("does not answer"), "{alive:?}");
            fault(board.controls, false);
            collector.hears(Health::Healthy).await;
            assert_eq!(manager.get("/healthz").status, 200);
            assert_eq!(session.round().await, [0, 0]);
        }
    }
}

#[tokio::test]
async fn a_command_that_never_ends_makes_the_device_unhealthy_by_the_deadline_and_ends_when_the_board_recovers()
 {
    let images = images(&[3]).await;
    let board = Board::new();
    let manager = board.manager(&[PARTIAL, &["--stuck-timeout", "2s"]].concat());
    let mut session = Scaler::new(&manager, &images[0], 3).await;
    assert_eq!(session.round().await, [0, 0]);
    board.controls.never_end(true);
    let held = session.start().await;
    manager.counts("fpga_device_manager_healthy 0").await;
    assert_eq!(board.controls.held(), 0, "no call hangs");
    let ready = manager.get("/readyz");
    assert!(ready.status == 503 && ready.text.contains("does not answer"), "{ready:?}");
    board.controls.never_end(false);
    assert_eq!(session.ended(held).await, [0, 0]);
    manager.counts("fpga_device_manager_healthy 1").await;
    assert_eq!(session.round().await, [0, 0]);
}

/// On a runtime of processors the probe's marker may wait for a thread, behind all kernels that are ready to run.
#[tokio::test]
async fn a_runtime_that_is_busy_with_kernels_that_end_is_not_stuck_until_none_ends() {
    const STUCK_TIMEOUT: Duration = Duration::from_secs(4);
    let images = images(&[3]).await;
    let board = Board::new();
    let manager = board.manager(&[PARTIAL, &["--stuck-timeout", "4s"]].concat());
    let mut session = Scaler::new(&manager, &images[0], 3).await;
    board.controls.hold_markers(true);
    let since = Instant::now();
    while since.elapsed() < 2 * STUCK_TIMEOUT {
        assert_eq!(session.round().await, [0, 0]);
        let text = manager.metrics_text();
        assert!(text.lines().any(|line| line == "fpga_device_manager_healthy 1"), "{text}");
    }
    manager.counts("fpga_device_manager_healthy 0").await;
    assert_eq!(session.round().await, [0, 0]);
    manager.counts("fpga_device_manager_healthy 1").await;
    board.controls.hold_markers(false);
    manager.counts("fpga_device_manager_healthy 1").await;
}
