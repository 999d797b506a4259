//! The pool of lent slots: the real broker, real device managers, and the client program.

use fpga_tests::testbed::pool::{PoolBed, TENANTS};
use sha2::{Digest as _, Sha256};
use std::process::Output;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{ChildStdin, Command};

const DEADLINE: Duration = Duration::from_secs(120);
const KEY: &str = "key=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const COUNTER: &str = "counter=f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff";
const AES: [&str; 5] = ["aes-256-ctr", "--hex", KEY, "--hex", COUNTER];

/// Bytes that differ from job to job.
fn input(seed: u32, len: u32) -> Vec<u8> {
    (0..len).map(|at| at.wrapping_mul(2_654_435_761).wrapping_add(seed).to_le_bytes()[2]).collect()
}

/// Runs a job to its end.
async fn run(mut command: Command, input: Vec<u8>) -> Output {
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = tokio::spawn(async move { send(&mut stdin, &input).await });
    let output = tokio::time::timeout(DEADLINE, child.wait_with_output()).await.unwrap().unwrap();
    writer.await.unwrap();
    assert!(output.status.success(), "{}", output.status);
    output
}

async fn send(stdin: &mut ChildStdin, bytes: &[u8]) {
    stdin.write_all(bytes).await.unwrap();
    stdin.flush().await.unwrap();
}

#[tokio::test]
async fn jobs_of_two_tenants_from_any_node_share_two_slots_and_all_results_are_right() {
    let mut bed = PoolBed::start().await.unwrap();
    bed.start_manager().await.unwrap();
    bed.start_manager().await.unwrap();
    // Two of the jobs come from a node without a board.
    let jobs = [("node-0", 9_000_000), ("node-1", 3_000_000), ("office", 5_000_001)];
    let hashes = TENANTS.into_iter().zip([0, 100]).flat_map(|(tenant, seed)| {
        jobs.into_iter().zip(seed..).map(move |((node, len), seed)| (tenant, node, input(seed, len)))
    });
    let mut running = Vec::new();
    for (tenant, node, input) in hashes {
        let command = bed.job(tenant, node, &["sha-256"]).unwrap();
        let expected = Sha256::digest(&input);
        running.push((expected, tokio::spawn(run(command, input))));
    }
    for (expected, job) in running {
        assert_eq!(job.await.unwrap().stdout, expected.as_slice());
    }
    // What was encrypted on one slot is decrypted on any.
    let plain = input(7, 6_000_000);
    let secret = run(bed.job("mill", "office", &AES).unwrap(), plain.clone()).await.stdout;
    assert_eq!(secret.len(), plain.len());
    assert_ne!(secret, plain);
    let again = run(bed.job("shop", "node-1", &AES).unwrap(), secret).await.stdout;
    assert!(again == plain, "AES in counter mode undoes itself");
    assert!(bed.metric("fpga_pool_grants_total").await.unwrap() >= 8.0);
}

#[tokio::test]
async fn a_job_ends_right_though_its_broker_and_its_manager_are_killed() {
    let mut bed = PoolBed::start().await.unwrap();
    bed.start_manager().await.unwrap();
    let plain = input(1, 30_000_000);
    let mut child = bed.job("mill", "office", &AES).unwrap().spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    // The program reads no more than a few pieces while nobody reads what came of them.
    let input = plain.clone();
    let writing = tokio::spawn(async move { send(&mut stdin, &input).await });
    // The job has a slot when its first bytes come out.
    let mut secret = vec![0; 4_000_000];
    tokio::time::timeout(DEADLINE, stdout.read_exact(&mut secret)).await.unwrap().unwrap();
    bed.kill_broker().await;
    bed.kill_manager(0).await;
    bed.start_broker().await.unwrap();
    bed.start_manager().await.unwrap();
    let ended = tokio::time::timeout(DEADLINE, async {
        tokio::join!(writing, stdout.read_to_end(&mut secret), child.wait())
    });
    let (written, read, status) = ended.await.unwrap();
    written.unwrap();
    read.unwrap();
    assert!(status.unwrap().success());
    let undone = run(bed.job("mill", "office", &AES).unwrap(), secret).await.stdout;
    assert!(undone == plain, "no byte is lost and none comes twice");
}

#[tokio::test]
async fn a_job_without_a_token_or_a_board_is_told_why() {
    let bed = PoolBed::start().await.unwrap();
    let mut stranger = bed.job("mill", "office", &["sha-256"]).unwrap();
    stranger.env("FPGA_POOL_TOKEN_FILE", "").env("FPGA_POOL_TOKEN", "").stderr(std::process::Stdio::piped());
    let refused = stranger.args(["--wait", "2s"]).output().await.unwrap();
    assert!(!refused.status.success());
    let mut early = bed.job("mill", "office", &["sha-256", "--wait", "1s"]).unwrap();
    let early = early.stderr(std::process::Stdio::piped()).output().await.unwrap();
    assert_eq!(early.status.code(), Some(3), "{}", String::from_utf8_lossy(&early.stderr));
    let said = String::from_utf8_lossy(&early.stderr);
    assert!(said.contains("slot"), "{said}");
}
