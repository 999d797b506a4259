//! The settings of the streams. A port without a token is opened only by who says so.

use anyhow::{Context as _, Result, bail};
use fpga_node_stream::token::{Access, TokenFile};
use std::net::SocketAddr;
use std::path::PathBuf;
use tokio::net::TcpListener;
use tracing::warn;

/// Where and from whom streams are taken.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Streams of collectors")]
pub struct StreamArgs {
    /// Address to take collectors' streams on; port 0 takes a free one. Without it, states come by annotation only.
    #[arg(long, env = "FPGA_STREAM_LISTEN", value_name = "ADDRESS")]
    pub stream_listen: Option<SocketAddr>,
    /// File with the token that collectors must show; read anew for every stream.
    #[arg(long, env = "FPGA_STREAM_TOKEN_FILE", value_name = "PATH")]
    pub stream_token_file: Option<PathBuf>,
    /// Take streams from anyone who reaches the port: for a trial on one machine.
    #[arg(long, env = "FPGA_STREAM_WITHOUT_TOKEN", conflicts_with = "stream_token_file")]
    pub stream_without_token: bool,
}

impl StreamArgs {
    /// What a stream must show.
    ///
    /// # Errors
    /// There is a port without a word on who may use it.
    pub fn access(&self) -> Result<Access> {
        let access = match &self.stream_token_file {
            Some(path) => Access::Token(TokenFile::new(path)),
            None if self.stream_listen.is_some() && !self.stream_without_token => {
                bail!(
                    "--stream-listen lets collectors say what their nodes do: write --stream-token-file PATH, or --stream-without-token to believe anyone who reaches the port"
                );
            }
            None => Access::Open,
        };
        if let Access::Token(file) = &access
            && let Err(error) = file.read()
        {
            // A Secret may come later; until then states come by annotation.
            warn!(%error, "Streams are refused until there is a token");
        }
        Ok(access)
    }

    /// The port, if there is one.
    ///
    /// # Errors
    /// It can't be opened.
    pub async fn bind(&self) -> Result<Option<TcpListener>> {
        let Some(address) = self.stream_listen else { return Ok(None) };
        let listener = TcpListener::bind(address).await;
        listener.map(Some).with_context(|| {
            format!("can't listen on {address}; choose another address with --stream-listen")
        })
    }
}
