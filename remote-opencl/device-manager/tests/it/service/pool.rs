//! Slots that are lent to the pool: a scripted broker asks for leases, and clients attach by them.

mod ends;
mod former;
mod full;
mod reports;
mod timing;

use crate::harness::{Client, LendStream, Manager, ScriptedBroker, binaries_result, digest_of};
use crate::service::{BUSY, INCREASE, ints, scalar};
use bytes::Bytes;
use fpga_core::bitstream::Digest;
use fpga_net::tls::{HTTP_2, PinnedKey};
use fpga_pool_leases::ids::LeaseId;
use fpga_pool_leases::messages::{BrokerToManager, ManagerToBroker, Refusal, SlotCause, SlotStatus};
use fpga_protocol::limits::PROTOCOL_VERSION;
use fpga_protocol::v1;
use fpga_protocol::v1::call::Method;
use fpga_protocol::v1::client_message::Kind;
use fpga_protocol::v1::kernel_arg::Value;
use fpga_test_kit::Authority;
use std::time::{Duration, Instant};
use tonic::Code;

/// `increase` takes 1 ms for a work item, `brief` 0.6 ms for a launch, `lasting` a second, `endless` an hour, and a bitstream 30 ms.
const MODEL: &str = r#"
board = "a board of the tests"
reconfiguration = "30ms"

[[kernel]]
name = "increase"
items_per_second = 1000

[[kernel]]
name = "brief"
launch = "600us"

[[kernel]]
name = "lasting"
launch = "1s"

[[kernel]]
name = "endless"
launch = "1h"
"#;

/// The kernels of one bitstream.
fn source() -> String {
    let copies = ["brief", "lasting", "endless"].map(|name| INCREASE.replace("increase", name));
    format!("{INCREASE}\n{BUSY}\n{}", copies.join("\n"))
}

/// A modelled manager whose last slots are lent to a scripted broker.
struct Pool {
    manager: Manager,
    broker: ScriptedBroker,
    stream: LendStream,
    bitstream: Vec<u8>,
    /// The arguments of the manager.
    arguments: Vec<String>,
    _folder: tempfile::TempDir,
}

impl Pool {
    async fn start(args: &[&str]) -> Self {
        Self::start_with("--model", args).await
    }

    /// A pool whose board is not modelled.
    async fn start_unmodelled(args: &[&str]) -> Self {
        Self::start_with("", args).await
    }

    async fn start_with(model: &str, args: &[&str]) -> Self {
        let bitstream = bitstream(&source()).await;
        Self::start_of(&[bitstream], model, args).await
    }

    /// A pool with these bitstreams, of which the first one is that of [`Self::holder`].
    async fn start_of(bitstreams: &[Vec<u8>], model: &str, args: &[&str]) -> Self {
        Self::start_by(Manager::start, bitstreams, model, args).await
    }

