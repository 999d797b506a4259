//! Errors, each with a message that tells how to mend it.

use crate::part::Part;
use fpga_net::kube_config::KubeConfigError;
use kube::config::ExecConfig;
use std::error::Error;

/// Why the plugin has no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Problem {
    /// No cluster is configured.
    #[error(
        "no cluster is configured: {0}.\nGive --kubeconfig FILE or set KUBECONFIG; `kubectl cluster-info` shows whether it is right"
    )]
    NotConfigured(String),
    /// The kubeconfig, its credentials or a proxy can't be used.
    #[error("{0}.\n`kubectl cluster-info` with the same kubeconfig shows whether it is right")]
    Kubeconfig(String),
    /// The API server does not answer.
    #[error(
        "the API server {server} can't be reached: {error}.\nCheck the address and the network; `kubectl --request-timeout=5s version` must work"
    )]
    Unreachable {
        /// Address of the API server.
        server: String,
        /// The error and its causes.
        error: String,
    },
    /// The API server at this address rejects the credentials.
    #[error(
        "the API server {0} takes no credentials of this kubeconfig. Log in anew, or choose another --context"
    )]
    Unauthorized(String),
    /// The user lacks a right.
    #[error("{message}.\nWho may grant rights allows it with:\n{grant}")]
    Forbidden {
        /// The API server's message.
        message: String,
        /// Commands that grant the right.
        grant: String,
    },
    /// No replica of a part is found.
    #[error(
        "there is no {0}: Service {namespace}/{service} {why}.\nInstall it (helm install, manifests/README.md), name it with --{0}-namespace and --{0}-service, or give its address with --{0} URL",
        part.name()
    )]
    NoReplica {
        /// The part.
        part: Part,
        /// Namespace of the Service.
        namespace: String,
        /// Name of the Service.
        service: String,
        /// The missing object.
        why: String,
    },
    /// A replica does not let the user read.
    #[error(
        "{} {replica} does not answer {account}: {error}.\n--reader NAMESPACE/NAME names another service account, whose tokens \
         you may create",
        part.name()
    )]
    NoReader {
        /// The part.
        part: Part,
        /// Name or address of the replica.
        replica: String,
        /// The service account whose token was shown.
        account: String,
        /// The replica's words.
        error: String,
    },
    /// A replica does not answer.
    #[error(
        "{} {replica} does not answer: {error}.\n{}",
        part.name(),
        match part {
            Part::Extender => "If it wants client certificates (--tls-client-ca), forward its port (`kubectl port-forward`) \
                and give --extender https://127.0.0.1:PORT with --extender-ca, -cert, -key and -tls-name",
            Part::Picker => "It must run with --read-listen; behind a forwarded port (`kubectl port-forward`) give \
                --picker http://127.0.0.1:PORT",
        }
    )]
    Silent {
        /// The part.
        part: Part,
        /// Name or address of the replica.
        replica: String,
        /// The error.
        error: String,
    },
    /// A replica's answer can't be parsed.
    #[error("what {} {replica} answers can't be understood: {error}. Is it of another version than this plugin ({})?", part.name(), env!("CARGO_PKG_VERSION"))]
    Answer {
        /// The part.
        part: Part,
        /// Name or address of the replica.
        replica: String,
        /// The error of the parser.
        error: String,
    },
    /// An address that was given can't be used.
    #[error("--{} {url} is no address: {error}. Write for example http://127.0.0.1:{}", part.name(), part.port())]
    Url {
        /// The part that it was given for.
        part: Part,
        /// The address.
        url: String,
        /// The error.
        error: String,
    },
    /// Any other error.
    #[error("{doing}: {error}")]
    Other {
        /// The operation that failed.
        doing: String,
        /// The error.
        error: String,
    },
}

impl Problem {
    /// Why there is no way to the API server.
    #[must_use]
    pub fn of_kubeconfig(error: &KubeConfigError) -> Self {
        match error {
            KubeConfigError::Nowhere(_) => Self::NotConfigured(chain(error)),
            _ => Self::Kubeconfig(chain(error)),
        }
    }

    /// Why no client can be made of a kubeconfig whose user has this plugin for credentials.
    #[must_use]
    pub fn of_client(error: &kube::Error, plugin: Option<&ExecConfig>) -> Self {
        let error = chain(error);
        let Some(plugin) = plugin else {
            return Self::Kubeconfig(format!("the kubeconfig can't be used: {error}"));
        };
        let command = plugin.command.as_deref().unwrap_or_default();
        let hint = plugin.install_hint.as_ref().map(|hint| format!(".\n{}", hint.trim())).unwrap_or_default();
        Self::Kubeconfig(format!(
            "the plugin {command:?} of the kubeconfig gives no credentials: {error}{hint}"
        ))
    }

    /// The problem behind `error`, an answer of the API server at `server`. `doing` names the operation, `grant` the
    /// right that the operation needs.
    #[must_use]
    pub fn of_api(error: &kube::Error, server: &str, doing: &str, grant: &Grant) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 403 => {
                Self::Forbidden { message: status.message.clone(), grant: grant.commands() }
            }
            kube::Error::Api(status) if status.code == 401 => Self::Unauthorized(server.to_owned()),
            kube::Error::Api(status) => Self::Other {
                doing: doing.to_owned(),
                error: format!("{} ({})", status.message, status.code),
            },
            kube::Error::Service(_) | kube::Error::HyperError(_) => {
                Self::Unreachable { server: server.to_owned(), error: chain(error) }
            }
            _ => Self::Other { doing: doing.to_owned(), error: chain(error) },
        }
    }
}

/// A right that an operation needs.
#[derive(Debug, Clone, Copy)]
pub struct Grant {
    /// Namespace of the right; `None` for the whole cluster.
    pub namespace: Option<&'static str>,
    /// Verbs, separated by commas.
    pub verbs: &'static str,
    /// Resources, separated by commas.
    pub resources: &'static str,
}

impl Grant {
    fn commands(&self) -> String {
        let Self { namespace, verbs, resources } = self;
        let (kind, scope) = match namespace {
            Some(namespace) => ("role", format!(" -n {namespace}")),
            None => ("clusterrole", String::new()),
        };
        let name = "kubectl-fpga";
        format!(
            "  kubectl create {kind} {name}{scope} --verb={verbs} --resource={resources}\n  \
               kubectl create {kind}binding {name}{scope} --{kind}={name} --user=NAME"
        )
    }
}

/// The message of an error and of its causes; a cause that the text already contains is left out.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}
