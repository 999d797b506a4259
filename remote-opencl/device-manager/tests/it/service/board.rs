//! A board that has one image at a time, counts loads, refuses kernels of other images, and fails when told
//! to.

use crate::harness::{Board, Client, Manager};
use crate::service::{ints, scalar};
use fpga_protocol::v1::kernel_arg::Value;

pub const PARTIAL: &[&str] = &["--reconfiguration-time", "0ms"];
pub const FULL: &[&str] = &["--reconfiguration", "full", "--reconfiguration-time", "0ms"];

/// One image for each factor, with a kernel that multiplies by it, and two that wait for each other.
pub async fn images(factors: &[i32]) -> Vec<Vec<u8>> {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let mut binaries = Vec::new();
    for factor in factors {
        let source = format!(
            "kernel void scale(global int *a, int summand) {{
                size_t i = get_global_id(0);
                a[i] = a[i] * {factor} + summand;
            }}
            kernel void wait_for(global volatile int *flag) {{ while (atomic_add(flag, 0) == 0) {{}} }}
            kernel void set(global volatile int *flag) {{ atomic_xchg(flag, 1); }}"
        );
        let program = client.source(context, &source).await;
        assert_eq!(client.build(program).await.0, 0);
        binaries.push(client.binary(program).await);
    }
    binaries
}

fn reconfigurations(manager: &Manager) -> u64 {
    let text = manager.metrics_text();
    let line = text.lines().find_map(|line| line.strip_prefix("fpga_device_manager_reconfigurations_total "));
    line.unwrap().parse().unwrap()
}

/// A session with a kernel of one image.
pub struct Scaler {
    client: Client,
    queue: u64,
    kernel: u64,
    buffer: u64,
    factor: i32,
    value: i32,
}

impl Scaler {
    pub async fn new(manager: &Manager, image: &[u8], factor: i32) -> Self {
        Self::of(Client::connect(manager).await, image, factor).await
    }

    pub async fn of(mut client: Client, image: &[u8], factor: i32) -> Self {
        let context = client.context().await;
        let queue = client.queue(context, 0).await;
        let (program, _) = client.program_from(context, image).await;
        let kernel = client.kernel(program, "scale").await;
        let buffer = client.buffer(context, 4).await;
        Self { client, queue, kernel, buffer, factor, value: 0 }
    }

    /// Runs a launch and a read of its result; returns both statuses.
    pub async fn round(&mut self) -> [i32; 2] {
        let events = self.start().await;
        self.ended(events).await
    }

    /// Flushes a round's launch and read; returns their events.
    pub async fn start(&mut self) -> [u64; 2] {
        let args = vec![Value::Buffer(self.buffer), scalar(&1_i32.to_le_bytes())];
        let launch = self.client.launch(self.queue, self.kernel, args, 1);
        let read = self.client.read(self.queue, self.buffer, 4);
        let events = [launch.event, read.event];
        self.client.flush(vec![launch, read]).await;
        events
    }

    /// The status with which the session ends.
    pub async fn end(self) -> Option<tonic::Status> {
        self.client.end().await
    }

    /// Waits until a round has ended; returns both statuses.
    pub async fn ended(&mut self, events: [u64; 2]) -> [i32; 2] {
        let launched = self.client.status(events[0]).await;
        let (read, data) = self.client.completion(events[1]).await;
        if launched == 0 {
            self.value = self.value.wrapping_mul(self.factor).wrapping_add(1);
            assert_eq!(data, ints([self.value]));
        }
        [launched, read.status]
    }
}

/// Two sessions, one for each of two images with the factors 3 and 5.
pub async fn scalers(manager: &Manager, images: &[Vec<u8>]) -> [Scaler; 2] {
    [Scaler::new(manager, &images[0], 3).await, Scaler::new(manager, &images[1], 5).await]
}

