//! Converts a container to a process: command, arguments and environment, with `$(NAME)` and field references
//! resolved.

use crate::testbed::process::{InheritEnv, ProcessSpec};
use k8s_openapi::api::core::v1::{Container, EnvVar, Pod};
use kube::ResourceExt as _;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;

/// The reasons for which a container can't be run.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum CommandError {
    #[error(
        "the container has no command: the stand-in kubelet has no images and runs `command` as a local process"
    )]
    NoCommand,
    #[error(
        "the variable {name} comes from {source_kind}, which the stand-in kubelet does not have; write its value"
    )]
    UnsupportedSource { name: String, source_kind: &'static str },
    #[error("the variable {name} refers to the field {path}, which the stand-in kubelet does not know")]
    UnknownField { name: String, path: String },
}

/// The surroundings of a container, to which its variables may refer.
pub(super) struct Surroundings<'a> {
    pub pod: &'a Pod,
    pub pod_ip: Ipv4Addr,
    pub host_ip: Ipv4Addr,
    pub node: &'a str,
    pub node_env: &'a BTreeMap<String, String>,
}

/// The process for `container`, with its output in `log`.
pub(super) fn process_of(
    container: &Container,
    around: &Surroundings<'_>,
    log: &Path,
) -> Result<ProcessSpec, CommandError> {
    let env = environment(container, around)?;
    let command = container.command.iter().flatten().map(|word| expand(word, &env));
    let arguments = container.args.iter().flatten().map(|word| expand(word, &env));
    let mut words = command.collect::<Vec<_>>().into_iter();
    let program = words.next().ok_or(CommandError::NoCommand)?;
    let name = format!("{}/{}", around.pod.name_any(), container.name);
    let mut spec = ProcessSpec::new(name, program, log).args(words).args(arguments);
    spec.env = env;
    spec.inherit_env = InheritEnv::No;
    spec.working_dir = container.working_dir.as_ref().map(Into::into);
    Ok(spec)
}

fn environment(
    container: &Container,
    around: &Surroundings<'_>,
) -> Result<BTreeMap<String, String>, CommandError> {
    let mut env = BTreeMap::new();
    env.insert("PATH".to_owned(), std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".to_owned()));
    env.insert("HOSTNAME".to_owned(), around.pod.name_any());
    env.extend(around.node_env.clone());
    env.insert("NODE_NAME".to_owned(), around.node.to_owned());
    env.insert("POD_IP".to_owned(), around.pod_ip.to_string());
    for variable in container.env.iter().flatten() {
        let value = value_of(variable, around, &env)?;
        env.insert(variable.name.clone(), value);
    }
    Ok(env)
}

fn value_of(
    variable: &EnvVar,
    around: &Surroundings<'_>,
    env: &BTreeMap<String, String>,
) -> Result<String, CommandError> {
    let Some(source) = &variable.value_from else {
        return Ok(expand(variable.value.as_deref().unwrap_or_default(), env));
    };
    let name = variable.name.clone();
    let Some(field) = &source.field_ref else {
        let source_kind = match source {
            source if source.secret_key_ref.is_some() => "a secret",
            source if source.config_map_key_ref.is_some() => "a config map",
            _ => "a resource",
        };
        return Err(CommandError::UnsupportedSource { name, source_kind });
    };
    match field.field_path.as_str() {
        "metadata.name" => Ok(around.pod.name_any()),
        "metadata.namespace" => Ok(around.pod.namespace().unwrap_or_default()),
        "metadata.uid" => Ok(around.pod.uid().unwrap_or_default()),
        "spec.nodeName" => Ok(around.node.to_owned()),
        "status.podIP" => Ok(around.pod_ip.to_string()),
        "status.hostIP" => Ok(around.host_ip.to_string()),
        path => Err(CommandError::UnknownField { name, path: path.to_owned() }),
    }
}

/// Expands references as Kubernetes does: `$(NAME)` becomes the value if the variable is set; `$$(NAME)` becomes
/// `$(NAME)`.
fn expand(text: &str, env: &BTreeMap<String, String>) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some(start) = rest.find('$') {
        result.push_str(&rest[..start]);
        rest = &rest[start + 1..];
        if let Some(escaped) = rest.strip_prefix('$') {
            result.push('$');
            rest = escaped;
            continue;
        }
        let reference = rest.strip_prefix('(').and_then(|inner| inner.split_once(')'));
        match reference.and_then(|(name, after)| Some((env.get(name)?, after))) {
            Some((value, after)) => {
                result.push_str(value);
                rest = after;
            }
            None => result.push('$'),
        }
    }
    result + rest
}
