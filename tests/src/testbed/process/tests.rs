use super::*;

fn spec(dir: &Path, script: &str) -> ProcessSpec {
    ProcessSpec::new("sh", "/bin/sh", dir.join("log")).args(["-c", script])
}

#[tokio::test]
async fn output_and_exit_status_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(&spec(dir.path(), "echo out; echo err >&2; exit 3")).unwrap();
    assert_eq!(process.wait().await.code(), Some(3));
    assert_eq!(process.log_tail(), "out\nerr\n");
    assert!(process.check_running().unwrap_err().to_string().contains("err"));
}

#[tokio::test]
async fn a_process_that_ignores_the_request_to_end_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let process =
        Process::start(&spec(dir.path(), "trap '' TERM; echo ready; while :; do sleep 1; done")).unwrap();
    while process.log_tail().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let status = process.stop(Duration::from_millis(100)).await;
    assert_eq!(status.signal(), Some(Signal::SIGKILL as i32));
}

#[tokio::test]
async fn what_a_process_started_ends_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let process = Process::start(&spec(dir.path(), "sleep 1000 & echo $!; exit 0")).unwrap();
    process.wait().await;
    let grandchild = Pid::from_raw(process.log_tail().trim().parse().unwrap());
    let gone = || match std::fs::read_to_string(format!("/proc/{grandchild}/stat")) {
        Ok(stat) => stat.contains(") Z"),
        Err(_) => true,
    };
    wait::until_within("the grandchild to end", Duration::from_secs(5), async || Ok(gone().then_some(())))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_missing_program_is_a_readable_error() {
    let dir = tempfile::tempdir().unwrap();
    let spec = ProcessSpec::new("nothing", "/no/such/program", dir.path().join("log"));
    let error = format!("{:#}", Process::start(&spec).unwrap_err());
    assert!(error.contains("can't start nothing (/no/such/program)"), "{error}");
}
