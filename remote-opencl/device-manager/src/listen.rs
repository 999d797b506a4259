//! The sockets that the manager listens on: unix sockets, over which the kernel identifies the peer, and TCP, which
//! needs an explicit flag.

use fpga_protocol::segments::SIDE_SUFFIX;
use std::fmt;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Who may connect to a unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Callers {
    /// The socket's owner and group.
    OwnerAndGroup,
    /// Every user, because each session must show a token.
    Everyone,
}

impl Callers {
    /// The mode of the socket's file.
    fn mode(self) -> u32 {
        match self {
            Self::OwnerAndGroup => 0o660,
            Self::Everyone => 0o666,
        }
    }
}

/// An address in the syntax of `--listen`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// `unix:/PATH`
    Unix(PathBuf),
    /// `tcp://HOST:PORT`
    Tcp(String),
}

/// A bound socket. It is still in blocking mode.
#[derive(Debug)]
pub enum Listener {
    /// A unix socket.
    Unix(UnixListener),
    /// A TCP socket.
    Tcp(TcpListener),
    /// A TCP socket for sessions with a lease.
    Pool(TcpListener),
    /// The unix socket that passes descriptors of shared memory.
    Side(UnixListener),
}

/// A socket file. It is removed on drop if it still is the file that was made.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    inode: u64,
}

/// The text is not an [`Address`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no address to listen on; write `unix:/PATH/TO.sock` or `tcp://127.0.0.1:PORT`")]
pub struct InvalidAddress(String);

/// The reason why the manager can't listen on an address.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another process accepts connections there.
    #[error("{} is in use: another process answers there", .0.display())]
    InUse(PathBuf),
    /// The path holds a file that is not a socket. The file is left alone.
    #[error("{} exists and is no socket; remove it, or name another path", .0.display())]
    NotASocket(PathBuf),
    /// The socket's folder does not exist.
    #[error("the folder of {} does not exist; make it, or name another path", .0.display())]
    NoFolder(PathBuf),
    /// The system refused.
    #[error("cannot listen on {address}: {source}")]
    Bind {
        /// The address.
        address: Address,
        /// The system's error.
        source: io::Error,
    },
}

impl Address {
    /// Binds a listening socket. The returned address has the port that the system chose if the port was 0.
    ///
    /// # Errors
    /// [`ListenError`], if the address is in use or can't be bound.
    pub fn bind(&self, callers: Callers) -> Result<(Listener, Self, Option<SocketFile>), ListenError> {
        let failed = |source| ListenError::Bind { address: self.clone(), source };
        match self {
            Self::Tcp(address) => {
                let listener = TcpListener::bind(address).map_err(failed)?;
                let bound = listener.local_addr().map_err(failed)?;
                Ok((Listener::Tcp(listener), Self::Tcp(bound.to_string()), None))
            }
            Self::Unix(path) => {
                let (listener, file) = bind_unix(path, callers, failed)?;
                Ok((Listener::Unix(listener), self.clone(), Some(file)))
            }
        }
    }
}

impl Address {
    /// Binds the side socket of a unix socket. TCP has no side socket.
    ///
    /// # Errors
    /// [`ListenError`], if the path is in use or can't be bound.
    pub fn bind_side(&self, callers: Callers) -> Result<Option<(Listener, SocketFile)>, ListenError> {
        let Self::Unix(path) = self else { return Ok(None) };
        let mut side = path.as_os_str().to_owned();
        side.push(SIDE_SUFFIX);
        let failed = |source| ListenError::Bind { address: Self::Unix(side.clone().into()), source };
        let (listener, file) = bind_unix(Path::new(&side), callers, failed)?;
        Ok(Some((Listener::Side(listener), file)))
    }
}

/// Binds a temporary path, sets the mode, and renames the socket to `path`. So the socket appears at `path` with
/// its final mode, and replaces a stale one at once.
fn bind_unix(
    path: &Path,
    callers: Callers,
    failed: impl Fn(io::Error) -> ListenError,
) -> Result<(UnixListener, SocketFile), ListenError> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(ListenError::NotASocket(path.to_owned()));
        }
        Ok(_) => match UnixStream::connect(path) {
            Ok(_) => return Err(ListenError::InUse(path.to_owned())),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(failed(error)),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if path.parent().is_some_and(|folder| !folder.is_dir()) {
                return Err(ListenError::NoFolder(path.to_owned()));
            }
        }
        Err(error) => return Err(failed(error)),
    }
    // The suffix is short, since the path of a socket has at most 108 bytes.
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let temporary = PathBuf::from(name);
    let listener = UnixListener::bind(&temporary).map_err(&failed)?;
    let placed = std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(callers.mode()))
        .and_then(|()| std::fs::symlink_metadata(&temporary))
        .and_then(|metadata| std::fs::rename(&temporary, path).map(|()| metadata.ino()));
    match placed {
        Ok(inode) => Ok((listener, SocketFile { path: path.to_owned(), inode })),
        Err(error) => {
            // The caller gets the first error; one of the removal would hide it.
            let _ = std::fs::remove_file(&temporary);
            Err(failed(error))
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = std::fs::symlink_metadata(&self.path).is_ok_and(|metadata| metadata.ino() == self.inode);
        if ours {
            // An error is harmless: the next start replaces a stale socket.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl FromStr for Address {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidAddress(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.starts_with('/') { Ok(Self::Unix(path.into())) } else { Err(invalid()) };
        }
        let address = text.strip_prefix("tcp://").ok_or_else(invalid)?;
        let (host, port) = address.rsplit_once(':').ok_or_else(invalid)?;
        if host.is_empty() || port.parse::<u16>().is_err() {
            return Err(invalid());
        }
        Ok(Self::Tcp(address.to_owned()))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp://{address}"),
        }
    }
}

#[cfg(test)]
mod tests;
