//! The boards of a state that people have taken out of rotation.
//!
//! Such a board is published as unhealthy, so that readers of earlier versions place no pod on it either.
//! [`CordonedBoard::health`] has what the board itself reports.

use super::{DeviceState, NodeState, health_as_bool};
use crate::cordon::{Cordon, CordonedBoards};
use crate::device::Health;
use serde::{Deserialize, Serialize};

/// A board that is out of rotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CordonedBoard {
    /// Why, and since when.
    #[serde(flatten)]
    pub cordon: Cordon,
    /// Whether the board answers.
    #[serde(rename = "healthy", with = "health_as_bool")]
    pub health: Health,
}

impl NodeState {
    /// Takes these boards out of rotation. Boards that the node does not have are skipped.
    pub fn cordon(&mut self, boards: &CordonedBoards) {
        for device in &mut self.devices {
            if let Some(cordon) = boards.get(&device.id) {
                let health = std::mem::replace(&mut device.health, Health::Unhealthy);
                let cordoned = CordonedBoard { cordon: cordon.clone(), health };
                self.cordons.insert(device.id.clone(), cordoned);
            }
        }
    }

    /// Puts a board back into rotation.
    pub fn uncordon(&mut self, board: &str) {
        let Some(cordoned) = self.cordons.remove(board) else { return };
        for device in self.devices.iter_mut().filter(|device| device.id == board) {
            device.health = cordoned.health;
        }
    }

    /// Whether `device` answers, in rotation or not. `device` must belong to this state.
    #[must_use]
    pub fn reported_health(&self, device: &DeviceState) -> Health {
        self.cordons.get(&device.id).map_or(device.health, |cordoned| cordoned.health)
    }
}
