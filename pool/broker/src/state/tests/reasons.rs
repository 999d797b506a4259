//! What people are told of a job that waits.

use super::*;

/// The reasons that the client was told, each with the number of jobs before.
fn reasons(outputs: &[Output]) -> Vec<(u64, String)> {
    let reason = |output: &Output| match output {
        Output::ToClient(_, ToClient::Waits(Waits { ahead, reason, .. })) => Some((*ahead, reason.clone())),
        _ => None,
    };
    outputs.iter().filter_map(reason).collect()
}

#[test]
fn a_job_that_waits_is_told_at_once_for_what_and_a_second_later_how_many_come_before() {
    let mut bench = Bench::new("");
    bench.register(1, vec![SlotStatus::Free]);
    let granted = bench.run(1);
    assert_eq!((prepares(&granted).len(), reasons(&granted)), (1, vec![]));
    for job in [2, 3] {
        assert_eq!(reasons(&bench.run(job)), [(0, "all fitting slots are taken".to_owned())]);
    }
    let told = reasons(&bench.pass(Millis::from_secs(1)));
    assert!(told.contains(&(1, "all fitting slots are taken".to_owned())), "{told:?}");
    assert!(told.iter().any(|(_, reason)| reason.contains("loads the bitstream of aes")), "{told:?}");
    assert_eq!(reasons(&bench.pass(Millis::from_secs(1))), []);
}

#[test]
fn a_client_that_asks_again_is_told_again() {
    let mut bench = Bench::new("");
    let told = reasons(&bench.run(1));
    assert!(told[0].1.contains("no such board lends a slot that works"), "{told:?}");
    bench.input(Input::ClientClosed(CLIENT));
    assert_eq!(reasons(&bench.run(1)), told);
}

#[test]
fn a_job_whose_accelerator_is_in_no_library_is_told_that() {
    let mut bench = Bench::new("");
    bench.register(1, vec![SlotStatus::Free]);
    let told = reasons(&bench.want(1, "unknown", Work::Run { bytes: 1 }));
    assert!(told[0].1.contains("the library has no bitstream of it for a;"), "{told:?}");
}

#[test]
fn a_file_that_a_manager_lacks_is_the_reason_why_a_job_waits_and_the_error_with_which_it_ends() {
    let mut bench = Bench::new("");
    bench.register(1, vec![SlotStatus::Free; 2]);
    let mut todo = prepares(&bench.run(1));
    let mut told = Vec::new();
    while let Some((manager, lease)) = todo.pop() {
        let refused = ManagerToBroker::Refused { lease: lease.id, why: Refusal::NoFile };
        todo.extend(prepares(&bench.manager(manager, refused)));
        bench.report(manager, lease.slot, SlotStatus::Free);
        told.extend(reasons(&bench.pass(Millis::from_secs(1))));
    }
    let digest = Digest::from_bytes([1; 32]);
    let file = format!("board b on node n1 has no file of the bitstream {digest}; bring the file");
    assert!(told.last().unwrap().1.contains(&file), "{told:?}");
    let later = reasons(&bench.run(2));
    assert!(later[0].1.contains(&file), "{later:?}");
    let ended = cancelled(&bench.pass(Millis::from_secs(30)));
    assert!(
        ended.iter().all(|(_, why, text)| *why == CancelCause::NoFittingSlot && text.contains(&file)),
        "{ended:?}"
    );
    assert_eq!(ended.len(), 2);
    assert!(ended[0].2.len() <= fpga_pool_api::limits::MAX_TEXT_BYTES);
}

#[test]
fn a_job_that_asks_while_the_broker_learns_is_told_that() {
    let mut bench = Bench::listening("");
    let told = reasons(&bench.run(1));
    assert!(told[0].1.contains("has just begun"), "{told:?}");
}

#[test]
fn a_thousand_waiting_jobs_are_told_in_parts_each_with_the_number_of_those_before() {
    let mut bench = Bench::new("");
    bench.register(1, vec![SlotStatus::Free]);
    bench.run(1);
    for job in 2..1000 {
        bench.run(job);
    }
    let mut told = Vec::new();
    let end = bench.now.now + Millis::from_secs(2);
    while let Some(due) = bench.state.next_deadline().filter(|due| *due <= end) {
        bench.now.now = due;
        let now = reasons(&bench.state.tick(bench.now));
        assert!(now.len() <= 256, "{} jobs are told at once", now.len());
        told.extend(now.into_iter().filter(|(_, reason)| reason == "all fitting slots are taken"));
    }
    // The first one that waits had been told that none is before it.
    told.sort_unstable();
    let ahead: Vec<u64> = told.into_iter().map(|(ahead, _)| ahead).collect();
    assert_eq!(ahead, (1..998).collect::<Vec<u64>>());
}

#[test]
fn a_job_that_leaves_during_a_round_is_before_nobody() {
    let mut bench = Bench::new("");
    bench.register(1, vec![SlotStatus::Free]);
    for job in 1..=600 {
        bench.run(job);
    }
    let mut told = reasons(&bench.pass(Millis(1000)));
    // The round has ordered some jobs, and told none of them.
    let is_counted = |told: &[(u64, String)]| told.iter().any(|(ahead, _)| *ahead > 0);
    assert!(!is_counted(&told));
    bench.cancel(2);
    told = reasons(&bench.pass(Millis(100)));
    assert_eq!(told.iter().map(|(ahead, _)| *ahead).max(), Some(597));
}

#[test]
fn a_file_that_no_manager_has_leaves_the_only_slot_to_other_jobs() {
    let mut bench = Bench::new("");
    let [aes, sobel] = [1, 2].map(|byte| Digest::from_bytes([byte; 32]));
    let accelerator =
        |name, digest| format!("[[accelerators.{name}]]\nboard = \"a10\"\ndigest = \"{digest}\"\n");
    let library = accelerator("aes", aes) + &accelerator("sobel", sobel);
    bench.input(Input::Catalog(Catalog::parse(&library).unwrap()));
    bench.register(1, vec![SlotStatus::Free]);
    let (manager, lease) = prepares(&bench.run(1)).remove(0);
    bench.manager(manager, ManagerToBroker::Refused { lease: lease.id, why: Refusal::NoFile });
    bench.report(manager, lease.slot, SlotStatus::Free);
    assert_eq!(prepares(&bench.want(2, "sobel", Work::Run { bytes: 10 })).len(), 1);
}
