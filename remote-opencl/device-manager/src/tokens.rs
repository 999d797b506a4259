//! Tokens that prove a tenant. A folder has one file for each tenant, with the tenant's name and the token as
//! content, like a mounted Kubernetes Secret; or a folder for each tenant, with a token in each file, as the node plugin
//! writes it. A file in such a folder that is called `WORKLOAD@ANYTHING` is of that workload of the tenant's. The folder is read again when it changes, and when a token is unknown, so that a new token counts at once. A
//! token whose file has gone ends the sessions that showed it.
//!
//! Only the digests of tokens are stored and looked up, so the duration of a comparison reveals nothing about a
//! token.

use fpga_board::dispatch::Tenant;
use fpga_core::bitstream::Digest;
use fpga_net::token_file;
use fpga_protocol::limits::MAX_TOKEN_BYTES;
use fpga_session::store::digest_of;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Minimum time between two readings for unknown tokens: wrong tokens cost the manager little.
const READ_AGAIN_INTERVAL: Duration = Duration::from_millis(50);
/// The lengths of tokens in bytes. Shorter ones can be guessed.
const LENGTHS: RangeInclusive<usize> = token_file::MIN_BYTES..=MAX_TOKEN_BYTES;

/// The tokens of a folder. Clones share them.
#[derive(Debug, Clone)]
pub struct Tokens {
    folder: PathBuf,
    known: Arc<Mutex<HashMap<Digest, Known>>>,
    /// Time of the last reading for an unknown token.
    read_again_at: Arc<tokio::sync::Mutex<Option<Instant>>>,
}

/// A token that counts.
#[derive(Debug)]
struct Known {
    holder: Holder,
    /// The receivers find the channel closed when the token does not count any more.
    validity: watch::Sender<()>,
}

/// Whose a token is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Holder {
    tenant: Tenant,
    /// The tenant's workload, if the file says one.
    workload: Option<Arc<str>>,
}

/// How long the proof of a tenant counts, and by which token it is.
#[derive(Debug, Clone)]
pub struct Validity(Option<Shown>);

/// A token that a client has shown.
#[derive(Debug, Clone)]
struct Shown {
    digest: Digest,
    workload: Option<Arc<str>>,
    /// Closed when the token does not count any more.
    counts: watch::Receiver<()>,
}

/// The tokens of a folder.
#[derive(Debug, Default)]
struct Reading {
    /// The holder of each token; `None` for a token of several, which does not count.
    holders: HashMap<Digest, Option<Holder>>,
    /// The first file that can't be used. Its token does not count, and others do.
    unusable: Option<TokensError>,
}

/// The reason why tokens can't be used.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// A file can't be read.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// The file or the folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A token is too short or too long.
    #[error(
        "the token in {} has {length} bytes; {} to {} are taken, for example 32 random bytes in hexadecimal",
        .path.display(),
        LENGTHS.start(),
        LENGTHS.end()
    )]
    Length {
        /// The file.
        path: PathBuf,
        /// Number of bytes that were read.
        length: usize,
    },
    /// The file's name could be that of a user, an address or a certificate.
    #[error("{} is no name of a tenant; a `:` is for users, addresses and certificates", .0.display())]
    Name(PathBuf),
    /// Two tenants have the same token.
    #[error("{} has the token of another tenant", .0.display())]
    Twice(PathBuf),
}

impl Validity {
    /// A proof that counts for ever.
    #[must_use]
    pub fn always() -> Self {
        Self(None)
    }

    /// Waits until the proof does not count any more.
    pub async fn ended(&mut self) {
        match &mut self.0 {
            // Nothing is sent: the only change is the end of the channel.
            Some(token) => while token.counts.changed().await.is_ok() {},
            None => std::future::pending().await,
        }
    }

    /// The digest of the token; `None` if the proof is another one.
    #[must_use]
    pub fn token(&self) -> Option<Digest> {
        self.0.as_ref().map(|shown| shown.digest)
    }

    /// The workload of the token, if anybody says one.
    #[must_use]
    pub fn workload(&self) -> Option<&str> {
        self.0.as_ref()?.workload.as_deref()
    }
}

impl Tokens {
    /// Reads the folder.
    ///
    /// # Errors
    /// [`TokensError`], if a file can't be read or is not valid; it has the path of the file.
    pub fn read(folder: &Path) -> Result<Self, TokensError> {
        let (known, read_again_at) = Default::default();
        let tokens = Self { folder: folder.to_owned(), known, read_again_at };
        tokens.reload()?;
        Ok(tokens)
    }

