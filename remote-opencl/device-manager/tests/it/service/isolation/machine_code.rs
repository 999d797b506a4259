//! Kernels that control their tenant's process: machine code that tries arbitrary system calls. The manager's
//! restrictions refuse them, and the neighbour's kernels continue.
#![cfg(target_arch = "x86_64")]

use super::{Adder, metric, tenant, tokens};
use crate::harness::{Client, Manager, Ready};
use crate::service::crowd::until_metrics;
use fpga_protocol::v1;
use fpga_protocol::v1::call::Method;
use fpga_protocol::v1::kernel_arg::Value;
use fpga_test_kit::processes::session_members;
use fpga_test_kit::{patience, until_async};
use tonic::{Code, Status};

/// Makes the system call `m[1]` with the arguments `m[3..9]`; those in the mask `m[2]` are offsets into the buffer.
const CALL: &str = "kernel void call(global long *m) {
    long a[6];
    for (int i = 0; i < 6; i++) a[i] = m[3 + i] + ((m[2] >> i & 1) ? (long)m : 0);
    __asm__ volatile(\"mov %5, %%r10; mov %6, %%r8; mov %7, %%r9; syscall\"
                     : \"=a\"(m[0]) : \"a\"(m[1]), \"D\"(a[0]), \"S\"(a[1]), \"d\"(a[2]), \"r\"(a[3]), \"r\"(a[4]), \"r\"(a[5])
                     : \"rcx\", \"r8\", \"r9\", \"r10\", \"r11\", \"memory\");
}";

/// Clones itself with the flags `m[1]` until that fails or has succeeded `m[2]` times; the clones wait for
/// signals.
const BOMB: &str = "kernel void bomb(global long *m) {
    long made = 0, last = 0;
    while (made < m[2]) {
        __asm__ volatile(\"xor %%esi, %%esi; xor %%edx, %%edx; xor %%r10d, %%r10d; xor %%r8d, %%r8d; mov $56, %%eax; syscall; \"
                         \"test %%rax, %%rax; jnz 2f; 1: mov $34, %%eax; syscall; jmp 1b; 2:\"
                         : \"=&a\"(last) : \"D\"(m[1]) : \"rcx\", \"rdx\", \"rsi\", \"r8\", \"r10\", \"r11\", \"memory\", \"cc\");
        if (last < 0) break;
        made++;
    }
    m[0] = last;
    m[3] = made;
}";

/// Writes the `m[1]` bytes at `m[16]` to each descriptor from 3 on; counts in `m[0]` the descriptors that
/// accepted bytes.
const SCRAWL: &str = "kernel void scrawl(global long *m) {
    long took = 0;
    for (long fd = 3; fd < 256; fd++) {
        long wrote;
        __asm__ volatile(\"syscall\" : \"=a\"(wrote) : \"a\"(1L), \"D\"(fd), \"S\"(m + 16), \"d\"(m[1]) : \"rcx\", \"r11\", \"memory\");
        if (wrote > 0) took++;
    }
    m[0] = took;
}";

/// Runs until its buffer is changed, which never happens here.
const ENDLESS: &str = "kernel void endless(global volatile int *a) { while (a[0] == 0) {} }";

/// Offset of a call's data in its buffer.
const DATA: i64 = 128;
const DATA_AT: usize = 128;
const BUFFER_BYTES: usize = 8192;

const THREAD_FLAGS: i64 = 0x50F00;
const SPAWN_FLAGS: i64 = 0x4100 | 17;
const FORK_FLAGS: i64 = 17;

const REFUSED: i64 = -(libc::EPERM as i64);

/// A session of a tenant with hostile kernels.
struct Hostile {
    client: Client,
    queue: u64,
    kernel: u64,
    buffer: u64,
}

impl Hostile {
    async fn new(mut client: Client, source: &str, name: &str) -> Self {
        let Ready { queue, kernel, buffer } = client.ready(source, name, BUFFER_BYTES as u64).await;
        Self { client, queue, kernel, buffer }
    }

