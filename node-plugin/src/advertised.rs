//! The instances that the kubelet may give to containers: a fixed number for each board.

use crate::allocations::InstanceId;
use crate::api::device_plugin::{Device, HEALTHY, UNHEALTHY};
use crate::boards::Boards;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Time for which a board that doesn't answer keeps its instances: a manager that restarts is no loss. Pods that
/// are bound to a node without free instances fail for good.
const GRACE: Duration = Duration::from_secs(10);
/// Pause between two looks at the grace of boards.
const TICK: Duration = Duration::from_millis(500);

/// Keeps `devices` up to date for ever.
pub(crate) async fn keep(
    mut boards: watch::Receiver<Boards>,
    per_board: u32,
    devices: watch::Sender<Vec<Device>>,
) {
    let mut advertised = Advertised::default();
    loop {
        let new = advertised.devices(&boards.borrow_and_update(), per_board, Instant::now());
        devices.send_if_modified(|devices| {
            let changed = *devices != new;
            *devices = new;
            changed
        });
        // A grace ends without a change of the boards.
        let _ = tokio::time::timeout(TICK, boards.changed()).await;
    }
}

/// The boards that were ever seen, with the time of their last health.
#[derive(Debug, Default)]
struct Advertised {
    healthy_at: BTreeMap<String, Option<Instant>>,
}

impl Advertised {
    fn devices(&mut self, boards: &Boards, per_board: u32, now: Instant) -> Vec<Device> {
        for board in &boards.known {
            self.healthy_at.entry(board.clone()).or_default();
        }
        for board in &boards.healthy {
            self.healthy_at.insert(board.clone(), Some(now));
        }
        let of_board = |(board, healthy_at): (&String, &Option<Instant>)| {
            let is_healthy = healthy_at.is_some_and(|at| now.saturating_duration_since(at) < GRACE);
            let health = if is_healthy { HEALTHY } else { UNHEALTHY };
            let device = |number| Device {
                id: InstanceId::of_board(board, number).as_str().to_owned(),
                health: health.to_owned(),
                topology: None,
            };
            (0..per_board).map(device).collect::<Vec<_>>()
        };
        self.healthy_at.iter().flat_map(of_board).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_board_keeps_its_instances_for_a_while_without_health_and_then_loses_them() {
        let mut advertised = Advertised::default();
        let start = Instant::now();
        let boards = |healthy: &[&str]| Boards {
            known: ["a".to_owned(), "b".to_owned()].into(),
            healthy: healthy.iter().map(|board| (*board).to_owned()).collect(),
            state: None,
        };
        let mut healthy = |boards: &Boards, now| {
            let devices = advertised.devices(boards, 2, now);
            assert_eq!(devices.len(), 4);
            let healthy = devices.into_iter().filter(|device| device.health == HEALTHY);
            healthy.map(|device| device.id).collect::<Vec<_>>()
        };
        assert_eq!(healthy(&boards(&["a"]), start), ["a-0", "a-1"], "b was never healthy");
        assert_eq!(healthy(&boards(&[]), start + GRACE / 2), ["a-0", "a-1"]);
        assert_eq!(healthy(&boards(&[]), start + GRACE), [""; 0]);
        assert_eq!(healthy(&boards(&["b"]), start + GRACE), ["b-0", "b-1"]);
    }
}
