//! Properties that must hold for any bytes that the services receive: from kube-scheduler, reporters, anybody who may
//! annotate a node, OpenCL clients, the processes of hostile tenants, and the parties of the pool. Sessions run over the
//! OpenCL runtime of the environment.
//!
//! Each function takes hostile bytes and panics if a property does not hold. `make fuzz` lets libFuzzer search for
//! such bytes (`fuzz/libfuzzer`); the tests here only use the committed seeds and random changes of them.
#![forbid(unsafe_code)]
#![allow(clippy::panic, reason = "a panic is how a broken promise is told")]

mod client_messages;
mod events;
mod node_state;
mod pool_messages;
mod request;
mod ring_frames;
mod tenant_packets;

pub use client_messages::client_messages;
pub use events::events;
pub use node_state::node_state;
pub use pool_messages::pool_messages;
pub use request::request;
pub use ring_frames::ring_frames;
pub use tenant_packets::tenant_packets;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use std::path::Path;

    type Target = fn(&[u8]);

    const TARGETS: [(&str, Target); 7] = [
        ("client_messages", super::client_messages),
        ("events", super::events),
        ("node_state", super::node_state),
        ("pool_messages", super::pool_messages),
        ("request", super::request),
        ("ring_frames", super::ring_frames),
        ("tenant_packets", super::tenant_packets),
    ];

    fn seeds(target: &str) -> Vec<Vec<u8>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
        let files = std::fs::read_dir(folder).unwrap();
        files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect()
    }

    #[test]
    fn the_promises_hold_for_the_seeds() {
        for (name, target) in TARGETS {
            let seeds = seeds(name);
            assert!(!seeds.is_empty(), "no seeds for {name}");
            seeds.iter().for_each(|seed| target(seed));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_promises_hold_for_seeds_with_bytes_changed(
            which in any::<prop::sample::Index>(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            for (name, target) in TARGETS {
                let seeds = seeds(name);
                let mut data = which.get(&seeds).clone();
                for (place, byte) in &changes {
                    *place.get_mut(&mut data) = *byte;
                }
                target(&data);
            }
        }
    }
}