    /// Runs the kernel over these numbers, with the data behind them; returns both as they are afterwards.
    async fn run(&mut self, numbers: &[i64], data: &[u8]) -> Result<(Vec<i64>, Vec<u8>), Status> {
        let mut memory: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        memory.resize(DATA_AT, 0);
        memory.extend_from_slice(data);
        memory.resize(BUFFER_BYTES, 0);
        let write = self.client.write(self.queue, self.buffer, memory).await;
        let launch = self.client.launch(self.queue, self.kernel, vec![Value::Buffer(self.buffer)], 1);
        let read = self.client.read(self.queue, self.buffer, BUFFER_BYTES as u64);
        let event = read.event;
        self.client.flush(vec![write, launch, read]).await;
        let (completion, memory) = self.client.try_completion(event).await?;
        assert_eq!(completion.status, 0);
        let (numbers, data) = memory.split_at(DATA_AT);
        let numbers = numbers.chunks_exact(8).map(|word| i64::from_le_bytes(word.try_into().unwrap()));
        Ok((numbers.collect(), data.to_vec()))
    }

    /// The result of a system call; the bits of `pointers` mark the arguments that are offsets into the
    /// buffer.
    async fn call(&mut self, number: i64, pointers: i64, arguments: &[i64], data: &[u8]) -> (i64, Vec<u8>) {
        let mut numbers = vec![0, number, pointers];
        numbers.extend_from_slice(arguments);
        let (numbers, data) = self.run(&numbers, data).await.unwrap();
        (numbers[0], data)
    }

    async fn number(&mut self, number: i64, arguments: &[i64]) -> i64 {
        self.call(number, 0, arguments, &[]).await.0
    }
}

/// A manager with processes for the tenants alice and bob, and further flags.
fn isolating(folder: &tempfile::TempDir, args: &[&str]) -> Manager {
    let mut all = vec!["--isolate", "process", "--tokens", folder.path().to_str().unwrap()];
    all.extend_from_slice(args);
    Manager::start_in(&[("SECRET_OF_THE_MANAGER", "hunter2")], &all)
}