#[tokio::test]
async fn each_image_is_on_the_board_when_its_kernels_run_and_is_loaded_no_oftener_than_the_dispatch_says() {
    let images = images(&[3, 5]).await;
    for way in [PARTIAL, FULL] {
        let board = Board::new();
        let manager = board.manager(way);
        // Both programs exist before either runs.
        let mut sessions = scalers(&manager, &images).await;
        for which in [0, 1, 1, 0, 0, 1, 0] {
            assert_eq!(sessions[which].round().await, [0, 0], "{way:?}");
        }
        assert_eq!(board.controls.refused(), 0, "{way:?}");
        assert_eq!(board.controls.loads(), reconfigurations(&manager), "{way:?}");
    }
}

#[tokio::test]
async fn a_program_that_is_made_while_a_kernel_of_another_image_runs_waits_for_the_board() {
    let images = images(&[3, 5]).await;
    for way in [PARTIAL, FULL] {
        let board = Board::new();
        let manager = board.manager(way);
        let mut runs = Client::connect(&manager).await;
        let context = runs.context().await;
        let queues = [runs.queue(context, 0).await, runs.queue(context, 0).await];
        let (program, _) = runs.program_from(context, &images[0]).await;
        let (waits, sets) = (runs.kernel(program, "wait_for").await, runs.kernel(program, "set").await);
        let flag = runs.buffer(context, 4).await;
        let launch = runs.launch(queues[0], waits, vec![Value::Buffer(flag)], 1);
        let running = launch.event;
        runs.flush(vec![launch]).await;
        manager.counts("fpga_device_manager_slots_in_use 1").await;
        let make = Scaler::new(&manager, &images[1], 5);
        let end = async {
            manager.counts("fpga_device_manager_tasks_waiting 1").await;
            assert_eq!(board.controls.loads(), 1, "{way:?}: the kernel's image is on the board");
            let launch = runs.launch(queues[1], sets, vec![Value::Buffer(flag)], 1);
            let set = launch.event;
            runs.flush(vec![launch]).await;
            assert_eq!([runs.status(set).await, runs.status(running).await], [0, 0], "{way:?}");
        };
        let (mut made, ()) = tokio::join!(make, end);
        assert_eq!(made.round().await, [0, 0], "{way:?}");
        assert_eq!((board.controls.loads(), board.controls.refused()), (2, 0), "{way:?}");
    }
}

#[tokio::test]
async fn programs_of_images_that_are_off_the_board_are_built_queried_and_released_as_ever() {
    let images = images(&[3, 5]).await;
    let board = Board::new();
    let mut manager = board.manager(FULL);
    let mut one = Client::connect(&manager).await;
    let context = one.context().await;
    let (program, _) = one.unbuilt_program_from(context, &images[0]).await;
    let mut other = Scaler::new(&manager, &images[1], 5).await;
    assert_eq!(other.round().await, [0, 0]);
    // The other image is on the board now.
    assert_eq!(one.build(program).await.0, 0);
    assert_eq!(other.round().await, [0, 0]);
    let kernel = one.kernel(program, "scale").await;
    assert_eq!(other.round().await, [0, 0]);
    assert!(!one.binary(program).await.is_empty());
    assert_eq!(board.controls.loads(), 7, "each of these needed the board");
    let (queue, buffer) = (one.queue(context, 0).await, one.buffer(context, 4).await);
    let mut one = Scaler { client: one, queue, kernel, buffer, factor: 3, value: 0 };
    for _ in 0..2 {
        assert_eq!(one.round().await, [0, 0]);
        assert_eq!(other.round().await, [0, 0]);
    }
    assert_eq!(board.controls.refused(), 0);
    drop((one, other));
    manager.has_no_session().await;
    assert!(manager.terminate().success());
}

#[tokio::test]
async fn a_load_that_fails_fails_its_task_and_is_done_again_for_the_next() {
    let images = images(&[3, 5]).await;
    for way in [PARTIAL, FULL] {
        let board = Board::new();
        let manager = board.manager(way);
        let mut sessions = scalers(&manager, &images).await;
        board.controls.fail_loads(true);
        let [launched, _] = sessions[0].round().await;
        assert!(launched < 0, "{way:?}: {launched}");
        board.controls.fail_loads(false);
        for which in [0, 1, 0] {
            assert_eq!(sessions[which].round().await, [0, 0], "{way:?}");
        }
        assert_eq!(board.controls.refused(), 0, "{way:?}");
    }
}
