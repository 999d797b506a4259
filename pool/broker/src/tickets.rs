//! Tickets: first arrivals that a client can show and can't make.

use fpga_board::dispatch::Tenant;
use fpga_pool_api::client::SealedTicket;
use fpga_pool_leases::lease::Ticket;
use ring::hmac;
use ring::rand::SystemRandom;
use std::fmt;
use std::path::{Path, PathBuf};

/// Minimum length of a key, in bytes.
pub const MIN_KEY_BYTES: usize = 32;
/// Maximum length of a key, in bytes.
const MAX_KEY_BYTES: usize = 4096;
/// What the code covers first, so that the key may have other uses.
const PURPOSE: &[u8] = b"fpga-pool ticket 1";

/// The key of a pool's tickets. All brokers of the pool have the same.
pub struct TicketKey(hmac::Key);

/// The reason why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum TicketKeyError {
    /// The file can't be read.
    #[error("{path} can't be read")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The file is no key.
    #[error("{0} has no key of {MIN_KEY_BYTES} to {MAX_KEY_BYTES} bytes; make one by `openssl rand -hex 32`")]
    Length(PathBuf),
    /// The system has no randomness.
    #[error("the system gives no random bytes")]
    NoRandom,
}

impl TicketKey {
    /// Reads the key from a file, without the white space around it.
    ///
    /// # Errors
    /// [`TicketKeyError`].
    pub fn read(path: &Path) -> Result<Self, TicketKeyError> {
        let text = fpga_net::token_file::read_text(path, MAX_KEY_BYTES)
            .map_err(|source| TicketKeyError::Io { path: path.to_owned(), source })?;
        if !(MIN_KEY_BYTES..=MAX_KEY_BYTES).contains(&text.len()) {
            return Err(TicketKeyError::Length(path.to_owned()));
        }
        Ok(Self::of(text.as_bytes()))
    }

    /// A new key, for a broker without others.
    ///
    /// # Errors
    /// [`TicketKeyError::NoRandom`].
    pub fn generate() -> Result<Self, TicketKeyError> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        key.map(Self).map_err(|_| TicketKeyError::NoRandom)
    }

    /// The key with these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// A tenant's ticket with its code. Another tenant can't use it.
    #[must_use]
    pub fn seal(&self, ticket: Ticket, tenant: &Tenant) -> SealedTicket {
        let tag = hmac::sign(&self.0, &covered(&ticket, tenant));
        let mut code = [0; 32];
        for (to, from) in code.iter_mut().zip(tag.as_ref()) {
            *to = *from;
        }
        SealedTicket { ticket, code }
    }

    /// The ticket, if its code is right.
    #[must_use]
    pub fn open(&self, sealed: &SealedTicket, tenant: &Tenant) -> Option<Ticket> {
        let is_right = hmac::verify(&self.0, &covered(&sealed.ticket, tenant), &sealed.code).is_ok();
        is_right.then_some(sealed.ticket)
    }
}

/// All parts but the last have a fixed length, so that no two tickets have the same bytes.
fn covered(ticket: &Ticket, tenant: &Tenant) -> Vec<u8> {
    let mut bytes = PURPOSE.to_vec();
    bytes.extend(ticket.job.0.to_be_bytes());
    bytes.extend(ticket.first_arrival.0.to_be_bytes());
    bytes.extend(tenant.as_str().as_bytes());
    bytes
}

impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketKey").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_core::units::WallTime;
    use fpga_pool_leases::ids::JobUuid;

    #[test]
    fn a_ticket_opens_for_its_tenant_and_job_only_as_it_was_sealed() {
        let key = TicketKey::of(&[1; 32]);
        let tenant = Tenant::new("a");
        let ticket = Ticket { job: JobUuid(5), first_arrival: WallTime(7) };
        let sealed = key.seal(ticket, &tenant);
        assert_eq!(key.open(&sealed, &tenant), Some(ticket));
        assert_eq!(key.open(&sealed, &Tenant::new("b")), None);
        assert_eq!(TicketKey::of(&[2; 32]).open(&sealed, &tenant), None);
        let earlier = Ticket { first_arrival: WallTime(6), ..ticket };
        assert_eq!(key.open(&SealedTicket { ticket: earlier, ..sealed }, &tenant), None);
        let other = Ticket { job: JobUuid(4), ..ticket };
        assert_eq!(key.open(&SealedTicket { ticket: other, ..sealed }, &tenant), None);
        assert_eq!(key.open(&SealedTicket { code: [0; 32], ..sealed }, &tenant), None);
    }

    #[test]
    fn a_key_in_a_file_has_a_minimum_length() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, "short\n").unwrap();
        assert!(TicketKey::read(&path).unwrap_err().to_string().contains("openssl rand"));
        std::fs::write(&path, "x".repeat(64)).unwrap();
        assert!(TicketKey::read(&path).is_ok());
    }
}
