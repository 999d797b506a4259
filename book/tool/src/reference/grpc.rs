//! gRPC services and their methods, from the comments of the `.proto` files.

use super::markdown::{cell, code, header, row};
use anyhow::{Context as _, Result, ensure};
use std::path::Path;

/// A service that is defined here: its file, and where it is served.
struct Served {
    file: &'static str,
    ports: &'static str,
}

const SERVED: [Served; 3] = [
    Served {
        file: "node-stream/proto/node_stream.proto",
        ports: "Served by `fpga-scheduler-extender` and `fpga-endpoint-picker` at `--stream-listen`; called by \
                `fpga-collector`.",
    },
    Served {
        file: "remote-opencl/protocol/proto/remote_opencl.proto",
        ports: "Served by `fpga-device-manager` at `--listen`, and at `--pool-listen` for jobs of the pool; called by the OpenCL library \
                and by `fpga-acc`.",
    },
    Served {
        file: "pool/api/proto/pool.proto",
        ports: "Served by `fpga-pool` at `--listen`; called by `fpga-device-manager`, `fpga-acc` and `kubectl fpga pool`.",
    },
];

/// The chapter of gRPC services.
pub fn page(repository: &Path) -> Result<String> {
    let mut page = String::from(
        "# gRPC\n\nServices that are defined here. Besides, `fpga-endpoint-picker` serves Envoy's `ExternalProcessor` \
         (`endpoint-picker/proto/ext_proc.proto`), and `fpga-node-plugin` the kubelet's `DevicePlugin` \
         (`node-plugin/proto/deviceplugin.proto`); their documents are Envoy's and Kubernetes'.\n",
    );
    for Served { file, ports } in SERVED {
        let text = std::fs::read_to_string(repository.join(file)).context(file)?;
        let Service { name, about, methods } = Service::read(&text).context(file)?;
        page.push_str(&format!(
            "\n## {name}\n{}\n\n{}\n\nMessages: `{file}`.\n\n",
            cell(&about),
            cell(ports)
        ));
        page.push_str(&header(&["method", "takes", "gives", "what"]));
        for Method { name, takes, gives, what } in methods {
            page.push_str(&row(&[code(&name), code(&takes), code(&gives), cell(&what)]));
        }
    }
    Ok(page)
}

/// A service of a file.
#[derive(Debug, PartialEq, Eq)]
struct Service {
    /// Its name with the package.
    name: String,
    /// First paragraph of the file.
    about: String,
    methods: Vec<Method>,
}

#[derive(Debug, PartialEq, Eq)]
struct Method {
    name: String,
    takes: String,
    gives: String,
    /// First paragraph of its comment.
    what: String,
}

impl Service {
    /// The only service of a file.
    fn read(text: &str) -> Result<Self> {
        let (mut package, mut service, mut methods) = (None, None, Vec::new());
        let mut comment = Vec::new();
        let about = paragraph(text.lines().map_while(|line| line.strip_prefix("//")));
        for line in text.lines().map(str::trim) {
            if let Some(words) = line.strip_prefix("//") {
                comment.push(words);
                continue;
            }
            let what = paragraph(std::mem::take(&mut comment).into_iter());
            if let Some(name) = line.strip_prefix("package ") {
                package = Some(name.trim_end_matches(';'));
            } else if let Some(name) = line.strip_prefix("service ") {
                ensure!(service.is_none(), "more than one service");
                service = Some(name.trim_end_matches('{').trim());
            } else if let Some(method) = line.strip_prefix("rpc ") {
                methods.push(Method::read(method, what)?);
            }
        }
        let (package, service) = (package.context("no package")?, service.context("no service")?);
        ensure!(!about.is_empty(), "the file does not begin with a comment");
        Ok(Self { name: format!("{package}.{service}"), about, methods })
    }
}

impl Method {
    /// A method: what stands after `rpc`, in one line.
    fn read(text: &str, what: String) -> Result<Self> {
        let parts = text.split_once('(').and_then(|(name, rest)| {
            let (takes, rest) = rest.split_once(')')?;
            let (gives, _) =
                rest.trim().strip_prefix("returns")?.trim().strip_prefix('(')?.split_once(')')?;
            Some((name, takes, gives))
        });
        let (name, takes, gives) = parts.with_context(|| format!("no method in one line: {text}"))?;
        ensure!(!what.is_empty(), "the method {name} has no comment");
        Ok(Self { name: name.to_owned(), takes: takes.to_owned(), gives: gives.to_owned(), what })
    }
}

/// The first paragraph of a comment's lines, in one line.
fn paragraph<'l>(lines: impl Iterator<Item = &'l str>) -> String {
    lines.map(str::trim).take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "// What it is\n// for.\n//\n// More.\nsyntax = \"proto3\";\n\npackage a.v1;\n\n// Not it.\n\n\
        service Door {\n  // Opens\n  // it.\n  //\n  // Slowly.\n  rpc Open(stream Key) returns (Answer);\n}\n";

    #[test]
    fn a_service_has_the_methods_and_the_first_paragraphs_of_its_file() {
        let service = Service::read(FILE).unwrap();
        let open = Method {
            name: "Open".to_owned(),
            takes: "stream Key".to_owned(),
            gives: "Answer".to_owned(),
            what: "Opens it.".to_owned(),
        };
        let expected = Service {
            name: "a.v1.Door".to_owned(),
            about: "What it is for.".to_owned(),
            methods: vec![open],
        };
        assert_eq!(service, expected);
    }

    #[test]
    fn what_can_not_be_told_is_an_error() {
        for (from, to) in
            [("  // Opens\n  // it.\n  //\n  // Slowly.\n", ""), ("returns", "gives"), ("service", "message")]
        {
            let file = FILE.replace(from, to);
            assert_ne!(file, FILE);
            assert!(Service::read(&file).is_err(), "{file}");
        }
    }
}
