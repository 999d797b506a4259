//! Who speaks: what a stream's token proves.

mod review;
mod tokens;

use crate::state::{Client, Viewer};
use fpga_board::dispatch::Tenant;
use fpga_pool_api::hello::Hello;
use std::sync::Arc;
use tonic::Status;

pub use review::{ClientNamespaces, Reviewer};
pub use tokens::{TokensError, TokensFile};

/// The tenant of all clients where nobody proves anything.
const ONLY_TENANT: &str = "default";

/// How peers prove who they are.
#[derive(Debug)]
pub enum Authenticator {
    /// Not at all: whoever reaches the port is believed. For one machine.
    Open,
    /// By the tokens of a file.
    Tokens(TokensFile),
    /// By tokens of service accounts, which the API server reviews.
    Review(Box<Reviewer>),
}

/// What a token proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// A device manager, on this node if the token says it.
    Manager {
        /// Node of the manager.
        node: Option<Arc<str>>,
    },
    /// A client of this tenant, on this node if the token says it.
    Client {
        /// The tenant.
        tenant: Arc<str>,
        /// Node of the client.
        node: Option<Arc<str>>,
    },
    /// A person or a tool that sees everything.
    Operator,
}

/// The reason why nobody is believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoIdentity {
    /// The token is wrong, or has ended.
    #[error("the token proves nothing here")]
    Token,
    /// The token is right, and its bearer may not do this.
    #[error("the token is not for this kind of stream")]
    Role,
    /// A manager's token was shown for a look at the pool.
    #[error(
        "a manager's token registers its board, and shows nothing of the pool: look with a client's or operator's"
    )]
    ManagerLooks,
    /// Pods of this namespace may not use the pool.
    #[error(
        "pods of the namespace {0} may not use the pool: the broker's --client-namespaces (pool.clientNamespaces of the \
         chart) does not name it"
    )]
    Namespace(String),
    /// Tokens can't be checked now.
    #[error("tokens can't be checked now; try again")]
    NotNow,
}

impl Authenticator {
    /// The node of a manager; `None` if nothing proves it: then the manager's word counts.
    ///
    /// # Errors
    /// [`NoIdentity`].
    pub async fn manager(&self, hello: &Hello) -> Result<Option<Arc<str>>, NoIdentity> {
        match self.identity(&hello.token).await? {
            None => Ok(hello.node.clone()),
            Some(Identity::Manager { node }) => Ok(node.or_else(|| hello.node.clone())),
            Some(Identity::Client { .. } | Identity::Operator) => Err(NoIdentity::Role),
        }
    }

    /// A client's tenant and node.
    ///
    /// # Errors
    /// [`NoIdentity`].
    pub async fn client(&self, hello: &Hello) -> Result<Client, NoIdentity> {
        let only_tenant = || Identity::Client { tenant: ONLY_TENANT.into(), node: None };
        match self.identity(&hello.token).await?.unwrap_or_else(only_tenant) {
            Identity::Client { tenant, node } => {
                Ok(Client { tenant: Tenant::new(&tenant), home: node.or_else(|| hello.node.clone()) })
            }
            Identity::Manager { .. } | Identity::Operator => Err(NoIdentity::Role),
        }
    }

    /// What the bearer of a token sees.
    ///
    /// # Errors
    /// [`NoIdentity`].
    pub async fn viewer(&self, token: &str) -> Result<Viewer, NoIdentity> {
        Ok(match self.identity(token).await? {
            None | Some(Identity::Operator) => Viewer::Operator,
            Some(Identity::Client { tenant, .. }) => Viewer::Tenant(Tenant::new(&tenant)),
            Some(Identity::Manager { .. }) => return Err(NoIdentity::ManagerLooks),
        })
    }

    async fn identity(&self, token: &str) -> Result<Option<Identity>, NoIdentity> {
        match self {
            Self::Open => Ok(None),
            Self::Tokens(file) => file.identity(token).map(Some),
            Self::Review(reviewer) => reviewer.identity(token).await.map(Some),
        }
    }
}

impl From<NoIdentity> for Status {
    fn from(error: NoIdentity) -> Self {
        let message = error.to_string();
        match error {
            NoIdentity::Token => Self::unauthenticated(message),
            NoIdentity::Role | NoIdentity::ManagerLooks | NoIdentity::Namespace(_) => {
                Self::permission_denied(message)
            }
            NoIdentity::NotNow => Self::unavailable(message),
        }
    }
}
