use super::*;
use crate::intake;
use crate::state::Record;
use proptest::prelude::*;
use std::collections::BTreeMap;

const LENGTH: Millis = Millis::from_secs(300);
const NOW: WallTime = WallTime(1_760_000_000_000);

fn body(seq: u64) -> Vec<u8> {
    format!(
        r#"[{{"timestamp_ms":{},"duration_ms":1000,"reconfiguration_ms":0,"bitstream_identifier":"b{seq}","reporter":1,"seq":{seq},"device":"dm0"}}]"#,
        NOW.0
    )
    .into_bytes()
}

/// Takes a request as the owner does.
fn take(checkpoint: &mut Checkpoint, state: &mut State, body: &[u8]) {
    apply(checkpoint, state, body);
    checkpoint.commit().unwrap();
}

fn apply(checkpoint: &mut Checkpoint, state: &mut State, body: &[u8]) {
    state.apply(&Record::Events(intake::events(body).unwrap()), NOW);
    checkpoint.add(Source::EventsBody(body), NOW).unwrap();
}

fn usage(state: &State) -> u64 {
    state.window().measure(state.moment(NOW).now, &BTreeMap::from([("dm0".to_owned(), 1000)])).usage.0
}

fn reopen(dir: &Path) -> Recovered {
    Checkpoint::open(dir, LENGTH, NOW).unwrap().1
}

#[test]
fn what_was_committed_is_there_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let (mut checkpoint, Recovered { mut state, .. }) = Checkpoint::open(dir.path(), LENGTH, NOW).unwrap();
    for seq in 1..=5 {
        take(&mut checkpoint, &mut state, &body(seq));
    }
    // Dropped without an orderly end, as after a signal.
    drop(checkpoint);
    let recovered = reopen(dir.path());
    assert_eq!((recovered.records, recovered.torn_bytes), (5, 0));
    assert_eq!(recovered.state, state);
    assert_eq!(reopen(dir.path()).records, 0, "a start leaves a snapshot and an empty journal");
}

#[test]
fn a_journal_cut_at_any_byte_keeps_what_came_before_and_counts_a_retry_once() {
    let origin = tempfile::tempdir().unwrap();
    let (mut checkpoint, Recovered { mut state, .. }) = Checkpoint::open(origin.path(), LENGTH, NOW).unwrap();
    let mut ends = vec![0];
    for seq in 1..=3 {
        take(&mut checkpoint, &mut state, &body(seq));
        ends.push(checkpoint.journal_bytes());
    }
    let (number, whole) = (checkpoint.number, ends[3]);
    drop(checkpoint);
    for cut in 0..=whole {
        let dir = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(origin.path()).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), dir.path().join(entry.file_name())).unwrap();
        }
        let journal = OpenOptions::new().write(true).open(journal_path(dir.path(), number)).unwrap();
        journal.set_len(cut).unwrap();
        let (mut checkpoint, mut recovered) = Checkpoint::open(dir.path(), LENGTH, NOW).unwrap();
        let acknowledged = ends.iter().filter(|end| **end <= cut).count() as u64 - 1;
        assert_eq!(recovered.records, acknowledged, "cut at {cut}");
        assert_eq!(recovered.torn_bytes, cut - ends[usize::try_from(acknowledged).unwrap()]);
        assert_eq!(usage(&recovered.state), 1000 * acknowledged);
        // The rest syncs the disk many times, so it runs only for every eighth cut.
        if cut % 8 != 0 {
            continue;
        }
        // The reporter got no acknowledgement and sends everything again.
        for seq in 1..=3 {
            apply(&mut checkpoint, &mut recovered.state, &body(seq));
        }
        checkpoint.commit().unwrap();
        assert_eq!(usage(&recovered.state), 3000);
        drop(checkpoint);
        assert_eq!(usage(&reopen(dir.path()).state), 3000);
    }
}

#[test]
fn compaction_loses_nothing_and_leaves_one_journal() {
    let dir = tempfile::tempdir().unwrap();
    let (mut checkpoint, Recovered { mut state, .. }) = Checkpoint::open(dir.path(), LENGTH, NOW).unwrap();
    take(&mut checkpoint, &mut state, &body(1));
    checkpoint.compact(&state).unwrap();
    take(&mut checkpoint, &mut state, &body(2));
    drop(checkpoint);
    assert_eq!(journals(dir.path()).unwrap().len(), 1);
    let recovered = reopen(dir.path());
    assert_eq!((recovered.records, recovered.state), (1, state));
}

