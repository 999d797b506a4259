//! Replicas that come, go and are killed, and a picker that is killed.

use super::bed::{Envoy, Served, Server, set_replicas, until_idle};
use axum::http::Method;
use bytes::Bytes;
use fpga_test_kit::until_async;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

#[tokio::test]
async fn a_killed_replica_costs_a_retry_and_a_killed_picker_only_its_choice() {
    let (mut first, second) = (Server::start("first"), Server::start("second"));
    let mut served = Served::start(&[&first, &second]);
    let envoy = Envoy::start(&served, "NONE").await;
    assert_eq!(envoy.ask(Method::POST, "/function/echo", "x".into()).await.1, "first");
    until_idle(&served.picker).await;
    first.server.kill();
    until_async("an answer of the second", async || {
        // Envoy may send the first of these on the connection of before the kill, and see only then that it is closed.
        let (status, replica, body) = envoy.ask(Method::PUT, "/function/echo", "body".into()).await;
        assert_eq!((status, &body[..]), (200, b"body".as_slice()));
        replica == "second"
    })
    .await;
    assert_eq!(
        envoy.ask(Method::POST, "/function/echo", "x".into()).await.0,
        200,
        "the next endpoint is tried"
    );
    until_idle(&served.picker).await;
    served.server.kill();
    for _ in 0..6 {
        assert_eq!(
            envoy.ask(Method::POST, "/function/echo", "x".into()).await.0,
            200,
            "without a picker requests go on"
        );
    }
}

#[tokio::test]
async fn envoy_uses_a_new_replica_at_once_and_one_that_is_gone_no_longer() {
    let (first, second, third) = (Server::start("first"), Server::start("second"), Server::start("third"));
    let served = Served::start(&[&first]);
    let envoy = Envoy::start(&served, "NONE").await;
    assert_eq!(envoy.ask(Method::GET, "/function/echo", Bytes::new()).await.1, "first");
    // The first is gone from the function, so that only a new endpoint can answer.
    for (servers, name) in [([&second].as_slice(), "second"), (&[&third], "third"), (&[&first], "first")] {
        set_replicas(&served.picker, "echo", servers);
        until_async(format!("an answer of {name}"), async || {
            let (status, replica, _) = envoy.ask(Method::GET, "/function/echo", Bytes::new()).await;
            if (status, replica.as_str()) == (200, name) {
                Ok(())
            } else {
                Err(format!("{status} {replica}"))
            }
        })
        .await;
    }
    set_replicas(&served.picker, "echo", &[]);
    assert_eq!(envoy.ask(Method::GET, "/function/echo", Bytes::new()).await.0, 503);
}

#[tokio::test]
async fn without_a_picker_each_function_goes_to_its_own_replicas_in_turn() {
    let (first, second, other) = (Server::start("first"), Server::start("second"), Server::start("other"));
    let mut served = Served::start(&[&first, &second]);
    set_replicas(&served.picker, "alone", &[&other]);
    served.until_written(3).await;
    let envoy = Envoy::start(&served, "NONE").await;
    assert_eq!(envoy.ask(Method::GET, "/function/alone", Bytes::new()).await.1, "other");
    served.server.kill();
    let mut answers = BTreeMap::<String, usize>::new();
    for _ in 0..8 {
        *answers.entry(envoy.ask(Method::GET, "/function/echo", Bytes::new()).await.1).or_default() += 1;
        for path in ["/function/alone", "/function/alone.default/x?y=1"] {
            assert_eq!(envoy.ask(Method::GET, path, Bytes::new()).await.1, "other");
        }
    }
    assert_eq!(answers, BTreeMap::from([("first".to_owned(), 4), ("second".to_owned(), 4)]));
    assert_eq!(envoy.ask(Method::GET, "/function/nobody", Bytes::new()).await.0, 503);
}

#[tokio::test]
async fn replicas_come_and_go_under_load_and_no_request_is_lost() {
    const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let stays = Server::start("stays");
    let served = Served::start(&[&stays]);
    let envoy = Envoy::start(&served, "NONE").await;
    let end = AtomicBool::new(false);
    let load = async |worker: usize| {
        let mut answered = 0;
        while !end.load(Ordering::Relaxed) {
            let body = Bytes::from(format!("request {answered} of {worker}"));
            let (status, replica, back) = envoy.ask(Method::POST, "/function/echo", body.clone()).await;
            assert_eq!((status, back), (200, body), "by {replica}");
            answered += 1;
        }
        answered
    };
    let change = async {
        // A pod that is told to end serves on for a while: it has requests that were sent to it before.
        let mut ending = Vec::new();
        for name in NAMES {
            let comes = Server::start(name);
            set_replicas(&served.picker, "echo", &[&comes, &stays]);
            until_async(format!("an answer of {name}"), async || {
                envoy.ask(Method::POST, "/function/echo", Bytes::new()).await.1 == name
            })
            .await;
            set_replicas(&served.picker, "echo", &[&stays]);
            // A request that begins now knows that it is gone.
            assert_eq!(envoy.ask(Method::POST, "/function/echo", Bytes::new()).await.1, "stays");
            served.until_written(1).await;
            ending.push(comes);
        }
        end.store(true, Ordering::Relaxed);
    };
    let (first, second, third, ()) = futures::join!(load(1), load(2), load(3), change);
    eprintln!("{} requests while {} replicas came and went", first + second + third, NAMES.len());
    until_idle(&served.picker).await;
}
