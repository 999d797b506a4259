//! The gate of a cluster: the node plugin decides, by allocations and library. The board is reconfigured as a whole, has
//! one image at a time, and counts the kernels that would run on a wrong one.

use super::node::{Container, Node, session};
use super::{REFUSED, announce};
use crate::harness::{Client, Manager, binaries_result};
use crate::service::board::{Scaler, images};
use fpga_protocol::v1::kernel_arg::Value;
use fpga_test_kit::{metrics, patience, until_async};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const CART: Container = Container { namespace: "shop", pod: "cart", board: "dm0" };
const WHEEL: Container = Container { namespace: "mill", pod: "wheel", board: "dm0" };
const ELSEWHERE: Container = Container { namespace: "shop", pod: "elsewhere", board: "dm1" };

/// The reason for which a session of the token may not have the bitstream; empty if it may.
async fn refusal(manager: &Manager, token: &str, image: &[u8]) -> String {
    let mut client = Client::with_token(manager.channel().await, token).await;
    let context = client.context().await;
    refusal_of(&mut client, context, image).await
}

async fn refusal_of(client: &mut Client, context: u64, image: &[u8]) -> String {
    let reply = announce(client, context, image).await;
    let refusal = binaries_result(&reply).refusal.clone();
    assert_eq!(reply.status == REFUSED, !refusal.is_empty(), "{refusal}");
    refusal
}

/// Waits until the plugin knows the board, and lets the container have the image.
async fn is_allowed(manager: &Manager, container: &Container, image: &[u8]) {
    until_async("the bitstream is allowed", async || {
        refusal(manager, &container.token(), image).await.is_empty()
    })
    .await;
}

/// A session whose kernel runs until it is ended.
struct Running {
    client: Client,
    /// The queue of a second kernel, which ends the first one.
    queue: u64,
    sets: u64,
    flag: u64,
    event: u64,
}

impl Running {
    /// Begins to run a kernel of the image, one of [`images`], in a session of the container.
    async fn of(manager: &Manager, container: &Container, image: &[u8]) -> Self {
        let mut client = session(manager, container).await;
        let context = client.context().await;
        let queues = [client.queue(context, 0).await, client.queue(context, 0).await];
        let (program, _) = client.program_from(context, image).await;
        let (waits, sets) = (client.kernel(program, "wait_for").await, client.kernel(program, "set").await);
        let flag = client.buffer(context, 4).await;
        let launch = client.launch(queues[0], waits, vec![Value::Buffer(flag)], 1);
        let event = launch.event;
        client.flush(vec![launch]).await;
        manager.counts("fpga_device_manager_slots_in_use 1").await;
        Self { client, queue: queues[1], sets, flag, event }
    }

    /// Lets the kernel end, and returns the session.
    async fn end(self, manager: &Manager) -> Client {
        let Self { mut client, queue, sets, flag, event } = self;
        let launch = client.launch(queue, sets, vec![Value::Buffer(flag)], 1);
        let set = launch.event;
        client.flush(vec![launch]).await;
        assert_eq!([client.status(set).await, client.status(event).await], [0, 0]);
        manager.counts("fpga_device_manager_slots_in_use 0").await;
        client
    }
}

/// Lets both pods compute in turns: cart in a new session with the second image, wheel in this one with the first image. Their
/// factors are those of the images.
async fn compute_in_turns(node: &Node, manager: &Manager, wheel: Client, images: &[Vec<u8>]) {
    let mut cart = Scaler::of(session(manager, &CART).await, &images[1], 5).await;
    let mut wheel = Scaler::of(wheel, &images[0], 3).await;
    for _ in 0..3 {
        assert_eq!([cart.round().await, wheel.round().await], [[0, 0]; 2]);
    }
    assert_eq!(node.board.controls.refused(), 0, "no kernel ran on a wrong image");
}