    /// The same, with a manager that `start` starts with the arguments.
    async fn start_by(
        start: impl FnOnce(&[&str]) -> Manager,
        bitstreams: &[Vec<u8>],
        model: &str,
        args: &[&str],
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("library")).unwrap();
        for (number, bitstream) in bitstreams.iter().enumerate() {
            let path = folder.path().join(format!("library/number-{number}.bitstream"));
            std::fs::write(path, bitstream).unwrap();
        }
        std::fs::write(folder.path().join("model.toml"), MODEL).unwrap();
        let mut broker = ScriptedBroker::start().await;
        let library = folder.path().join("library");
        let model_file = folder.path().join("model.toml");
        let url = broker.url();
        let mut all =
            vec!["--board", "a10", "--pool-broker", &url, "--bitstreams", library.to_str().unwrap()];
        if !model.is_empty() {
            all.extend([model, model_file.to_str().unwrap()]);
        }
        all.extend(args);
        let manager = start(&all);
        let stream = broker.registered().await;
        let arguments = all.into_iter().map(str::to_owned).collect();
        Self { manager, broker, stream, bitstream: bitstreams[0].clone(), arguments, _folder: folder }
    }

    /// Kills the manager with SIGKILL, starts another one with the same arguments, and waits until it has registered.
    async fn restart_manager(&mut self, start: impl FnOnce(&[&str]) -> Manager) {
        self.manager.kill();
        let arguments: Vec<_> = self.arguments.iter().map(String::as_str).collect();
        self.manager = start(&arguments);
        self.stream = self.broker.registered().await;
    }

    fn digest(&self) -> Digest {
        digest_of(&self.bitstream)
    }

    /// A client that holds a slot by a lease.
    async fn holder(&mut self, id: u128, slot: u32) -> Client {
        let digest = self.digest();
        self.holder_of(id, slot, digest).await
    }

    /// A client that holds a slot by a lease for this bitstream.
    async fn holder_of(&mut self, id: u128, slot: u32, bitstream: Digest) -> Client {
        let lease = self.stream.lease(id, slot, bitstream);
        self.stream.prepare(&lease).await;
        let client = Client::with_lease(self.manager.channel().await, id).await.unwrap();
        let report = self.stream.report_of(SlotCause::Attached).await;
        assert!(matches!(report.status, SlotStatus::Held(held, _) if held == lease));
        client
    }
}

/// The binary of a source.
async fn bitstream(source: &str) -> Vec<u8> {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let program = client.source(context, source).await;
    assert_eq!(client.build(program).await.0, 0);
    client.binary(program).await
}

/// A client with a kernel of a bitstream, and a buffer of ten numbers.
struct Worker {
    client: Client,
    context: u64,
    queue: u64,
    kernel: u64,
    buffer: u64,
}

impl Worker {
    async fn new(mut client: Client, bitstream: &[u8], kernel: &str) -> Self {
        let context = client.context().await;
        let (program, _) = client.program_from(context, bitstream).await;
        let kernel = client.kernel(program, kernel).await;
        let queue = client.queue(context, 0).await;
        let buffer = client.buffer(context, 40).await;
        Self { client, context, queue, kernel, buffer }
    }

    /// A step: ten numbers in, the kernel, ten numbers out. Returns the event of the read.
    async fn step(&mut self) -> u64 {
        let args = vec![Value::Buffer(self.buffer), scalar(&5_i32.to_le_bytes())];
        let commands = vec![
            self.client.write(self.queue, self.buffer, ints(0..10)).await,
            self.client.launch(self.queue, self.kernel, args, 10),
            self.client.read(self.queue, self.buffer, 40),
        ];
        let read = commands[2].event;
        self.client.flush(commands).await;
        read
    }

    /// A step that the manager has started: with it the slot, which was idle, is busy.
    async fn started_step(&mut self, pool: &mut Pool) -> u64 {
        pool.stream.report_of(SlotCause::Idle).await;
        let read = self.step().await;
        pool.stream.report_of(SlotCause::Busy).await;
        read
    }

    /// Starts a kernel that does not end, of a bitstream with [`BUSY`], and waits until it runs. With it the slot, which was
    /// idle, is busy.
    async fn start_endless(&mut self, pool: &mut Pool) {
        let args = vec![Value::Buffer(self.buffer), scalar(&u64::MAX.to_le_bytes())];
        let endless = self.client.launch(self.queue, self.kernel, args, 1);
        pool.stream.report_of(SlotCause::Idle).await;
        self.client.flush(vec![endless]).await;
        pool.stream.report_of(SlotCause::Busy).await;
        // A kernel that the runtime has not begun would end with its client, at once.
        pool.manager.computes().await;
    }

    async fn ends_well(&mut self, read: u64) {
        let (completion, data) = self.client.completion(read).await;
        assert_eq!((completion.status, data), (0, ints(5..15)));
    }
}

