//! How a collector proves its identity. Its token is either the one that all collectors and extender replicas share,
//! whose holder may report any node, or the token of the collector's service account, which the API server ties to one
//! node.

use fpga_net::token_file::TokenFile;

/// Whether a stream must prove its identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// By the token in this file, of either kind.
    Token(TokenFile),
    /// Without proof: any client that reaches the port may report any node.
    Open,
}
