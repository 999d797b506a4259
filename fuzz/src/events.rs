//! The events that reporters send to the collector.

use fpga_collector::intake;
use fpga_collector::state::{Record, State};
use fpga_core::device::UNKNOWN_SLOTS;
use fpga_core::event::Event;
use fpga_core::node_state::codec;
use fpga_core::units::{Millis, WallTime};

const WINDOW: Millis = Millis::from_secs(300);
const NOW: WallTime = WallTime(1_760_000_000_000);

/// Takes `data` as the body of `POST /v1/events`. An accepted event can be stored and read back and is counted once,
/// and the published usage never exceeds what the slots could have done.
///
/// # Panics
/// If one of these properties does not hold.
pub fn events(data: &[u8]) {
    let Ok(events) = intake::events(data) else { return };
    for event in &events {
        let text =
            serde_json::to_vec(event).unwrap_or_else(|error| panic!("{event:?} can't be kept: {error}"));
        let read: Event = serde_json::from_slice(&text)
            .unwrap_or_else(|error| panic!("{event:?} was kept and can't be read back: {error}"));
        assert_eq!(&read, event);
    }
    let anonymous = events.iter().filter(|event| event.identity.is_none()).count() as u64;
    let count = events.len() as u64;
    let batch = Record::Events(events);
    let mut state = State::new(WINDOW).unwrap_or_else(|error| panic!("{error}"));
    let first = state.apply(&batch, NOW);
    assert_eq!(first.accepted + first.duplicates, count);
    let retried = state.apply(&batch, NOW);
    assert_eq!(
        (retried.accepted, retried.duplicates),
        (anonymous, count - anonymous),
        "a retry counts again"
    );

    let published = state.node_state(NOW, Millis::from_secs(60), None);
    assert!(published.usage.0 <= WINDOW.0 * u64::from(UNKNOWN_SLOTS), "{:?} of use", published.usage);
    codec::encode(&published).unwrap_or_else(|error| panic!("the state can't be published: {error}"));
}