#[test]
fn compactions_that_fail_leave_no_file_each() {
    let dir = tempfile::tempdir().unwrap();
    let (mut checkpoint, Recovered { mut state, .. }) = Checkpoint::open(dir.path(), LENGTH, NOW).unwrap();
    take(&mut checkpoint, &mut state, &body(1));
    // A folder of this name makes writing the snapshot fail.
    let in_the_way = dir.path().join("snapshot.new");
    fs::create_dir(&in_the_way).unwrap();
    for _ in 0..5 {
        assert!(checkpoint.compact(&state).is_err());
    }
    assert!(journals(dir.path()).unwrap().len() <= 2);
    fs::remove_dir(in_the_way).unwrap();
    checkpoint.compact(&state).unwrap();
    take(&mut checkpoint, &mut state, &body(2));
    drop(checkpoint);
    assert_eq!(journals(dir.path()).unwrap().len(), 1);
    assert_eq!(usage(&reopen(dir.path()).state), 2000);
}

#[test]
fn a_crash_between_the_steps_of_a_compaction_counts_nothing_twice() {
    let dir = tempfile::tempdir().unwrap();
    let (mut checkpoint, Recovered { mut state, .. }) = Checkpoint::open(dir.path(), LENGTH, NOW).unwrap();
    let plain = br#"{"timestamp_ms":1760000000000,"duration_ms":1000,"reconfiguration_ms":0,"bitstream_identifier":"b"}"#;
    take(&mut checkpoint, &mut state, plain);
    let (number, old) = (checkpoint.number, fs::read(journal_path(dir.path(), checkpoint.number)).unwrap());
    // Crash after the new journal was created and before the snapshot was written.
    create_journal(dir.path(), number + 1).unwrap();
    drop(checkpoint);
    let (mut checkpoint, recovered) = Checkpoint::open(dir.path(), LENGTH, NOW).unwrap();
    assert_eq!(usage(&recovered.state), 1000);
    // Crash after the snapshot was written and before the old journal was removed.
    checkpoint.compact(&recovered.state).unwrap();
    fs::write(journal_path(dir.path(), checkpoint.number - 1), old).unwrap();
    drop(checkpoint);
    assert_eq!(usage(&reopen(dir.path()).state), 1000);
}

#[test]
fn a_damaged_snapshot_is_put_aside_and_its_journal_is_not_taken_for_the_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (mut checkpoint, Recovered { mut state, .. }) = Checkpoint::open(dir.path(), LENGTH, NOW).unwrap();
    take(&mut checkpoint, &mut state, &body(1));
    checkpoint.compact(&state).unwrap();
    drop(checkpoint);
    let path = dir.path().join("snapshot");
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();
    let recovered = reopen(dir.path());
    assert!(recovered.damaged && recovered.state.is_untouched());
    assert!(dir.path().join("snapshot.damaged").exists());
    assert!(!reopen(dir.path()).damaged);
}

#[test]
fn another_length_of_the_window_keeps_what_it_can() {
    let dir = tempfile::tempdir().unwrap();
    let (mut checkpoint, Recovered { mut state, .. }) = Checkpoint::open(dir.path(), LENGTH, NOW).unwrap();
    take(&mut checkpoint, &mut state, &body(1));
    drop(checkpoint);
    let shorter = Checkpoint::open(dir.path(), Millis::from_secs(60), NOW).unwrap().1;
    assert_eq!(shorter.state.window().length(), Millis::from_secs(60));
    assert_eq!(usage(&shorter.state), 1000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn crashes_retries_and_compactions_in_any_order_count_every_event_once(
        steps in prop::collection::vec((0_u8..10, 1_u64..12), 1..40),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (mut checkpoint, recovered) = Checkpoint::open(dir.path(), LENGTH, NOW).unwrap();
        let mut state = recovered.state;
        let mut acknowledged = std::collections::BTreeSet::new();
        for (step, seq) in steps {
            match step {
                0 => checkpoint.compact(&state).unwrap(),
                1 | 2 => {
                    if step == 2 {
                        // Half a record reaches the file before the crash.
                        let mut half = Vec::new();
                        frame::encode(Source::EventsBody(&body(seq)), NOW, &mut half).unwrap();
                        half.truncate(half.len() / 2);
                        checkpoint.journal.as_mut().unwrap().write_all(&half).unwrap();
                    }
                    drop(checkpoint);
                    let reopened = Checkpoint::open(dir.path(), LENGTH, NOW).unwrap();
                    checkpoint = reopened.0;
                    state = reopened.1.state;
                }
                _ => {
                    take(&mut checkpoint, &mut state, &body(seq));
                    acknowledged.insert(seq);
                }
            }
            prop_assert_eq!(usage(&state), 1000 * acknowledged.len() as u64);
        }
    }
}
