//! `kubectl fpga top --watch`, as its users start it.
use axum::routing::get;
use axum::{Json, Router};
use fpga_test_kit::patience;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::{TcpListener, TcpSocket};
use tokio::process::{Child, Command};

/// A port that is taken, and at which nobody listens.
fn silent() -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    socket
}

/// Starts `kubectl fpga top --watch=1` with these arguments.
fn start(args: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_kubectl-fpga"))
        .args(["top", "--watch=1"])
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn watching_as_json_tells_problems_on_standard_error_alone() {
    let port = silent();
    let silent = port.local_addr().unwrap();
    let mut top = start(&["-o", "json", "--extender", &format!("http://{silent}")]);
    let mut problems = BufReader::new(top.stderr.take().unwrap()).lines();
    for update in 0..2 {
        let problem = tokio::time::timeout(patience(), async {
            while let Some(line) = problems.next_line().await.unwrap() {
                if line.contains(&silent.to_string()) {
                    return;
                }
            }
            panic!("no more problems");
        });
        assert!(problem.await.is_ok(), "update {update} tells no problem");
    }
    top.kill().await.unwrap();
    let mut json = String::new();
    top.stdout.take().unwrap().read_to_string(&mut json).await.unwrap();
    assert_eq!(json, "");
}

#[tokio::test]
async fn watching_names_at_each_update_the_replica_that_does_not_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let answering = format!("http://{}", listener.local_addr().unwrap());
    let replica = Router::new().route("/nodes", get(async || Json(serde_json::json!([]))));
    tokio::spawn(async move { axum::serve(listener, replica).await });
    let port = silent();
    let silent = port.local_addr().unwrap();

    let mut top = start(&["--extender", &answering, "--extender", &format!("http://{silent}")]);
    let mut tables = BufReader::new(top.stdout.take().unwrap()).lines();
    let mut warnings = BufReader::new(top.stderr.take().unwrap()).lines();
    for update in 0..2 {
        let table = tokio::time::timeout(patience(), async {
            while let Some(line) = tables.next_line().await.unwrap() {
                if line == "No board has a state." {
                    return;
                }
            }
            panic!("no more tables");
        });
        table.await.unwrap();
        let warning = tokio::time::timeout(patience(), async {
            while let Some(line) = warnings.next_line().await.unwrap() {
                if line.starts_with("Warning: ") {
                    assert!(line.contains(&silent.to_string()), "{line}");
                    return;
                }
            }
            panic!("no more warnings");
        });
        assert!(warning.await.is_ok(), "update {update} warns of nothing");
    }
}
