//! What can stand in the way, told so that it can be put out of it.

use std::error::Error;

/// Why there is no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Problem {
    /// No cluster is known.
    #[error(
        "no cluster is configured: {0}.\nGive --kubeconfig FILE or set KUBECONFIG; `kubectl cluster-info` shows whether it is right"
    )]
    NotConfigured(String),
    /// It does not answer.
    #[error(
        "the API server {server} can't be reached: {error}.\nCheck the address and the network; `kubectl --request-timeout=5s version` must work"
    )]
    Unreachable {
        /// Its address.
        server: String,
        /// What was wrong.
        error: String,
    },
    /// It doesn't know us.
    #[error(
        "the API server {0} takes no credentials of this kubeconfig. Log in anew, or choose another --context"
    )]
    Unauthorized(String),
    /// We may not.
    #[error("{message}.\nWho may grant rights allows it with:\n{grant}")]
    Forbidden {
        /// In the API server's words.
        message: String,
        /// Commands.
        grant: String,
    },
    /// There is no extender.
    #[error(
        "there is no extender: Service {namespace}/{service} {why}.\nInstall it (kubectl apply -k manifests/…), name it with --extender-namespace and --extender-service, or give its address with --extender URL"
    )]
    NoExtender {
        /// Where it was looked for.
        namespace: String,
        /// By which name.
        service: String,
        /// What was found.
        why: String,
    },
    /// A replica doesn't answer.
    #[error(
        "extender {replica} does not answer: {error}.\nIf it wants client certificates (--tls-client-ca), forward its port \
         (`kubectl port-forward`) and give --extender https://127.0.0.1:PORT with --extender-ca, -cert, -key and -tls-name"
    )]
    Silent {
        /// Which one.
        replica: String,
        /// What was wrong.
        error: String,
    },
    /// A replica's answer isn't one.
    #[error("what extender {replica} answers can't be understood: {error}. Is it of another version than this plugin ({})?", env!("CARGO_PKG_VERSION"))]
    Answer {
        /// Which one.
        replica: String,
        /// What was wrong.
        error: String,
    },
    /// An address that is none.
    #[error("--extender {url} is no address: {error}. Write for example http://127.0.0.1:9461")]
    Url {
        /// What was given.
        url: String,
        /// What is wrong with it.
        error: String,
    },
    /// Something else.
    #[error("{doing}: {error}")]
    Other {
        /// What was being done.
        doing: String,
        /// What was wrong.
        error: String,
    },
}

impl Problem {
    /// No cluster is known.
    #[must_use]
    pub fn not_configured(error: &dyn Error) -> Self {
        Self::NotConfigured(chain(error))
    }

    /// What the API server of this address said, or didn't, to who was `doing` something that takes the right to `grant`.
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

/// A right that is needed.
#[derive(Debug, Clone, Copy)]
pub struct Grant {
    /// Of one namespace, or of the cluster.
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

/// An error with its causes, each once.
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
