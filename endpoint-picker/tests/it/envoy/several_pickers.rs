//! Several pickers: all Envoys ask the same one, and another one takes over.

use super::bed::{Envoy, Served, Server, until_idle};
use axum::http::Method;
use bytes::Bytes;
use fpga_endpoint_picker::function::FunctionName;
use fpga_test_kit::until_async;

/// How many of the last requests the picker has chosen for.
fn picks(served: &Served) -> usize {
    let name = FunctionName::new("default", "echo");
    served.picker.with(|state, now| state.picks(&name, 1.0, now)).unwrap().picks.len()
}

async fn ask(envoy: &Envoy) {
    let (status, ..) = envoy.ask(Method::POST, "/function/echo", Bytes::new()).await;
    assert_eq!(status, 200, "with or without a picker requests go on");
}

#[tokio::test]
async fn all_envoys_ask_the_same_picker_and_another_one_when_that_is_killed() {
    let (first, second) = (Server::start("first"), Server::start("second"));
    let [mut one, mut other, mut third] = [(); 3].map(|()| Served::start(&[&first, &second]));
    let envoys = [
        Envoy::start_with(&[&one, &other, &third], "NONE").await,
        Envoy::start_with(&[&third, &one, &other], "NONE").await,
    ];
    let mut asked_before = Vec::new();
    for killed in 0..3 {
        let pickers = [&one, &other, &third];
        let before = pickers.map(picks);
        let owner = until_async(format!("a picker that is asked after {killed} were killed"), async || {
            for envoy in &envoys {
                ask(envoy).await;
            }
            (0..3).find(|place| picks(pickers[*place]) > before[*place])
        })
        .await;
        assert!(!asked_before.contains(&owner), "it was killed");
        // An Envoy that has not seen yet that the one before is gone asks nobody, but never another one.
        for _ in 0..8 {
            ask(&envoys[0]).await;
            ask(&envoys[1]).await;
        }
        let asked: Vec<usize> = (0..3).filter(|place| picks(pickers[*place]) > before[*place]).collect();
        assert_eq!(asked, [owner], "one picker for all Envoys");
        until_idle(&pickers[owner].picker).await;
        asked_before.push(owner);
        [&mut one, &mut other, &mut third][owner].server.kill();
    }
    for envoy in &envoys {
        ask(envoy).await;
    }
}