/// Waits until the tasks of both pods count for their workloads, as the plugin names them.
async fn workloads_are_counted(manager: &Manager) {
    for (tenant, workload) in [("shop", "deployment-of-cart"), ("mill", "deployment-of-wheel")] {
        let labels = format!("{{tenant=\"{tenant}\",workload=\"{workload}\"}} ");
        until_async(format!("tasks of {workload} are counted"), async || {
            let text = manager.metrics_text();
            let counts = |metric| {
                metrics::sum(&text, &format!("fpga_device_manager_workload_{metric}_total{labels}")) > 0.0
            };
            counts("tasks") && counts("device_seconds")
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_has_what_the_library_lists_for_it_on_its_own_board_and_nothing_else() {
    let images = images(&[3, 5, 7]).await;
    let node = Node::start(&[&CART, &WHEEL, &ELSEWHERE]).await;
    node.api.apply(None, "sobel", &images[0]);
    node.api.apply(Some("mill"), "own", &images[1]);
    let manager = node.manager("30s");
    is_allowed(&manager, &CART, &images[0]).await;
    let mut cart = Scaler::of(session(&manager, &CART).await, &images[0], 3).await;
    assert_eq!(cart.round().await, [0, 0]);

    // Another tenant's bitstream, on the board or not.
    let of_mill = refusal(&manager, &CART.token(), &images[1]).await;
    assert!(of_mill.contains("no bitstream with this digest for pods of the namespace shop"), "{of_mill}");
    let mut wheel = Scaler::of(session(&manager, &WHEEL).await, &images[1], 5).await;
    assert_eq!(wheel.round().await, [0, 0]);
    let resident = refusal(&manager, &CART.token(), &images[1]).await;
    assert!(resident.contains("no bitstream with this digest"), "{resident}");

    // Tokens that the plugin did not give to a container of this board.
    for (token, expected) in [
        ("a-token-that-nobody-has-0123456789", "no container of this node has the session's token"),
        (ELSEWHERE.token().as_str(), "shop/elsewhere does not have the board dm0; it has dm1"),
    ] {
        node.forge("shop", token);
        let refusal = refusal(&manager, token, &images[0]).await;
        assert!(refusal.contains(expected), "{refusal}");
    }

    // Unlisted, until it is applied.
    let unlisted = refusal(&manager, &CART.token(), &images[2]).await;
    assert!(unlisted.contains("kubectl fpga bitstream push"), "{unlisted}");
    node.api.apply(None, "late", &images[2]);
    is_allowed(&manager, &CART, &images[2]).await;
    assert_eq!([cart.round().await, wheel.round().await, cart.round().await], [[0, 0]; 3]);
    assert_eq!(node.board.controls.refused(), 0, "no kernel ran on a wrong image");
    workloads_are_counted(&manager).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_board_stays_with_the_pod_whose_kernels_run_and_goes_on_when_they_end() {
    let images = images(&[3, 5]).await;
    let node = Node::start(&[&CART, &WHEEL]).await;
    node.api.apply(None, "sobel", &images[0]);
    node.api.apply(None, "mm", &images[1]);
    let manager = node.manager("30s");
    is_allowed(&manager, &WHEEL, &images[0]).await;
    let running = Running::of(&manager, &WHEEL, &images[0]).await;
    let loads = node.board.controls.loads();
    for _ in 0..3 {
        let refusal = refusal(&manager, &CART.token(), &images[1]).await;
        assert!(refusal.contains("kernels of another pod run or wait there"), "{refusal}");
        assert!(!refusal.contains("mill"), "{refusal}");
    }
    // The image that is on the board takes nothing from anybody, and no second session of the pod does.
    assert_eq!(refusal(&manager, &CART.token(), &images[0]).await, "");
    assert_eq!(node.board.controls.loads(), loads, "the pod keeps its image");

    let wheel = running.end(&manager).await;
    compute_in_turns(&node, &manager, wheel, &images).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_no_registry_moves_pods_a_request_waits_no_longer_than_it_may_and_the_board_is_free_when_idle()
{
    let images = images(&[3, 5]).await;
    let node = Node::start_with(&[&CART, &WHEEL], &["--moves"]).await;
    node.api.apply(None, "sobel", &images[0]);
    node.api.apply(None, "mm", &images[1]);
    let manager = node.manager("2s");
    is_allowed(&manager, &WHEEL, &images[0]).await;
    let running = Running::of(&manager, &WHEEL, &images[0]).await;
    let loads = node.board.controls.loads();
    for _ in 0..2 {
        let told = refusal(&manager, &CART.token(), &images[1]).await;
        assert!(told.contains("a pod is moved off it first") && !told.contains("mill"), "{told}");
        assert!(told.contains("try again later"), "{told}");
        // What waits in vain stands in nobody's way: the image that is on the board is free.
        assert_eq!(refusal(&manager, &CART.token(), &images[0]).await, "");
    }
    assert_eq!(node.board.controls.loads(), loads, "the pod keeps its image");

    let wheel = running.end(&manager).await;
    assert_eq!(refusal(&manager, &CART.token(), &images[1]).await, "", "the board is idle");
    compute_in_turns(&node, &manager, wheel, &images).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_conflicting_requests_the_first_wins_and_the_other_waits_no_longer_than_it_may() {
    let images = images(&[3, 5]).await;
    let node = Node::start(&[&CART, &WHEEL]).await;
    node.api.apply(None, "sobel", &images[0]);
    node.api.apply(None, "mm", &images[1]);
    let manager = node.manager("1s");
    // The first one is allowed, and its bytes do not come.
    is_allowed(&manager, &CART, &images[0]).await;
    let told = refusal(&manager, &WHEEL.token(), &images[1]).await;
    assert!(told.contains("another request has the board reconfigured first"), "{told}");
    assert!(!told.contains("shop"), "{told}");
    assert!(told.contains("try again later"), "{told}");
    // It does not come first for ever.
    is_allowed(&manager, &WHEEL, &images[1]).await;
    let mut wheel = Scaler::of(session(&manager, &WHEEL).await, &images[1], 5).await;
    assert_eq!(wheel.round().await, [0, 0]);
    // Nor when it has been loaded.
    is_allowed(&manager, &CART, &images[0]).await;
    let mut cart = Scaler::of(session(&manager, &CART).await, &images[0], 3).await;
    assert_eq!([cart.round().await, wheel.round().await], [[0, 0]; 2]);
    assert_eq!(node.board.controls.refused(), 0, "no kernel ran on a wrong image");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plugin_that_is_killed_in_the_middle_of_an_answer_and_comes_back_loses_no_request() {
    let images = images(&[3]).await;
    let mut node = Node::start(&[&CART]).await;
    node.api.apply(None, "sobel", &images[0]);
    let manager = node.manager("60s");
    let (asked, api) = (node.api.times_asked(), node.api.clone());
    api.answer(false);
    let mut client = session(&manager, &CART).await;
    let context = client.context().await;
    let asking = refusal_of(&mut client, context, &images[0]);
    let interrupted = async {
        api.is_asked(asked).await;
        node.kill_plugin();
        api.answer(true);
        node.start_plugin().await;
    };
    let (refusal, ()) = tokio::join!(asking, interrupted);
    assert_eq!(refusal, "");
    let mut cart = Scaler::of(client, &images[0], 3).await;
    assert_eq!(cart.round().await, [0, 0]);
    assert_eq!(node.board.controls.refused(), 0, "no kernel ran on a wrong image");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_api_server_listed_is_allowed_while_it_is_away_and_what_it_lists_later_when_it_is_back() {
    let images = images(&[3, 5]).await;
    let node = Node::start(&[&CART]).await;
    node.api.apply(None, "sobel", &images[0]);
    let manager = node.manager("30s");
    is_allowed(&manager, &CART, &images[0]).await;
    let asked = node.api.times_asked();
    node.api.answer(false);
    // For some seconds the plugin goes by its last answer without a question, then because it gets no other one.
    until_async("the API server is asked in vain", async || {
        assert_eq!(refusal(&manager, &CART.token(), &images[0]).await, "");
        node.api.times_asked() > asked
    })
    .await;
    let mut cart = Scaler::of(session(&manager, &CART).await, &images[0], 3).await;
    assert_eq!(cart.round().await, [0, 0]);
    node.api.apply(None, "late", &images[1]);
    let unlisted = refusal(&manager, &CART.token(), &images[1]).await;
    assert!(unlisted.contains("no bitstream with this digest"), "{unlisted}");
    node.api.answer(true);
    is_allowed(&manager, &CART, &images[1]).await;
    assert_eq!(node.board.controls.refused(), 0, "no kernel ran on a wrong image");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_session_waits_for_a_lost_plugin_the_others_have_the_board() {
    let images = images(&[3, 5, 7]).await;
    let mut node = Node::start(&[&CART, &WHEEL]).await;
    for (name, image) in ["sobel", "mm", "fft"].into_iter().zip(&images) {
        node.api.apply(None, name, image);
    }
    let manager = node.manager("5s");
    is_allowed(&manager, &CART, &images[0]).await;
    let mut cart = Scaler::of(session(&manager, &CART).await, &images[0], 3).await;
    is_allowed(&manager, &WHEEL, &images[1]).await;
    let mut wheel = Scaler::of(session(&manager, &WHEEL).await, &images[1], 5).await;
    node.kill_plugin();
    let token = CART.token();
    let waiting = refusal(&manager, &token, &images[2]);
    tokio::pin!(waiting);
    let mut rounds = 0;
    let refused = loop {
        tokio::select! {
            biased;
            refused = &mut waiting => break refused,
            // The board is reconfigured as a whole for each of them.
            result = async { [cart.round().await, wheel.round().await] } => {
                assert_eq!(result, [[0, 0]; 2]);
                rounds += 1;
            }
        }
    };
    assert!(refused.contains("the node plugin gives no answer"), "{refused}");
    assert!(refused.contains("try again later"), "{refused}");
    assert!(rounds > 2, "{rounds} rounds while a session waited");
    assert_eq!(node.board.controls.refused(), 0, "no kernel ran on a wrong image");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenants_own_process_passes_the_gate_with_the_token_of_the_session_and_with_no_other() {
    let images = images(&[3, 5]).await;
    let node = Node::start(&[&CART, &WHEEL, &ELSEWHERE]).await;
    node.api.apply(None, "sobel", &images[0]);
    node.api.apply(Some("mill"), "own", &images[1]);
    let manager = node.manager_of_processes();
    is_allowed(&manager, &CART, &images[0]).await;
    let mut cart = Scaler::of(session(&manager, &CART).await, &images[0], 3).await;
    assert_eq!(cart.round().await, [0, 0]);
    let of_mill = refusal(&manager, &CART.token(), &images[1]).await;
    assert!(of_mill.contains("no bitstream with this digest for pods of the namespace shop"), "{of_mill}");
    // The same tenant, and the same process, with the token of a container that has another board.
    node.forge("shop", &ELSEWHERE.token());
    let elsewhere = refusal(&manager, &ELSEWHERE.token(), &images[0]).await;
    assert!(elsewhere.contains("shop/elsewhere does not have the board dm0"), "{elsewhere}");
    let mut wheel = Scaler::of(session(&manager, &WHEEL).await, &images[1], 5).await;
    assert_eq!([wheel.round().await, cart.round().await], [[0, 0]; 2]);
    assert_eq!(node.board.controls.refused(), 0, "no kernel ran on a wrong image");
    workloads_are_counted(&manager).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonsense_at_the_gates_socket_is_answered_or_dropped_and_others_are_served() {
    let images = images(&[3]).await;
    let node = Node::start(&[&CART]).await;
    node.api.apply(None, "sobel", &images[0]);
    let manager = node.manager("30s");
    let mut silent = Vec::new();
    for _ in 0..8 {
        silent.push(tokio::net::UnixStream::connect(node.gate()).await.unwrap());
    }
    for nonsense in [&b"\n"[..], b"{}\n", b"{\"version\":9}\n", &[b'x'; 8 << 10]] {
        let mut stream = tokio::net::UnixStream::connect(node.gate()).await.unwrap();
        // The plugin need not read all of it.
        let _ = stream.write_all(nonsense).await;
        let mut answer = String::new();
        let read = tokio::time::timeout(patience(), stream.read_to_string(&mut answer)).await;
        // What was not read makes the system drop the connection.
        if read.expect("an answer in time").is_ok() {
            assert!(answer.contains("refused") || answer.is_empty(), "{answer}");
        }
    }
    is_allowed(&manager, &CART, &images[0]).await;
    drop(silent);
}