    /// Reads the folder again. Returns whether a token has changed.
    ///
    /// # Errors
    /// [`TokensError`]: the folder can't be read, and the previous tokens stay; or a file can't be used, and the tokens
    /// of the others count.
    pub fn reload(&self) -> Result<bool, TokensError> {
        let Reading { holders, unusable } = read_folder(&self.folder)?;
        let mut known = self.known.lock();
        let before = known.len();
        known.retain(|token, known| holders.get(token).and_then(Option::as_ref) == Some(&known.holder));
        let mut changed = known.len() != before;
        for (token, holder) in holders {
            let Some(holder) = holder else { continue };
            known.entry(token).or_insert_with(|| {
                changed = true;
                Known { holder, validity: watch::Sender::new(()) }
            });
        }
        unusable.map_or(Ok(changed), Err)
    }

    /// Reads the folder again for a token that is unknown. Callers at the same time share one reading.
    pub async fn read_again(&self) {
        let called_at = Instant::now();
        let mut read_at = self.read_again_at.lock().await;
        match *read_at {
            Some(at) if at >= called_at => return,
            Some(at) => sleep_until(at + READ_AGAIN_INTERVAL).await,
            None => {}
        }
        *read_at = Some(Instant::now());
        // The regular reading tells the error.
        let _ = self.reload();
    }

    /// The tenant with this token, and how long the token counts.
    #[must_use]
    pub fn prove(&self, token: &str) -> Option<(Tenant, Validity)> {
        let token = token.trim();
        if !LENGTHS.contains(&token.len()) {
            return None;
        }
        let digest = digest_of(token.as_bytes());
        let known = self.known.lock();
        let known = known.get(&digest)?;
        let Holder { tenant, workload } = known.holder.clone();
        let shown = Shown { digest, workload, counts: known.validity.subscribe() };
        Some((tenant, Validity(Some(shown))))
    }

    /// Number of tokens.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.lock().len()
    }
}

/// Reads a folder of tokens.
///
/// # Errors
/// The folder itself can't be read.
fn read_folder(folder: &Path) -> Result<Reading, TokensError> {
    let mut reading = Reading::default();
    for path in visible_files(folder)? {
        if let Err(error) = reading.add_tenant(path) {
            reading.unusable.get_or_insert(error);
        }
    }
    Ok(reading)
}

impl Reading {
    /// Adds the tokens of a tenant's file or folder, as far as they can be used.
    fn add_tenant(&mut self, path: PathBuf) -> Result<(), TokensError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.contains(':') {
            return Err(TokensError::Name(path));
        }
        let tenant = Tenant::new(&name);
        let is_folder = path.is_dir();
        let files = if is_folder { visible_files(&path)? } else { vec![path] };
        for file in files {
            match read_token(&file) {
                Ok(None) => {}
                Ok(Some(token)) => {
                    let twice = self.holders.contains_key(&token);
                    let workload = is_folder.then(|| workload_of(&file)).flatten();
                    let holder = Holder { tenant: tenant.clone(), workload };
                    self.holders.insert(token, (!twice).then_some(holder));
                    if twice {
                        self.unusable.get_or_insert(TokensError::Twice(file));
                    }
                }
                Err(error) => {
                    self.unusable.get_or_insert(error);
                }
            }
        }
        Ok(())
    }
}

/// The entries of a folder. Kubernetes keeps the content of mounted volumes in folders whose names begin with a dot,
/// and files that are being written have such names.
fn visible_files(folder: &Path) -> Result<Vec<PathBuf>, TokensError> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) => return Err(unreadable(folder, error)),
        Ok(entries) => entries,
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let paths = paths.collect::<io::Result<Vec<_>>>().map_err(|error| unreadable(folder, error))?;
    let is_visible =
        |path: &PathBuf| !path.file_name().unwrap_or_default().to_string_lossy().starts_with('.');
    Ok(paths.into_iter().filter(is_visible).collect())
}

/// The workload that the name of a token's file says.
fn workload_of(file: &Path) -> Option<Arc<str>> {
    let (workload, _) = file.file_name()?.to_str()?.split_once('@')?;
    (!workload.is_empty()).then(|| workload.into())
}

/// The digest of the token in a file; `None` if the file has just been removed, which revokes its token.
fn read_token(path: &Path) -> Result<Option<Digest>, TokensError> {
    match token_file::read_text(path, MAX_TOKEN_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(path, error)),
        Ok(token) if LENGTHS.contains(&token.len()) => Ok(Some(digest_of(token.as_bytes()))),
        Ok(token) => Err(TokensError::Length { path: path.to_owned(), length: token.len() }),
    }
}