#[tokio::test]
async fn a_job_attaches_to_its_slot_computes_and_gives_the_slot_back_with_its_use() {
    let mut pool = Pool::start(&["--slots", "3", "--pool-slots", "2"]).await;
    assert_eq!(pool.stream.slots, [SlotStatus::Free, SlotStatus::Free]);
    assert_eq!(pool.stream.board.board.kind.as_ref(), "a10");
    assert_eq!(pool.stream.hello.node, Some(pool.stream.board.board.node.clone()));
    assert_eq!(pool.stream.endpoint.socket.as_deref(), pool.manager.socket().to_str());
    pool.manager.counts("fpga_device_manager_pool_slots{state=\"free\"} 2").await;
    let client = pool.holder(7, 1).await;
    pool.manager.counts("fpga_device_manager_pool_slots{state=\"held\"} 1").await;
    let mut worker = Worker::new(client, &pool.bitstream, "increase").await;
    let since = Instant::now();
    for _ in 0..2 {
        let read = worker.step().await;
        worker.ends_well(read).await;
    }
    drop(worker);
    let report = pool.stream.freed().await;
    assert_eq!(report.slot.0, 1);
    assert_eq!((report.usage.bytes, report.usage.actions), (80, 2));
    let at_most = u64::try_from(since.elapsed().as_millis()).unwrap();
    assert!((20..=at_most).contains(&report.usage.busy.0), "two steps of 10 ms: {:?}", report.usage);
    pool.manager.counts("fpga_device_manager_pool_actions_total 2").await;
    // The next job gets the slot.
    drop(pool.holder(8, 1).await);
    pool.stream.freed().await;
}

#[tokio::test]
async fn the_slots_of_the_pool_are_no_capacity_of_the_node_and_its_jobs_no_use_of_it() {
    let mut pool = Pool::start(&["--slots", "3", "--pool-slots", "1"]).await;
    let client = pool.holder(7, 0).await;
    let mut job = Worker::new(client, &pool.bitstream, "endless").await;
    job.step().await;
    let pods = Client::connect(&pool.manager).await;
    let mut pods = Worker::new(pods, &pool.bitstream, "increase").await;
    // It does not wait for the job, which does not end.
    let of_pod = pods.step().await;
    pods.ends_well(of_pod).await;
    for line in [
        "fpga_device_manager_slots 2",
        "fpga_device_manager_slots_in_use 0",
        "fpga_device_manager_tasks_total 1",
        "fpga_device_manager_pool_actions_total 0",
    ] {
        pool.manager.counts(line).await;
    }
}

#[tokio::test]
async fn who_comes_too_late_or_with_no_lease_is_told_that_it_is_gone() {
    let mut pool = Pool::start(&["--slots", "1", "--pool-slots", "1"]).await;
    let gone = |refused: Result<Client, tonic::Status>| refused.err().unwrap().code();
    let channel = pool.manager.channel().await;
    assert_eq!(gone(Client::with_lease(channel.clone(), 1234).await), Code::NotFound, "a forged id");
    let lease = pool.stream.lease(7, 0, pool.digest());
    pool.stream.prepare(&lease).await;
    let report = pool.stream.report_of(SlotCause::NotAttached).await;
    assert_eq!(report.status, SlotStatus::Free);
    assert_eq!(gone(Client::with_lease(channel.clone(), 7).await), Code::NotFound, "too late");
    let first = pool.holder(8, 0).await;
    assert_eq!(gone(Client::with_lease(channel.clone(), 8).await), Code::NotFound, "it is held");
    drop(first);
    let hello = |resumable, lease: &'static [u8]| {
        let lease = Bytes::from_static(lease);
        let hello =
            v1::Hello { protocol_version: PROTOCOL_VERSION, resumable, lease, ..v1::Hello::default() };
        v1::ClientMessage { kind: Some(Kind::Hello(hello)) }
    };
    for wrong in [hello(true, &[1; 16]), hello(false, &[1; 15])] {
        assert_eq!(gone(Client::begin(channel.clone(), wrong).await), Code::InvalidArgument);
    }
    let unleased = Client::refused(channel).await;
    assert_eq!(unleased.code(), Code::FailedPrecondition, "all slots are lent: {unleased}");
}

