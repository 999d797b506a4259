//! The accelerator that a program asks for.

use crate::error::Error;
use fpga_accelerators::{Accelerator, Arguments, Interface};
use fpga_pool_leases::client::Repetition;
use std::fmt;
use std::sync::Arc;
use zeroize::Zeroizing;

/// The name of an accelerator and the values of its arguments. Values do not show in `Debug`.
#[derive(Clone)]
pub(crate) struct Asked {
    pub(crate) accelerator: String,
    arguments: Vec<(String, Zeroizing<Vec<u8>>)>,
}

/// An accelerator whose interface is known, with arguments that fit it.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) interface: Arc<Interface>,
    pub(crate) arguments: Arc<Arguments>,
}

impl Known {
    /// Whether steps may run again.
    pub(crate) fn repetition(&self) -> Repetition {
        if self.interface.spec().pure { Repetition::Allowed } else { Repetition::Forbidden }
    }
}

impl Asked {
    pub(crate) fn new(accelerator: String) -> Self {
        Self { accelerator, arguments: Vec::new() }
    }

    pub(crate) fn add(&mut self, name: String, value: &[u8]) {
        self.arguments.push((name, Zeroizing::new(value.to_vec())));
    }

    /// Takes the interface that the broker tells, as JSON, or else that of a shipped accelerator, and the arguments.
    pub(crate) fn learn(&mut self, told: Option<&str>) -> Result<Known, Error> {
        let name = &self.accelerator;
        let shipped = || Accelerator::named(name).map(Accelerator::interface);
        let interface: Interface = match told {
            Some(told) => serde_json::from_str(told)
                .map_err(|error| Error::Interface { accelerator: name.clone(), reason: error.to_string() })?,
            None => shipped().ok_or_else(|| Error::UnknownAccelerator(name.clone()))?,
        };
        let values = std::mem::take(&mut self.arguments);
        let values: Vec<_> = values.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();
        let arguments = Arc::new(interface.arguments(&values)?);
        Ok(Known { interface: Arc::new(interface), arguments })
    }
}

/// Leaves the values of the arguments out.
impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.arguments.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("Asked").field("accelerator", &self.accelerator).field("arguments", &names).finish()
    }
}