fn unreadable(path: &Path, source: io::Error) -> TokensError {
    TokensError::Read { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(tokens: &Tokens, token: &str) -> Option<Tenant> {
        tokens.prove(token).map(|(tenant, _)| tenant)
    }

    #[test]
    fn a_token_names_its_tenant_until_the_folder_says_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, token: &str| std::fs::write(folder.path().join(name), token).unwrap();
        write("alice", "0123456789abcdef\n");
        write(".hidden", "x");
        let tokens = Tokens::read(folder.path()).unwrap();
        assert_eq!(tenant(&tokens, "0123456789abcdef"), Some(Tenant::new("alice")));
        assert_eq!(tenant(&tokens, "0123456789abcdee"), None);
        assert_eq!((tenant(&tokens, ""), tenant(&tokens, "x")), (None, None));
        write("alice", "fedcba9876543210");
        assert!(tokens.reload().unwrap());
        assert!(!tokens.reload().unwrap());
        assert_eq!(tenant(&tokens, "0123456789abcdef"), None);
        assert_eq!(tenant(&tokens, "fedcba9876543210"), Some(Tenant::new("alice")));
    }

    #[tokio::test]
    async fn a_tenants_folder_has_many_tokens_and_a_new_one_counts_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let shop = folder.path().join("shop");
        std::fs::create_dir(&shop).unwrap();
        let tokens = Tokens::read(folder.path()).unwrap();
        for (name, token) in [("a1", "0123456789abcdef"), ("a2", "fedcba9876543210"), (".a3.partial", "x")] {
            std::fs::write(shop.join(name), token).unwrap();
        }
        tokens.read_again().await;
        assert_eq!(tenant(&tokens, "0123456789abcdef"), Some(Tenant::new("shop")));
        assert_eq!(tenant(&tokens, "fedcba9876543210"), Some(Tenant::new("shop")));
        std::fs::remove_file(shop.join("a1")).unwrap();
        tokens.read_again().await;
        assert_eq!((tenant(&tokens, "0123456789abcdef"), tokens.len()), (None, 1));
    }

    #[test]
    fn the_name_of_a_file_in_a_tenants_folder_says_the_workload() {
        let folder = tempfile::tempdir().unwrap();
        let shop = folder.path().join("shop");
        std::fs::create_dir(&shop).unwrap();
        for (path, token) in [
            (shop.join("sobel@1f"), "token-of-a-sobel"),
            (shop.join("plain"), "token-of-no-workload"),
            (shop.join("@1f"), "token-of-an-empty-one"),
            (folder.path().join("sobel@shop"), "token-of-a-tenant"),
        ] {
            std::fs::write(path, token).unwrap();
        }
        let tokens = Tokens::read(folder.path()).unwrap();
        let workload = |token: &str| {
            let (tenant, validity) = tokens.prove(token).unwrap();
            (tenant.as_str().to_owned(), validity.workload().map(str::to_owned))
        };
        assert_eq!(workload("token-of-a-sobel"), ("shop".into(), Some("sobel".into())));
        assert_eq!(workload("token-of-no-workload"), ("shop".into(), None));
        assert_eq!(workload("token-of-an-empty-one"), ("shop".into(), None));
        assert_eq!(workload("token-of-a-tenant"), ("sobel@shop".into(), None));
    }

    #[test]
    fn folders_that_could_let_the_wrong_one_in_are_refused() {
        for (name, token) in [("a", "short"), ("uid:0", "0123456789abcdef"), ("b", "0123456789abcdefG")] {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("c"), "0123456789abcdefG").unwrap();
            std::fs::write(folder.path().join(name), token).unwrap();
            let error = Tokens::read(folder.path()).unwrap_err().to_string();
            assert!(error.contains(folder.path().to_str().unwrap()), "{error}");
        }
    }

    #[tokio::test]
    async fn a_token_counts_until_its_file_has_gone_also_where_another_file_can_not_be_used() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, token: &str| std::fs::write(folder.path().join(name), token).unwrap();
        write("alice", "0123456789abcdef");
        write("bob", "fedcba9876543210");
        let tokens = Tokens::read(folder.path()).unwrap();
        let (_, mut of_alice) = tokens.prove("0123456789abcdef").unwrap();
        assert_eq!(of_alice.token(), Some(digest_of(b"0123456789abcdef")));
        let (_, mut of_bob) = tokens.prove("fedcba9876543210").unwrap();
        std::fs::remove_file(folder.path().join("alice")).unwrap();
        write("carol", "short");
        let error = tokens.reload().unwrap_err().to_string();
        assert!(error.contains("carol"), "{error}");
        of_alice.ended().await;
        assert_eq!(tenant(&tokens, "0123456789abcdef"), None);
        assert_eq!(tenant(&tokens, "fedcba9876543210"), Some(Tenant::new("bob")));
        let of_bob = tokio::time::timeout(Duration::ZERO, of_bob.ended());
        assert!(of_bob.await.is_err(), "bob's token counts");
    }

    #[test]
    fn a_token_of_two_tenants_is_nobodys() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("alice"), "0123456789abcdef").unwrap();
        let tokens = Tokens::read(folder.path()).unwrap();
        std::fs::write(folder.path().join("bob"), "0123456789abcdef").unwrap();
        assert!(matches!(tokens.reload(), Err(TokensError::Twice(_))));
        assert_eq!(tenant(&tokens, "0123456789abcdef"), None);
    }
}
