//! Pods and Deployments that want a board, as users write them: labels and an annotation for their requirements, and
//! the managed resource, for which kube-scheduler asks the extender.

use super::invoke::FUNCTION_PORT;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// A pod that wants a board, or an ordinary pod.
#[derive(Debug, Clone)]
pub struct Workload {
    name: String,
    command: Vec<String>,
    env: BTreeMap<String, String>,
    requirements: BTreeMap<String, String>,
    bitstreams: Option<String>,
    accelerated: bool,
    port: Option<u16>,
    restart_policy: &'static str,
    cpu: Option<String>,
    priority_class: Option<String>,
    node: Option<String>,
}

impl Workload {
    /// An ordinary pod that runs `command`.
    #[must_use]
    pub fn ordinary<W: Into<String>>(name: &str, command: impl IntoIterator<Item = W>) -> Self {
        Self {
            name: name.to_owned(),
            command: command.into_iter().map(Into::into).collect(),
            env: BTreeMap::new(),
            requirements: BTreeMap::new(),
            bitstreams: None,
            accelerated: false,
            port: None,
            restart_policy: "Always",
            cpu: None,
            priority_class: None,
            node: None,
        }
    }

    /// A pod that requests `fpga-scheduling.io/accelerated` and runs `command`.
    #[must_use]
    pub fn accelerated<W: Into<String>>(name: &str, command: impl IntoIterator<Item = W>) -> Self {
        Self { accelerated: true, ..Self::ordinary(name, command) }
    }

    /// A pod of one of the functions over HTTP (tests/functions), which loads this bitstream: a file with the bitstream's name.
    #[must_use]
    pub fn function(name: &str, program: &Path, bitstream: &Path) -> Self {
        Self::accelerated(name, [program.display().to_string()])
            .bitstreams(&bitstream.file_stem().unwrap_or_default().to_string_lossy())
            .env("BITSTREAM", bitstream.display().to_string())
            .env("PORT", FUNCTION_PORT.to_string())
            .port(FUNCTION_PORT)
    }

    /// Name of the pod or Deployment.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Requires the value `value` for `fpga-scheduling.io/KEY`.
    #[must_use]
    pub fn requires(mut self, key: &str, value: &str) -> Self {
        self.requirements.insert(format!("fpga-scheduling.io/{key}"), value.to_owned());
        self
    }

    /// Names the bitstreams that the pod uses, separated by commas.
    #[must_use]
    pub fn bitstreams(mut self, names: &str) -> Self {
        self.bitstreams = Some(names.to_owned());
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.insert(name.to_owned(), value.into());
        self
    }

    /// Declares the port on which the pod listens.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = Some(port);
        self
    }

    /// Never restarts the pod's container.
    #[must_use]
    pub fn once(mut self) -> Self {
        self.restart_policy = "Never";
        self
    }

    /// Requests this amount of CPU, which only affects placement here.
    #[must_use]
    pub fn cpu(mut self, amount: &str) -> Self {
        self.cpu = Some(amount.to_owned());
        self
    }

    /// Sets the priority class.
    #[must_use]
    pub fn priority_class(mut self, name: &str) -> Self {
        self.priority_class = Some(name.to_owned());
        self
    }

    /// Binds the pod to this node from the start, without a scheduler.
    #[must_use]
    pub fn on(mut self, node: &str) -> Self {
        self.node = Some(node.to_owned());
        self
    }

    fn template(&self) -> Value {
        let mut labels = self.requirements.clone();
        labels.insert("app".to_owned(), self.name.clone());
        let mut annotations = BTreeMap::new();
        if let Some(bitstreams) = &self.bitstreams {
            annotations.insert("fpga-scheduling.io/bitstreams", bitstreams);
        }
        let env: Vec<Value> =
            self.env.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        let ports: Vec<Value> = self.port.iter().map(|port| json!({"containerPort": port})).collect();
        let mut resources = BTreeMap::new();
        if self.accelerated {
            resources.insert("fpga-scheduling.io/accelerated", "1");
        }
        if let Some(cpu) = &self.cpu {
            resources.insert("cpu", cpu);
        }
        json!({
            "metadata": {"labels": labels, "annotations": annotations},
            "spec": {
                "restartPolicy": self.restart_policy,
                "priorityClassName": self.priority_class,
                "nodeName": self.node,
                "terminationGracePeriodSeconds": 2,
                "containers": [{
                    "name": "main",
                    "image": "local",
                    "command": self.command,
                    "env": env,
                    "ports": ports,
                    "resources": {"requests": resources, "limits": resources},
                }],
            },
        })
    }

    /// The pod's JSON.
    #[must_use]
    pub fn pod(&self) -> Value {
        let mut pod = self.template();
        pod["metadata"]["name"] = json!(self.name);
        pod
    }

    /// A Deployment's JSON.
    #[must_use]
    pub fn deployment(&self, replicas: u32) -> Value {
        json!({
            "metadata": {"name": self.name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": self.name}},
                "template": self.template(),
            },
        })
    }
}
