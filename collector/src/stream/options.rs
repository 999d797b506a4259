//! The settings of the streams.

use super::targets::{MAX_REPLICAS, Target};
use anyhow::bail;
use fpga_node_stream::token::{Access, TokenFile};
use std::path::PathBuf;

/// Whom to stream to, and what to show them.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Streams to the extender")]
pub struct StreamArgs {
    /// Replicas of the extender that hear of changes at once, beside the annotation: http://HOST:PORT, or dns:NAME:PORT for
    /// all addresses of a headless Service. May be repeated; in the environment a comma-separated list.
    #[arg(long, env = "FPGA_EXTENDERS", value_name = "REPLICA", value_delimiter = ',')]
    pub extenders: Vec<Target>,
    /// File with the token that the extender wants to see; read anew for every stream.
    #[arg(long, env = "FPGA_STREAM_TOKEN_FILE", value_name = "PATH")]
    pub stream_token_file: Option<PathBuf>,
    /// Show no token: for a trial with an extender that wants none.
    #[arg(long, env = "FPGA_STREAM_WITHOUT_TOKEN", conflicts_with = "stream_token_file")]
    pub stream_without_token: bool,
    /// UID of the node object, which streams name. Only with --no-publish; else the API server is asked.
    #[arg(long, env = "FPGA_NODE_UID", value_name = "UID", requires = "no_publish")]
    pub node_uid: Option<String>,
}

/// What the arguments come to.
#[derive(Debug)]
pub struct Streaming {
    /// Where the replicas are.
    pub targets: Vec<Target>,
    /// What is shown to them.
    pub access: Access,
}

impl StreamArgs {
    /// Whom to stream to, if anybody.
    ///
    /// # Errors
    /// Something is missing.
    pub fn check(&self, no_publish: bool) -> anyhow::Result<Option<Streaming>> {
        if self.extenders.is_empty() {
            return Ok(None);
        }
        if self.extenders.len() > MAX_REPLICAS {
            bail!(
                "--extenders names more than {MAX_REPLICAS} replicas; a headless Service finds them: write dns:NAME:PORT"
            );
        }
        if no_publish && self.node_uid.is_none() {
            bail!(
                "--extenders with --no-publish needs --node-uid: kubectl get node NODE -o jsonpath='{{.metadata.uid}}'"
            );
        }
        let access = match &self.stream_token_file {
            Some(path) => Access::Token(TokenFile::new(path)),
            None if self.stream_without_token => Access::Open,
            None => bail!(
                "--extenders needs --stream-token-file PATH, or --stream-without-token if the extender wants none"
            ),
        };
        // The file itself may come later: a Secret that is mounted optionally.
        Ok(Some(Streaming { targets: self.extenders.clone(), access }))
    }
}
