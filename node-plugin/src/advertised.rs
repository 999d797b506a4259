//! The instances that the kubelet may give to containers: a fixed number for each board, of the resource for boards of
//! any vendor and, if the operator says so, of one for each vendor.

use crate::allocations::InstanceId;
use crate::api::device_plugin::{Device, HEALTHY, UNHEALTHY};
use crate::boards::Boards;
use fpga_core::names::{ACCELERATED_RESOURCE, OWN_PREFIX};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Time for which a board that doesn't answer keeps its instances: a manager that restarts is no loss. Pods that
/// are bound to a node without free instances fail for good.
const GRACE: Duration = Duration::from_secs(10);
/// Pause between two looks at the grace of boards.
const TICK: Duration = Duration::from_millis(500);

/// A resource, and the instances of it that the kubelet is told.
pub(crate) struct Offer {
    /// Vendor of the resource's boards; `None` if it stands for all boards.
    pub(crate) vendor: Option<String>,
    pub(crate) devices: watch::Sender<Vec<Device>>,
}

impl Offer {
    /// Name of the resource.
    pub(crate) fn resource(&self) -> String {
        self.vendor
            .as_ref()
            .map_or_else(|| ACCELERATED_RESOURCE.to_owned(), |vendor| format!("{OWN_PREFIX}{vendor}"))
    }
}

/// Keeps the offer up to date for ever. There is no offer before the first look at the boards.
pub(crate) async fn keep(offer: Offer, mut boards: watch::Receiver<Boards>, per_board: u32) {
    let mut advertised = Advertised { vendor: offer.vendor, ..Advertised::default() };
    // Who looks at the boards does so for ever.
    let _ = boards.changed().await;
    let mut is_first_offer = true;
    loop {
        let new = advertised.devices(&boards.borrow_and_update(), per_board, Instant::now());
        offer.devices.send_if_modified(|devices| {
            let changed = std::mem::take(&mut is_first_offer) || *devices != new;
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
    vendor: Option<String>,
    healthy_at: BTreeMap<String, Option<Instant>>,
}

impl Advertised {
    fn devices(&mut self, boards: &Boards, per_board: u32, now: Instant) -> Vec<Device> {
        let vendors = boards.vendors();
        let is_of_vendor = |board: &str| match &self.vendor {
            None => true,
            Some(vendor) => vendors.get(board) == Some(&vendor.as_str()),
        };
        for board in boards.known.iter().filter(|board| is_of_vendor(board)) {
            self.healthy_at.entry(board.clone()).or_default();
        }
        for board in &boards.healthy {
            // The vendor of a board that was seen before may be unknown for a while.
            if let Some(healthy_at) = self.healthy_at.get_mut(board) {
                *healthy_at = Some(now);
            }
        }
        let name = match &self.vendor {
            None => InstanceId::of_board,
            Some(_) => InstanceId::of_vendor,
        };
        let of_board = |(board, healthy_at): (&String, &Option<Instant>)| {
            let is_healthy = healthy_at.is_some_and(|at| now.saturating_duration_since(at) < GRACE);
            let health = if is_healthy { HEALTHY } else { UNHEALTHY };
            let device = |number| Device {
                id: name(board, number).as_str().to_owned(),
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
    use fpga_core::fixtures::{mk_board, mk_state};
    use fpga_core::node_state::{DeviceState, NodeState};

    #[test]
    fn a_resource_of_a_vendor_has_instances_of_that_vendors_boards_under_names_of_their_own() {
        let xilinx = DeviceState { vendor: "xilinx".into(), ..mk_board("b", &[]) };
        let state = NodeState { devices: vec![mk_board("a", &[]), xilinx], ..mk_state() };
        let both: std::collections::BTreeSet<String> = ["a".to_owned(), "b".to_owned()].into();
        let boards = Boards { known: both.clone(), healthy: both, state: Some(state) };
        let mut advertised = Advertised { vendor: Some("intel".into()), ..Advertised::default() };
        let mut ids = |boards: &Boards| {
            let devices = advertised.devices(boards, 2, Instant::now());
            devices.into_iter().map(|device| (device.id, device.health)).collect::<Vec<_>>()
        };
        let healthy = ["a-v0", "a-v1"].map(|id| (id.to_owned(), HEALTHY.to_owned()));
        assert_eq!(ids(&boards), healthy);
        assert_eq!(ids(&Boards { state: None, ..boards }), healthy, "a known board keeps its vendor");
    }

    #[tokio::test]
    async fn there_is_no_offer_before_the_first_look_and_then_also_one_of_no_board() {
        const DEADLINE: Duration = Duration::from_secs(30);
        let (looks, boards) = watch::channel(Boards::default());
        let (devices, mut offers) = watch::channel(Vec::new());
        let keeping = tokio::spawn(keep(Offer { vendor: None, devices }, boards, 2));
        tokio::task::yield_now().await;
        assert!(!offers.has_changed().unwrap());
        looks.send_replace(Boards::default());
        tokio::time::timeout(DEADLINE, offers.changed()).await.unwrap().unwrap();
        assert_eq!(offers.borrow().len(), 0);
        keeping.abort();
    }

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