#[tokio::test]
async fn a_leased_session_has_programs_of_its_bitstream_alone() {
    let mut pool = Pool::start(&["--slots", "2", "--pool-slots", "1"]).await;
    let other = bitstream(&INCREASE.replace("increase", "other")).await;
    let mut client = pool.holder(7, 0).await;
    let context = client.context().await;
    let (program, device) = (client.id(), client.device());
    let digest = Bytes::copy_from_slice(digest_of(&other).as_bytes());
    let binaries = vec![v1::BinaryRef { device, digest, length: other.len() as u64 }];
    let create = v1::CreateProgramWithBinary { program, context, binaries, prints: false };
    let reply = client.call(Method::CreateProgramWithBinary(create)).await;
    assert_eq!(reply.status, -5);
    let refusal = &binaries_result(&reply).refusal;
    assert!(refusal.contains("its lease is for the bitstream"), "{refusal}");
    let program = client.source(context, INCREASE).await;
    let (status, build) = client.build(program).await;
    assert_eq!(status, -11);
    assert!(build.devices[0].log.contains("its lease is for the bitstream"), "{:?}", build.devices);
    let mut worker = Worker::new(client, &pool.bitstream, "increase").await;
    let read = worker.step().await;
    worker.ends_well(read).await;
}

#[tokio::test]
async fn a_bitstream_that_the_manager_lacks_is_refused_and_the_slot_stays_free() {
    let mut pool = Pool::start(&["--slots", "2", "--pool-slots", "1"]).await;
    let lease = pool.stream.lease(7, 0, Digest::from_bytes([9; 32]));
    let term = fpga_pool_leases::ids::Term(1);
    pool.stream.say(BrokerToManager::Prepare { term, lease, usage_every: None }).await;
    let refused = ManagerToBroker::Refused { lease: LeaseId(7), why: Refusal::NoFile };
    assert_eq!(pool.stream.next().await, refused);
    let report = pool.stream.report().await;
    assert_eq!((report.why, report.status), (SlotCause::LoadFailed, SlotStatus::Free));
}

#[tokio::test]
async fn leases_outlive_a_broker_and_the_next_one_is_told_of_them() {
    let mut pool = Pool::start(&["--slots", "2", "--pool-slots", "1"]).await;
    let client = pool.holder(7, 0).await;
    let mut worker = Worker::new(client, &pool.bitstream, "increase").await;
    let address = pool.broker.url().strip_prefix("http://").unwrap().parse().unwrap();
    drop(pool.broker);
    let incarnation = pool.stream.incarnation;
    drop(pool.stream);
    pool.manager.counts("fpga_device_manager_pool_broker_connected 0").await;
    let read = worker.step().await;
    worker.ends_well(read).await;
    let mut next = ScriptedBroker::start_at(address).await;
    let stream = next.registered().await;
    assert_eq!(stream.incarnation, incarnation);
    assert!(matches!(&stream.slots[0], SlotStatus::Held(lease, _) if lease.id == LeaseId(7)));
}

#[tokio::test]
async fn a_manager_that_registers_tells_which_bitstreams_its_lent_slots_have() {
    let mut pool = Pool::start(&["--slots", "3", "--pool-slots", "2"]).await;
    let loaded = |stream: &LendStream| stream.board.slots.iter().map(|slot| slot.loaded).collect::<Vec<_>>();
    assert_eq!(loaded(&pool.stream), [None, None]);
    drop(pool.holder(7, 1).await);
    pool.stream.freed().await;
    let digest = pool.digest();
    drop(pool.stream);
    assert_eq!(loaded(&pool.broker.registered().await), [None, Some(digest)]);
}

