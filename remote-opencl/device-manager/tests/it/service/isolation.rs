//! `--isolate process`: kernels that damage their runtime affect only their own tenant.

mod machine_code;

use crate::harness::{Client, Manager, Ready, binaries_result, digest_of};
use crate::service::crowd::until_metrics;
use crate::service::shared_memory::{open_side, receive};
use crate::service::{INCREASE, ints, scalar};
use fpga_protocol::v1;
use fpga_protocol::v1::call::Method;
use fpga_protocol::v1::kernel_arg::Value;
use fpga_test_kit::processes::{children, runs};
use fpga_test_kit::{metrics, patience, until_async};
use tonic::{Code, Status};

/// Writes to the address that it is given.
const WILD: &str = "kernel void wild(global int *a, ulong at) { *(global int *)(a + at) = 1; }";

/// A folder of tokens for tenants of these names.
fn tokens(names: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in names {
        std::fs::write(folder.path().join(name), token(name)).unwrap();
    }
    folder
}

fn token(name: &str) -> String {
    format!("token-of-{name}-0123456789")
}

async fn tenant(manager: &Manager, name: &str) -> Client {
    Client::with_token(manager.channel().await, &token(name)).await
}

/// A session with everything that it needs to add to a buffer.
struct Adder {
    client: Client,
    queue: u64,
    kernel: u64,
    buffer: u64,
    value: i32,
}

impl Adder {
    async fn new(mut client: Client) -> Self {
        let Ready { queue, kernel, buffer } = client.ready(INCREASE, "increase", 4).await;
        Self { client, queue, kernel, buffer, value: 0 }
    }

    async fn round(&mut self) {
        let args = vec![Value::Buffer(self.buffer), scalar(&3_i32.to_le_bytes())];
        let launch = self.client.launch(self.queue, self.kernel, args, 1);
        let read = self.client.read(self.queue, self.buffer, 4);
        let event = read.event;
        self.client.flush(vec![launch, read]).await;
        self.value += 3;
        let (completion, data) = self.client.completion(event).await;
        assert_eq!((completion.status, data), (0, ints([self.value])));
    }
}