#[tokio::test]
async fn a_kernel_gets_no_socket_no_process_and_nothing_of_other_processes() {
    use libc::*;
    let folder = tokens(&["alice", "bob"]);
    let manager = isolating(&folder, &["--confine-builds", "required"]);
    let mut bob = Adder::new(tenant(&manager, "bob").await).await;
    let mut alice = Hostile::new(tenant(&manager, "alice").await, CALL, "call").await;
    let parent = alice.number(SYS_getppid, &[]).await;
    assert_eq!(parent, i64::from(manager.id()));
    // The number of the call, the arguments that are addresses, the arguments.
    let refused: &[(&str, i64, i64, &[i64])] = &[
        ("socket", SYS_socket, 0, &[1, 1, 0]),
        ("socket of IPv4", SYS_socket, 0, &[2, 1, 0]),
        ("socketpair of datagrams", SYS_socketpair, 8, &[1, 2, 0, DATA]),
        ("connect", SYS_connect, 2, &[3, DATA, 16]),
        ("bind", SYS_bind, 2, &[3, DATA, 16]),
        ("listen", SYS_listen, 0, &[3, 1]),
        ("accept", SYS_accept, 0, &[3, 0, 0]),
        ("sendto an address", SYS_sendto, 0b1_0010, &[3, DATA, 1, 0, DATA, 16]),
        ("fork", SYS_fork, 0, &[]),
        ("clone of a process", SYS_clone, 0, &[FORK_FLAGS]),
        ("clone with a namespace", SYS_clone, 0, &[0x1000_0000 | THREAD_FLAGS]),
        ("kill", SYS_kill, 0, &[parent, 0]),
        ("kill all", SYS_kill, 0, &[-1, 0]),
        ("tkill", SYS_tkill, 0, &[parent, 0]),
        ("tgkill", SYS_tgkill, 0, &[parent, parent, 0]),
        ("rt_sigqueueinfo", SYS_rt_sigqueueinfo, 4, &[parent, 0, DATA]),
        ("pidfd_open", SYS_pidfd_open, 0, &[parent, 0]),
        ("ptrace", SYS_ptrace, 0, &[16, parent]),
        ("process_vm_readv", SYS_process_vm_readv, 0, &[parent]),
        ("process_vm_writev", SYS_process_vm_writev, 0, &[parent]),
        ("prlimit64", SYS_prlimit64, 8, &[parent, 7, 0, DATA]),
        ("setpriority", SYS_setpriority, 0, &[0, parent, 19]),
        ("sched_setscheduler", SYS_sched_setscheduler, 4, &[parent, 0, DATA]),
        ("F_SETOWN", SYS_fcntl, 0, &[3, 8, parent]),
        ("FIOSETOWN", SYS_ioctl, 4, &[3, 0x8901, DATA]),
        ("prctl to outlive the manager", SYS_prctl, 0, &[1, 0]),
        ("setsid", SYS_setsid, 0, &[]),
        ("setpgid", SYS_setpgid, 0, &[0, 0]),
        ("setuid", SYS_setuid, 0, &[0]),
        ("capset", SYS_capset, 3, &[DATA, DATA]),
        ("unshare", SYS_unshare, 0, &[0x1000_0000]),
        ("setns", SYS_setns, 0, &[3, 0]),
        ("mount", SYS_mount, 1, &[DATA]),
        ("chroot", SYS_chroot, 1, &[DATA]),
        ("bpf", SYS_bpf, 0, &[0]),
        ("io_uring_setup", SYS_io_uring_setup, 2, &[1, DATA]),
        ("perf_event_open", SYS_perf_event_open, 1, &[DATA, 0, -1, -1, 0]),
        ("userfaultfd", SYS_userfaultfd, 0, &[0]),
        ("keyctl", SYS_keyctl, 0, &[0]),
        ("shmget", SYS_shmget, 0, &[0, 4096, 0o600]),
        ("msgget", SYS_msgget, 0, &[0, 0o600]),
        ("mq_open", SYS_mq_open, 1, &[DATA, 0o100, 0o600, 0]),
        ("inotify_init1", SYS_inotify_init1, 0, &[0]),
        ("seccomp", SYS_seccomp, 0, &[0, 0, 0]),
        ("truncate by a path", SYS_truncate, 1, &[DATA, 0]),
        ("a call of the x32 interface", 0x4000_0000 | SYS_socket, 0, &[1, 1, 0]),
    ];
    for (what, number, pointers, arguments) in refused {
        let (gave, _) = alice.call(*number, *pointers, arguments, &[]).await;
        assert_eq!(gave, REFUSED, "{what}");
    }
    // Pinning another process reports no error and has no effect.
    let before = affinity(manager.id());
    assert_eq!(alice.call(SYS_sched_setaffinity, 4, &[parent, 8, DATA], &[1; 8]).await.0, 0);
    assert_eq!(affinity(manager.id()), before);
    let (opened, _) = alice.call(SYS_open, 1, &[DATA, 0], b"/proc/self/environ\0").await;
    let (length, environment) = alice.call(SYS_read, 2, &[opened, DATA, 4096], &[]).await;
    let environment = String::from_utf8_lossy(&environment[..usize::try_from(length).unwrap()]);
    assert!(environment.contains("POCL_CACHE_DIR="), "{environment}");
    assert!(!environment.contains("SECRET"), "{environment}");
    let (opened, _) =
        alice.call(SYS_open, 1, &[DATA, 0], format!("/proc/{parent}/environ\0").as_bytes()).await;
    assert_eq!(opened, -i64::from(EACCES));
    bob.round().await;
}

/// The processors that a process may run on.
fn affinity(pid: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find(|line| line.starts_with("Cpus_allowed:")).unwrap().to_owned()
}

#[tokio::test]
async fn threads_and_processes_of_a_bomb_end_at_a_bound_and_the_neighbour_computes_on() {
    let folder = tokens(&["alice", "bob"]);
    let manager = isolating(&folder, &["--confine-builds", "required"]);
    let mut bob = Adder::new(tenant(&manager, "bob").await).await;
    let mut alice = Hostile::new(tenant(&manager, "alice").await, BOMB, "bomb").await;
    let (forks, _) = alice.run(&[0, FORK_FLAGS, 100_000], &[]).await.unwrap();
    assert_eq!((forks[0], forks[3]), (REFUSED, 0));
    let (threads, _) = alice.run(&[0, THREAD_FLAGS, 100_000], &[]).await.unwrap();
    assert_eq!(threads[0], -i64::from(libc::EAGAIN));
    assert!((1..4096).contains(&threads[3]), "{} threads", threads[3]);
    bob.round().await;
    // Other tenants get threads and builds.
    Adder::new(tenant(&manager, "bob").await).await.round().await;
}

