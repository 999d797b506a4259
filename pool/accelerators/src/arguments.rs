//! The arguments of a job, which may be keys.

use crate::interface::{Interface, Parameter};
use std::fmt;
use zeroize::{ZeroizeOnDrop, Zeroizing};

/// Values for all parameters of an accelerator, one after the other in the order of the interface, as the kernel takes them.
///
/// Any of them may be a key. Only the manager that runs the job needs them; nothing else should get them. `Debug` shows their
/// length, and dropping them overwrites them with zeros.
pub struct Arguments(Zeroizing<Vec<u8>>);

/// The reason why values are no arguments of an accelerator. No value is part of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    /// A parameter has no value.
    #[error("the argument {name} is missing; give its {bytes} bytes")]
    Missing {
        /// Name of the parameter.
        name: String,
        /// Bytes of the parameter.
        bytes: u32,
    },
    /// A value is too short or too long.
    #[error("the argument {name} has {given} bytes; give {bytes}")]
    Length {
        /// Name of the parameter.
        name: String,
        /// Bytes of the parameter.
        bytes: u32,
        /// Bytes of the value.
        given: usize,
    },
    /// A value is for no parameter, or is the second one for it.
    #[error("{0:?} is no argument of the accelerator, or is given twice; leave it out")]
    Superfluous(String),
}

impl Interface {
    /// Checks the values of a job, each with the name of its parameter, and lays them out for the kernel.
    ///
    /// # Errors
    /// A value is missing, has another length than its parameter, or is for none.
    pub fn arguments(&self, values: &[(&str, &[u8])]) -> Result<Arguments, ArgumentError> {
        let parameters = &self.spec().parameters;
        let total = parameters.iter().map(|parameter| parameter.bytes as usize).sum();
        // All of the room at once: a vector that grows would leave copies of its bytes behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(total));
        for (index, (name, _)) in values.iter().enumerate() {
            let is_known = parameters.iter().any(|parameter| parameter.name == *name);
            if !is_known || values[..index].iter().any(|(other, _)| other == name) {
                return Err(ArgumentError::Superfluous((*name).to_owned()));
            }
        }
        for parameter in parameters {
            bytes.extend_from_slice(value_of(parameter, values)?);
        }
        Ok(Arguments(bytes))
    }
}

/// The value for a parameter.
fn value_of<'a>(parameter: &Parameter, values: &[(&str, &'a [u8])]) -> Result<&'a [u8], ArgumentError> {
    let Parameter { name, bytes } = parameter;
    let (name, bytes) = (name.clone(), *bytes);
    match values.iter().find(|(other, _)| *other == name) {
        None => Err(ArgumentError::Missing { name, bytes }),
        Some((_, value)) if value.len() == bytes as usize => Ok(value),
        Some((_, value)) => Err(ArgumentError::Length { name, bytes, given: value.len() }),
    }
}

impl Arguments {
    /// The bytes for the kernel. Who copies them has to overwrite the copy.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

/// The field does it.
impl ZeroizeOnDrop for Arguments {}

impl fmt::Debug for Arguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arguments({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Accelerator;

    const KEY: [u8; 32] = [0xab; 32];
    const COUNTER: [u8; 16] = [0xcd; 16];

    /// Values with the names of their parameters.
    type Values<'a> = &'a [(&'a str, &'a [u8])];

    fn arguments(values: Values) -> Result<Arguments, ArgumentError> {
        Accelerator::Aes256Ctr.interface().arguments(values)
    }

    #[test]
    fn arguments_lie_in_the_order_of_the_interface() {
        let arguments = arguments(&[("counter", &COUNTER), ("key", &KEY)]).unwrap();
        assert_eq!(arguments.expose(), [&KEY[..], &COUNTER].concat());
    }

    #[test]
    fn no_argument_shows_in_debug_or_in_an_error() {
        fn overwrites_itself(_: &impl ZeroizeOnDrop) {}
        let key = arguments(&[("counter", &COUNTER), ("key", &KEY)]).unwrap();
        overwrites_itself(&key);
        assert_eq!(format!("{key:?}"), "Arguments(48 bytes)");
        let wrong: [(Values, &str); 4] = [
            (&[("key", &KEY)], "the argument counter is missing; give its 16 bytes"),
            (&[("key", &KEY[1..]), ("counter", &COUNTER)], "the argument key has 31 bytes; give 32"),
            (&[("key", &KEY), ("counter", &COUNTER), ("iv", &COUNTER)], "\"iv\" is no argument"),
            (&[("key", &KEY), ("key", &KEY), ("counter", &COUNTER)], "\"key\" is no argument of the"),
        ];
        for (values, message) in wrong {
            let error = arguments(values).unwrap_err();
            assert!(error.to_string().contains(message), "{error}");
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("171") && !shown.contains("ab, "), "{shown}");
        }
    }
}