#[tokio::test]
async fn loads_of_pods_and_of_the_pool_go_through_one_port() {
    let args = ["--slots", "2", "--pool-slots", "1", "--reconfiguration-time", "400ms"];
    let mut pool = Pool::start_unmodelled(&args).await;
    let pods = Client::connect(&pool.manager).await;
    let mut pods = Worker::new(pods, &pool.bitstream, "increase").await;
    let lease = pool.stream.lease(7, 0, pool.digest());
    let since = Instant::now();
    let read = pods.step().await;
    pool.stream.prepare(&lease).await;
    pods.ends_well(read).await;
    assert!(since.elapsed() >= Duration::from_millis(800), "one load after the other: {:?}", since.elapsed());
}

/// Connects to the port of the pool, as who expects this key.
async fn connect_by_key(address: &str, key: PinnedKey) -> Result<tonic::transport::Channel, ()> {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let stream = key.connect(stream, HTTP_2).await.map_err(drop)?;
    let mut stream = Some(hyper_util::rt::TokioIo::new(stream));
    let connector = tower::service_fn(move |_: tonic::transport::Uri| {
        let stream = stream.take().ok_or_else(|| std::io::Error::other("one connection"));
        async move { stream }
    });
    let endpoint = tonic::transport::Endpoint::from_static("http://manager");
    endpoint.connect_with_connector(connector).await.map_err(drop)
}

#[tokio::test]
async fn the_port_of_the_pool_is_known_by_its_key_also_by_a_new_one_and_takes_leases_alone() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "any");
    let server = authority.issue("manager", &["manager"]);
    let [certificate, key] = [&server.certificate, &server.key].map(|path| path.to_str().unwrap());
    let client_ca = authority.ca.to_str().unwrap();
    let tls = ["--tls-cert", certificate, "--tls-key", key, "--tls-client-ca", client_ca];
    let options = ["--slots", "2", "--pool-slots", "1", "--pool-listen", "127.0.0.1:0"];
    let mut pool = Pool::start(&[&tls[..], &options[..]].concat()).await;
    let lease = pool.stream.lease(7, 0, pool.digest());
    pool.stream.prepare(&lease).await;
    let address = pool.stream.endpoint.address.to_string();
    let first = PinnedKey(pool.stream.endpoint.key.unwrap());
    assert!(connect_by_key(&address, PinnedKey([0; 32])).await.is_err(), "another key");
    let unleased = Client::refused(connect_by_key(&address, first).await.unwrap()).await;
    assert_eq!(unleased.code(), Code::FailedPrecondition, "{unleased}");
    let client = Client::with_lease(connect_by_key(&address, first).await.unwrap(), 7).await.unwrap();
    pool.stream.report_of(SlotCause::Attached).await;
    let mut worker = Worker::new(client, &pool.bitstream, "increase").await;
    let read = worker.step().await;
    worker.ends_well(read).await;

    // A new certificate: the broker learns of its key, and the lease goes on.
    let renewed = authority.issue("renewed", &["manager"]);
    std::fs::copy(renewed.certificate, certificate).unwrap();
    std::fs::copy(renewed.key, key).unwrap();
    pool.stream = pool.broker.registered().await;
    let second = PinnedKey(pool.stream.endpoint.key.unwrap());
    assert_ne!(second, first);
    assert!(connect_by_key(&address, first).await.is_err(), "the key before");
    Client::refused(connect_by_key(&address, second).await.unwrap()).await;
    let read = worker.step().await;
    worker.ends_well(read).await;
}

#[tokio::test]
async fn the_port_of_the_pool_has_a_key_beyond_loopback_addresses_also_where_insecure_tcp_is_allowed() {
    let cases: [(&[&str], bool); 3] = [
        (&["127.0.0.1:0"], false),
        (&["0.0.0.0:0"], true),
        (&["127.0.0.1:0", "--pool-address", "10.0.0.7:9482"], true),
    ];
    for (address, has_key) in cases {
        let args = ["--slots", "2", "--pool-slots", "1", "--insecure-tcp", "--pool-listen"];
        let pool = Pool::start(&[&args[..], address].concat()).await;
        assert_eq!(pool.stream.endpoint.key.is_some(), has_key, "{address:?}");
    }
}