#[tokio::test]
async fn a_process_has_bounded_memory_and_is_the_first_to_end_where_memory_runs_out() {
    const PRIVATE_AND_ANONYMOUS: i64 = 0x22;
    let folder = tokens(&["alice", "bob"]);
    let manager = isolating(&folder, &["--tenant-memory", "2GiB"]);
    let mut bob = Adder::new(tenant(&manager, "bob").await).await;
    let mut alice = Hostile::new(tenant(&manager, "alice").await, CALL, "call").await;
    let mut taken = 0;
    let last = loop {
        let gave = alice.number(libc::SYS_mmap, &[0, 64 << 20, 3, PRIVATE_AND_ANONYMOUS, -1, 0]).await;
        if gave < 0 && gave > -4096 {
            break gave;
        }
        taken += 64;
        assert!(taken < 2048, "{taken} MiB");
    };
    assert_eq!(last, -i64::from(libc::ENOMEM));
    let process = alice.number(libc::SYS_getpid, &[]).await;
    let score = std::fs::read_to_string(format!("/proc/{process}/oom_score_adj")).unwrap();
    assert_eq!(score.trim(), "1000");
    bob.round().await;
}

#[tokio::test]
async fn a_tenants_process_that_reaches_the_managers_socket_is_no_client() {
    let folder = tokens(&["alice", "bob"]);
    // Without the filter, which would refuse the socket itself.
    let manager = isolating(&folder, &["--confine-builds", "off"]);
    let mut alice = Hostile::new(tenant(&manager, "alice").await, CALL, "call").await;
    let socket = alice.number(libc::SYS_socket, &[1, 1, 0]).await;
    assert!(socket >= 0, "{socket}");
    let mut address = vec![1, 0];
    address.extend_from_slice(manager.socket().to_str().unwrap().as_bytes());
    address.push(0);
    let length = i64::try_from(address.len()).unwrap();
    assert_eq!(alice.call(libc::SYS_connect, 2, &[socket, DATA, length], &address).await.0, 0);
    // A client of HTTP/2 receives the manager's settings first.
    let (heard, _) = alice.call(libc::SYS_read, 2, &[socket, DATA, 64], &[]).await;
    assert!(heard == 0 || heard == -i64::from(libc::ECONNRESET), "{heard}");
    manager.counts("fpga_device_manager_access_refusals_total 1").await;
    Adder::new(tenant(&manager, "bob").await).await.round().await;
}

#[tokio::test]
async fn forged_packets_and_frames_on_all_descriptors_end_their_own_tenants_sessions_at_most() {
    // A tenant for each packet: the process of an earlier one may still be ending.
    let tenants = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
    let folder = tokens(&[&tenants[..], &["bob"]].concat());
    let manager = isolating(&folder, &["--slots", "1"]);
    let mut bob = Adder::new(tenant(&manager, "bob").await).await;
    let digest = "\"sha256:0000000000000000000000000000000000000000000000000000000000000000\"";
    let forged: Vec<Vec<u8>> = vec![
        b"\"Confined\"".to_vec(),
        b"{\"Cancelled\":{\"session\":1}}".to_vec(),
        b"{\"Finished\":{\"task\":1099511627777}}".to_vec(),
        b"{\"Submit\":{\"session\":1,\"task\":1,\"kind\":null,\"demand\":\"AnySlot\"}}".to_vec(),
        format!("{{\"Ask\":{{\"question\":1,\"session\":1,\"bitstream\":{digest}}}}}").into_bytes(),
        format!("{{\"Reconfigured\":{{\"slot\":0,\"bitstream\":{digest},\"took_us\":18446744073709551615}}}}")
            .into_bytes(),
        format!("{{\"Counted\":{{\"bytes\":[[{0},{0}],[{0},{0}]],\"buffer_bytes\":[{0},{0}],\"refused\":[{0},{0},{0},{0},{0},{0}]}}}}", u64::MAX).into_bytes(),
        vec![b'['; 4096],
        // Frames of a session's link: an invalid message, a status, an end, and a wrong length.
        vec![5, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF],
        vec![6, 0, 0, 0, 1, 7, 0, 0, 0, b'x'],
        vec![1, 0, 0, 0, 2],
        vec![0xFF; 64],
    ];
    assert_eq!(forged.len(), tenants.len());
    for (name, bytes) in tenants.into_iter().zip(forged) {
        let mut alice = Hostile::new(tenant(&manager, name).await, SCRAWL, "scrawl").await;
        let length = i64::try_from(bytes.len()).unwrap();
        match alice.run(&[0, length], &bytes).await {
            Ok((numbers, _)) => assert!(numbers[0] > 0, "no descriptor took {bytes:?}"),
            Err(status) => assert_ne!(status.code(), Code::DeadlineExceeded, "{status}"),
        }
        drop(alice);
        bob.round().await;
    }
    drop(bob);
    manager.has_no_session().await;
    until_metrics(&manager, 0, 0).await;
    Adder::new(tenant(&manager, "bob").await).await.round().await;
}