/// Runs a kernel that writes to an unmapped address; returns the status with which the session ends.
async fn crash(mut client: Client) -> Option<Status> {
    let Ready { queue, kernel, buffer } = client.ready(WILD, "wild", 4).await;
    let far = scalar(&(1_u64 << 60).to_le_bytes());
    let launch = client.launch(queue, kernel, vec![Value::Buffer(buffer), far], 1);
    client.flush(vec![launch]).await;
    tokio::time::timeout(patience(), client.end()).await.expect("the session hangs")
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
fn metric(manager: &Manager, name: &str) -> u64 {
    let text = manager.metrics_text();
    let value = metrics::value(&text, &format!("fpga_device_manager_{name}"));
    value.unwrap_or_else(|| panic!("no {name} in {text}")) as u64
}

#[tokio::test]
async fn a_kernel_that_kills_its_runtime_ends_its_tenants_sessions_and_nobody_elses() {
    let folder = tokens(&["alice", "bob"]);
    let args = ["--isolate", "process", "--slots", "1", "--tokens", folder.path().to_str().unwrap()];
    let mut manager = Manager::start(&args);
    let mut bob = Adder::new(tenant(&manager, "bob").await).await;
    let mut innocent = Adder::new(tenant(&manager, "alice").await).await;
    innocent.round().await;
    for died in 1..=2 {
        let wild = tenant(&manager, "alice").await;
        let ended = {
            // Bob's tasks and the one that crashes share the only slot.
            let crash = crash(wild);
            tokio::pin!(crash);
            loop {
                tokio::select! {
                    ended = &mut crash => break ended,
                    () = bob.round() => {}
                }
            }
        };
        assert_eq!(ended.expect("an error").code(), Code::Aborted);
        for _ in 0..20 {
            bob.round().await;
        }
        manager.counts(&format!("fpga_device_manager_tenant_processes_died_total {died}")).await;
    }
    let mut again = Adder::new(tenant(&manager, "alice").await).await;
    again.round().await;
    let lost = innocent.client.end().await.expect("it was in the process that died");
    assert_eq!(lost.code(), Code::Aborted);
    drop((again, bob));
    manager.has_no_session().await;
    until_metrics(&manager, 0, 0).await;
    assert!(manager.terminate().success());
}

#[tokio::test]
async fn a_vendor_library_that_dies_in_the_manager_takes_that_manager_down_and_clients_hear_it() {
    let mut manager = Manager::start(&["--isolate", "protocol"]);
    let mut other = Manager::start(&["--isolate", "protocol"]);
    let mut untouched = Adder::new(Client::connect(&other).await).await;
    let bystander = Client::connect(&manager).await;
    assert!(crash(Client::connect(&manager).await).await.is_some(), "an error ends the session");
    let told = tokio::time::timeout(patience(), bystander.end()).await.expect("no hang");
    assert!(told.is_some());
    manager.ended_async().await;
    untouched.round().await;
    drop(untouched);
    other.has_no_session().await;
    assert!(other.terminate().success());
}

#[tokio::test]
async fn a_file_that_is_put_into_the_folder_of_bitstreams_is_known_to_a_process_that_runs_already() {
    const FIRST: &str = "kernel void first(global int *a) { a[0] = 1; }";
    const SECOND: &str = "kernel void second(global int *a) { a[0] = 2; }";
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let files = folder.path().to_str().unwrap();
    let mut binaries = Vec::new();
    {
        let manager = Manager::start(&["--isolate", "process"]);
        let mut client = Client::connect(&manager).await;
        let context = client.context().await;
        for source in [FIRST, SECOND] {
            let program = client.source(context, source).await;
            assert_eq!(client.build(program).await.0, 0);
            binaries.push(client.binary(program).await);
        }
    }
    std::fs::write(path("first.bitstream"), &binaries[0]).unwrap();
    let args = ["--isolate", "process", "--confine-builds", "required", "--bitstreams", files];
    let manager = Manager::start(&args);
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    assert_eq!(client.program_from(context, &binaries[0]).await.1, 0, "no bytes were asked for");
    std::fs::write(path("second.bitstream"), &binaries[1]).unwrap();
    until_async("the process to see the file", async || client.missing_of(context, &binaries[1]).await == 0)
        .await;
    manager.counts("fpga_device_manager_bitstreams_named 2").await;
}

/// The board can't have the images of both binaries at once.
#[tokio::test]
async fn a_program_of_two_binaries_for_a_board_with_one_slot_does_not_end_its_tenants_process() {
    const SOURCES: [&str; 2] =
        ["kernel void one(global int *a) { a[0] = 1; }", "kernel void two(global int *a) { a[0] = 2; }"];
    const EQUALLY_BY_ONE: [i64; 2] = [0x1086, 1];
    let envs = [("POCL_MAX_PTHREAD_COUNT", "2")];
    let manager = Manager::start_in(&envs, &["--isolate", "process", "--slots", "1"]);
    let mut client = Client::connect(&manager).await;
    let ids = [client.id() | 1 << 63, client.id() | 1 << 63];
    let (device, properties) = (client.device(), EQUALLY_BY_ONE.to_vec());
    let parts = v1::CreateSubDevices { device, properties, ids: ids.to_vec() };
    assert_eq!(client.call(Method::CreateSubDevices(parts)).await.status, 0);
    let context = client.id();
    let create = v1::CreateContext { context, devices: ids.to_vec() };
    assert_eq!(client.call(Method::CreateContext(create)).await.status, 0);
    let mut binaries = Vec::new();
    for source in SOURCES {
        let program = client.source(context, source).await;
        assert_eq!(client.build(program).await.0, 0);
        binaries.push(client.binary(program).await);
    }
    let program = client.id();
    let named = ids.iter().zip(&binaries).map(|(device, binary)| v1::BinaryRef {
        device: *device,
        digest: digest_of(binary).as_bytes().to_vec().into(),
        length: binary.len() as u64,
    });
    let create = v1::CreateProgramWithBinary { program, context, binaries: named.collect(), prints: false };
    let reply = client.call(Method::CreateProgramWithBinary(create)).await;
    assert_eq!((reply.status, binaries_result(&reply).missing.len()), (0, 2));
    for binary in &binaries {
        let digest = digest_of(binary).as_bytes().to_vec().into();
        let data = Some(client.data(binary.clone()).await);
        client.call(Method::ProvideBinary(v1::ProvideBinary { program, digest, data })).await;
    }
    Adder::new(client).await.round().await;
    assert_eq!(metric(&manager, "tenant_processes_died_total"), 0);
}

#[tokio::test]
async fn there_are_no_more_tenants_than_processes_and_one_without_a_session_makes_room() {
    let folder = tokens(&["alice", "bob"]);
    let tokens = folder.path().to_str().unwrap();
    let args = ["--isolate", "process", "--tenant-processes", "1", "--tokens", tokens];
    let manager = Manager::start(&args);
    let mut alice = tenant(&manager, "alice").await;
    alice.context().await;
    let refused = Client::refused_with(manager.channel().await, &token("bob")).await;
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    drop(alice);
    manager.has_no_session().await;
    let mut bob = tenant(&manager, "bob").await;
    bob.context().await;
}

/// Writes to one byte of each page.
const TOUCH: &str = "kernel void touch(global char *a) { a[get_global_id(0) * 4096] = 1; }";

#[tokio::test]
async fn tenants_processes_that_use_up_the_memory_of_all_together_lose_the_one_that_has_most() {
    const MIB: u64 = 1 << 20;
    let folder = tokens(&["alice", "bob"]);
    let folder = folder.path().to_str().unwrap();
    // A single tenant could not use that much memory.
    let args = ["--isolate", "process", "--tokens", folder, "--tenant-memory-of-all", "1152MiB"];
    let mut manager = Manager::start(&args);
    let mut alice = Adder::new(tenant(&manager, "alice").await).await;
    let mut bob = tenant(&manager, "bob").await;
    let fill = async |client: &mut Client, bytes: u64| {
        let Ready { queue, kernel, buffer } = client.ready(TOUCH, "touch", bytes).await;
        let launch = client.launch(queue, kernel, vec![Value::Buffer(buffer)], bytes / 4096);
        client.flush(vec![launch]).await;
    };
    fill(&mut alice.client, 250 * MIB).await;
    fill(&mut bob, 200 * MIB).await;
    fill(&mut bob, 400 * MIB).await;
    let status = tokio::time::timeout(patience(), bob.end()).await.expect("no hang").expect("an error");
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert!(status.message().contains("had most of it"), "{status}");
    alice.round().await;
    assert!(manager.is_running());
    Adder::new(tenant(&manager, "bob").await).await.round().await;
}

#[tokio::test]
async fn tenants_with_processes_of_their_own_share_no_more_memory_than_all_may_hold() {
    const SEGMENT: u64 = 4 << 20;
    // Two thirds of the bytes that clients may make the manager hold.
    const LASTING: u64 = 128 << 20;
    const NAMES: [&str; 4] = ["alice", "bob", "carol", "dave"];
    let folder = tokens(&NAMES);
    let folder = folder.path().to_str().unwrap();
    let manager = Manager::start(&["--isolate", "process", "--tokens", folder, "--client-memory", "192MiB"]);
    let mut shared = 0;
    let mut sessions = Vec::new();
    for name in NAMES {
        let client = tenant(&manager, name).await;
        let side = open_side(&manager, &client);
        sessions.push((client, side));
    }
    let another = async |(client, side): &mut (Client, _)| {
        let segment = client.id();
        let reply = client.call(Method::CreateSegment(v1::CreateSegment { segment, size: SEGMENT })).await;
        (reply.status == 0).then(|| receive(side))
    };
    for session in &mut sessions {
        while another(session).await.is_some() {
            shared += SEGMENT;
        }
    }
    assert!(shared > 0 && shared <= LASTING, "{shared} bytes are shared");
    let last = sessions.last_mut().unwrap();
    assert!(another(last).await.is_none());
    // Other tenants can use what one tenant gives back. The process of the tenant does that after the session has ended.
    drop(sessions.remove(0));
    let last = sessions.last_mut().unwrap();
    until_async("the memory of the session that has ended", async || another(&mut *last).await).await;
}

#[tokio::test]
async fn builds_are_bounded_over_all_tenants_processes_together() {
    const NAMES: [&str; 3] = ["alice", "bob", "carol"];
    let folder = tokens(&NAMES);
    let folder = folder.path().to_str().unwrap();
    let manager = Manager::start(&["--isolate", "process", "--tokens", folder, "--builds", "2"]);
    // Takes a compiler several seconds.
    let kernel = |n: u32| {
        format!(
            "kernel void k{n}(global float *a) {{ for (int i = 0; i < 64; i++) a[i] = sin(a[i] * {n}) / cos(a[i]); }}\n"
        )
    };
    let source: String = (0..1500).map(kernel).collect();
    let mut clients = Vec::new();
    for name in NAMES {
        let mut client = tenant(&manager, name).await;
        let context = client.context().await;
        let program = client.source(context, &source).await;
        clients.push((client, program));
    }
    // A build could end before another tenant's process has started.
    for (client, program) in &clients {
        let (program, devices, options) = (*program, Vec::new(), String::new());
        let build = v1::BuildProgram { program, devices, options, includes: None };
        client.cast(Method::BuildProgram(build)).await;
    }
    until_async("two builds run and one waits", async || {
        (metric(&manager, "builds_running"), metric(&manager, "builds_waiting")) == (2, 1)
    })
    .await;
    until_async("all are built", async || metric(&manager, "builds_running") == 0).await;
}

#[tokio::test]
async fn tenants_processes_go_with_the_manager_however_it_ends() {
    for orderly in [true, false] {
        let mut manager = Manager::start(&["--isolate", "process", "--drain-timeout", "200ms"]);
        let mut client = Client::connect(&manager).await;
        client.context().await;
        let processes = children(manager.id());
        assert_eq!(processes.len(), 1, "{processes:?}");
        if orderly {
            assert!(manager.terminate().success());
            assert!(client.end().await.is_some());
        } else {
            drop(manager);
        }
        until_async("no process is left", async || !processes.iter().any(|pid| runs(*pid))).await;
    }
}

/// A kernel's machine code cannot reach the rest of the node.
#[cfg(target_arch = "x86_64")]
#[tokio::test]
async fn a_kernel_of_machine_code_opens_no_file_and_signals_nobody() {
    const CALLS: &str = "kernel void call(global long *result, global char *path, long number, long second) {
        long first = number == 2 ? (long)path : 1;
        if (number == 62) __asm__ volatile(\"syscall\" : \"=a\"(first) : \"a\"(110L) : \"rcx\", \"r11\", \"memory\");
        __asm__ volatile(\"syscall\" : \"=a\"(result[0]) : \"a\"(number), \"D\"(first), \"S\"(second), \"d\"(0L)
                         : \"rcx\", \"r11\", \"memory\");
    }";
    const OPEN: i64 = 2;
    const KILL: i64 = 62;
    let secret = tempfile::NamedTempFile::new().unwrap();
    let mut path = secret.path().to_str().unwrap().as_bytes().to_vec();
    path.push(0);
    // Without tenant processes kernels can open the file, or the test would prove nothing.
    for (isolate, opens) in [("protocol", true), ("process", false)] {
        let mut manager = Manager::start(&["--isolate", isolate, "--confine-builds", "required"]);
        let mut client = Client::connect(&manager).await;
        let context = client.context().await;
        let queue = client.queue(context, 0).await;
        let program = client.source(context, CALLS).await;
        let (status, build) = client.build(program).await;
        assert_eq!(status, 0, "{:?}", build.devices);
        let kernel = client.kernel(program, "call").await;
        let (result, name) = (client.buffer(context, 8).await, client.buffer(context, 4096).await);
        let mut call = async |number: i64, second: i64| {
            let write = client.write(queue, name, path.clone()).await;
            let args = vec![
                Value::Buffer(result),
                Value::Buffer(name),
                scalar(&number.to_le_bytes()),
                scalar(&second.to_le_bytes()),
            ];
            let launch = client.launch(queue, kernel, args, 1);
            let read = client.read(queue, result, 8);
            let event = read.event;
            client.flush(vec![write, launch, read]).await;
            let (completion, data) = client.completion(event).await;
            assert_eq!(completion.status, 0);
            i64::from_le_bytes(data.try_into().unwrap())
        };
        let opened = call(OPEN, 0).await;
        assert_eq!(opened >= 0, opens, "{isolate}: open gives {opened}");
        if !opens {
            assert_eq!(opened, -i64::from(libc::EACCES));
            // The parent is the manager. Linux 6.12 and later confine signals too.
            let killed = call(KILL, 0).await;
            assert_eq!(killed, -i64::from(libc::EPERM), "Linux 6.12 or later");
        }
        assert!(manager.is_running());
    }
}
