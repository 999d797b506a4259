//! Ids that nobody else has and nobody can guess.

use crate::error::Error;
use ring::rand::{SecureRandom as _, SystemRandom};
use std::io;
use std::sync::Arc;

/// 128 random bits.
pub(crate) fn random_id() -> Result<u128, Error> {
    let mut bytes = [0; 16];
    let error = |_| Error::Thread(Arc::new(io::Error::other("the system has no random numbers")));
    SystemRandom::new().fill(&mut bytes).map_err(error)?;
    Ok(u128::from_be_bytes(bytes))
}
