//! A manager that starts where another one was killed.

use super::{Pool, Worker, bitstream, source};
use crate::harness::Manager;
use fpga_test_kit::processes::{runs, start_of};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// The folder of records of the one manager whose temporary files are here and that has tenant processes.
fn records(temporary: &Path) -> PathBuf {
    let entries = std::fs::read_dir(temporary).unwrap().map(|entry| entry.unwrap().path().join("processes"));
    let has_some = |records: &PathBuf| std::fs::read_dir(records).is_ok_and(|mut all| all.next().is_some());
    let all: Vec<_> = entries.filter(has_some).collect();
    let [records] = all.as_slice() else { panic!("{all:?}") };
    records.clone()
}

/// A process that the kernel does not kill with the manager: it stands for a tenant's process that ends late, as one does
/// that has much memory to free.
fn late_process(records: &Path) -> Child {
    let child = Command::new("sleep").arg("1000").spawn().unwrap();
    std::fs::write(records.join(child.id().to_string()), start_of(child.id()).unwrap()).unwrap();
    child
}

#[tokio::test]
async fn no_process_of_a_killed_manager_is_left_when_the_next_one_registers() {
    let temporary = tempfile::tempdir().unwrap();
    let start = |args: &[&str]| Manager::start_in(&[("TMPDIR", temporary.path().to_str().unwrap())], args);
    let args = ["--slots", "2", "--pool-slots", "1", "--isolate", "process"];
    let mut pool = Pool::start_by(start, &[bitstream(&source()).await], "", &args).await;
    let incarnation = pool.stream.incarnation;
    let client = pool.holder(7, 0).await;
    let mut worker = Worker::new(client, &pool.bitstream, "busy").await;
    worker.start_endless(&mut pool).await;
    let records = records(temporary.path());
    let recorded: Vec<u32> = std::fs::read_dir(&records)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap())
        .collect();
    let [tenant] = recorded.as_slice() else { panic!("{recorded:?}") };
    let started = start_of(*tenant).expect("it runs the kernel");
    let mut late = late_process(&records);

    pool.restart_manager(start).await;
    assert_ne!(pool.stream.incarnation, incarnation);
    let ended = late.try_wait().unwrap().expect("the manager has waited for its end");
    assert_eq!(ended.signal(), Some(libc::SIGKILL));
    // Whoever has to wait for the process may not have done so yet.
    let is_it = start_of(*tenant).is_some_and(|since| since == started);
    assert!(!(is_it && runs(*tenant)), "the process of the endless kernel runs");
    // Nothing of the former life holds the slot.
    drop(pool.holder(8, 0).await);
}
