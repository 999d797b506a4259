//! The identities of the API server's clients: one static token each, with the rights that a real cluster gives them.
//!
//! Our own programs have the service accounts of manifests/ and the same rights; nodes are real node identities,
//! which the node authorizer restricts to their own pods.

use anyhow::{Context as _, Result};
use ring::rand::SecureRandom as _;
use std::fmt::Write as _;

/// An identity of a client of the API server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Identity {
    /// The tests and the demo.
    Admin,
    /// kube-scheduler.
    Scheduler,
    /// kube-controller-manager.
    ControllerManager,
    /// The scheduler extender.
    Extender,
    /// The collector; all collectors share one service account, as in a DaemonSet.
    Collector,
    /// The node plugin; all plugins share one service account, as in a DaemonSet.
    NodePlugin,
    /// The endpoint picker.
    Router,
    /// The registry.
    Registry,
    /// The kubelet of the named node.
    Node(String),
}

impl Identity {
    /// The identity as the name of a file.
    #[must_use]
    pub fn file_name(&self) -> String {
        match self {
            Self::Admin => "admin".into(),
            Self::Scheduler => "kube-scheduler".into(),
            Self::ControllerManager => "kube-controller-manager".into(),
            Self::Extender => "fpga-scheduler-extender".into(),
            Self::Collector => "fpga-collector".into(),
            Self::NodePlugin => "fpga-node-plugin".into(),
            Self::Router => "fpga-router".into(),
            Self::Registry => "fpga-registry".into(),
            Self::Node(name) => format!("node-{name}"),
        }
    }

    fn user(&self) -> String {
        match self {
            Self::Admin => "admin".into(),
            Self::Scheduler => "system:kube-scheduler".into(),
            Self::ControllerManager => "system:kube-controller-manager".into(),
            Self::Extender => "system:serviceaccount:kube-fpga:fpga-scheduler-extender".into(),
            Self::Collector => "system:serviceaccount:kube-fpga:fpga-collector".into(),
            Self::NodePlugin => "system:serviceaccount:kube-fpga:fpga-node-plugin".into(),
            Self::Router => "system:serviceaccount:kube-fpga:fpga-router".into(),
            Self::Registry => "system:serviceaccount:kube-fpga:fpga-registry".into(),
            Self::Node(name) => format!("system:node:{name}"),
        }
    }

    fn groups(&self) -> &'static str {
        match self {
            Self::Admin => "system:masters",
            Self::Scheduler | Self::ControllerManager => "",
            Self::Extender | Self::Collector | Self::NodePlugin | Self::Router | Self::Registry => {
                "system:serviceaccounts,system:serviceaccounts:kube-fpga"
            }
            Self::Node(_) => "system:nodes",
        }
    }
}

/// An identity with its token.
#[derive(Debug, Clone)]
pub struct Credential {
    /// The identity.
    pub identity: Identity,
    /// Token that authenticates the identity.
    pub token: String,
}

impl Credential {
    /// Generates a token for `identity`.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn new(identity: Identity) -> Result<Self> {
        let mut bytes = [0u8; 16];
        ring::rand::SystemRandom::new().fill(&mut bytes).ok().context("no random bytes")?;
        let token = bytes.iter().fold(String::new(), |mut text, byte| {
            // Writing to a string can't fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
        Ok(Self { identity, token })
    }

    /// The line for kube-apiserver's `--token-auth-file`.
    #[must_use]
    pub fn token_file_line(&self) -> String {
        let Self { identity, token } = self;
        let user = identity.user();
        format!("{token},{user},{user},\"{}\"\n", identity.groups())
    }

    /// A kubeconfig (JSON, which is YAML) for the API server at `server`.
    #[must_use]
    pub fn kubeconfig(&self, server: &str, certificate: &std::path::Path) -> String {
        serde_json::json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "testbed", "cluster": {"server": server, "certificate-authority": certificate}}],
            "users": [{"name": "me", "user": {"token": self.token}}],
            "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": "me", "namespace": "default"}}],
            "current-context": "testbed",
        })
        .to_string()
    }
}