#[tokio::test]
async fn an_endless_kernel_whose_client_has_gone_ends_with_its_tenants_process_and_all_that_it_started() {
    let folder = tokens(&["alice", "bob"]);
    let manager = isolating(&folder, &["--slots", "1", "--abandoned-timeout", "300ms"]);
    let mut bob = Adder::new(tenant(&manager, "bob").await).await;
    for (source, name, numbers) in [(ENDLESS, "endless", vec![]), (BOMB, "bomb", vec![0, SPAWN_FLAGS, 1_i64])]
    {
        let mut ask = Hostile::new(tenant(&manager, "alice").await, CALL, "call").await;
        let leader = u32::try_from(ask.number(libc::SYS_getpid, &[]).await).unwrap();
        let mut alice = Hostile::new(tenant(&manager, "alice").await, source, name).await;
        let begun = metric(&manager, "tasks_total");
        let write: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        if !write.is_empty() {
            let write = alice.client.write(alice.queue, alice.buffer, write).await;
            assert_eq!(alice.client.run(write).await, 0);
        }
        let launch = alice.client.launch(alice.queue, alice.kernel, vec![Value::Buffer(alice.buffer)], 1);
        alice.client.flush(vec![launch]).await;
        manager.counts("fpga_device_manager_slots_in_use 1").await;
        if name == "bomb" {
            until_async("it has started another", async || session_members(leader).len() == 2).await;
        } else {
            // A kernel that the runtime has not begun would end with its client.
            manager.computes().await;
        }
        drop((alice, ask));
        // Bob's task waits for the slot, which is free only when the process is no more.
        bob.round().await;
        assert!(!session_members(leader).contains(&leader));
        until_async("nobody is left", async || session_members(leader).is_empty()).await;
        assert!(metric(&manager, "tasks_total") > begun);
    }
    manager.counts("fpga_device_manager_tenant_processes_died_total 2").await;
}

#[tokio::test]
async fn an_endless_kernel_in_the_managers_own_process_has_the_manager_drain_and_end_as_failed() {
    let mut manager =
        Manager::start(&["--slots", "1", "--abandoned-timeout", "300ms", "--drain-timeout", "300ms"]);
    let neighbour = Client::connect(&manager).await;
    let mut client = Client::connect(&manager).await;
    let Ready { queue, kernel, buffer } = client.ready(ENDLESS, "endless", 8).await;
    let launch = client.launch(queue, kernel, vec![Value::Buffer(buffer)], 1);
    client.flush(vec![launch]).await;
    // A kernel that the runtime has not begun would end with its client.
    manager.computes().await;
    drop(client);
    let heard = tokio::time::timeout(patience(), neighbour.end()).await.expect("no hang");
    assert_eq!(heard.expect("an error").code(), Code::Unavailable);
    assert_eq!(manager.ended().code(), Some(1));
}

#[tokio::test]
async fn a_build_whose_client_has_gone_costs_its_tenants_other_sessions_nothing() {
    let folder = tokens(&["alice"]);
    // Shorter than a build takes.
    let manager = isolating(&folder, &["--slots", "1", "--abandoned-timeout", "20ms"]);
    let mut other = Adder::new(tenant(&manager, "alice").await).await;
    for round in 0..3 {
        let mut client = tenant(&manager, "alice").await;
        let context = client.context().await;
        let program =
            client.source(context, &format!("kernel void k(global int *a) {{ a[{round}]++; }}")).await;
        let (devices, options) = (Vec::new(), String::new());
        let build = v1::BuildProgram { program, devices, options, includes: None };
        client.cast(Method::BuildProgram(build)).await;
        drop(client);
        until_async("it is built, and nobody has it", async || manager.sessions() == 1).await;
        other.round().await;
    }
    assert_eq!(metric(&manager, "tenant_processes_died_total"), 0);
}
