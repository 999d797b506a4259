//! Slot time and reconfiguration time of a window.

use crate::units::Millis;
use std::ops::AddAssign;

/// Slot time and reconfiguration time of a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct WindowLoad {
    /// Slot time used.
    pub usage: Millis,
    /// Time spent reconfiguring.
    pub reconfiguration: Millis,
}

impl AddAssign for WindowLoad {
    fn add_assign(&mut self, other: Self) {
        self.usage += other.usage;
        self.reconfiguration += other.reconfiguration;
    }
}
