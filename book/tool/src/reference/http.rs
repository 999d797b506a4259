//! HTTP paths of all services, from the routes in their sources.

use super::markdown::{cell, code, header, row};
use super::sources::{self, Source};
use anyhow::{Context as _, Result, ensure};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use syn::visit::{self, Visit};
use syn::{Expr, ExprMethodCall, ItemConst, ItemFn, ItemMod, Lit, Macro};

/// A service: its name, the folder of its sources, and its ports.
struct Service {
    name: &'static str,
    folder: &'static str,
    ports: &'static str,
}

const SERVICES: [Service; 7] = [
    Service {
        name: "fpga-scheduler-extender",
        folder: "scheduler-extender/src",
        ports: "All paths at `--listen`, where the verbs are there without a prefix and with that of `--path-prefix`; those other than the verbs also at `--read-listen`, where all but `/healthz`, `/readyz` and `/version` want a token (`--read-access`); `/healthz`, `/readyz` and `/metrics` also at \
                `--metrics-listen`.",
    },
    Service {
        name: "fpga-collector",
        folder: "collector/src",
        ports: "All paths at `--listen-unix` and `--listen`; `/healthz`, `/readyz` and `/metrics` also at `--metrics-listen`.",
    },
    Service { name: "fpga-node-plugin", folder: "node-plugin/src", ports: "At `--metrics-listen`." },
    Service {
        name: "fpga-device-manager",
        folder: "remote-opencl/device-manager/src",
        ports: "At `--metrics-listen`, of `serve` and of `supervise`.",
    },
    Service {
        name: "fpga-endpoint-picker",
        folder: "endpoint-picker/src",
        ports: "`/functions` and `/picks` at `--read-listen`, where they and `/metrics` want a token (`--read-access`), `/apis` at `--external-metrics-listen`, where the API server alone is answered, and the others at `--metrics-listen`.",
    },
    Service { name: "fpga-registry", folder: "registry/src", ports: "At `--metrics-listen`." },
    Service { name: "fpga-pool", folder: "pool/broker/src", ports: "At `--metrics-listen`." },
];

/// What paths mean that each service has.
const EVERYWHERE: [(&str, &str); 3] = [
    ("/healthz", "200 while the program works"),
    ("/readyz", "200 when it can do its work; else 503 with the reason"),
    ("/metrics", "[Metrics](metrics.md) in the OpenMetrics format"),
];

/// Paths that the sources put together at run time, with what they are.
const MADE: [(&str, &str, &str); 3] = [
    ("{prefix}/filter", "POST", "kube-scheduler's verb: which of the nodes fit the pod"),
    ("{prefix}/prioritize", "POST", "kube-scheduler's verb: the nodes' scores, 0 to 10"),
    ("{prefix}/preempt", "POST", "kube-scheduler's verb: on which nodes it would help to evict pods"),
];

/// The chapter of HTTP paths.
pub fn page(repository: &Path) -> Result<String> {
    let mut page = String::from(
        "# HTTP\n\nPaths of the services, for probes, Prometheus, and people. Which port of the chart's pods that is: \
         [privileges](../../manifests/README.md#privileges). Several services also speak [gRPC](grpc.md).\n",
    );
    for service in SERVICES {
        let mut routes = Routes::default();
        for Source { path, file } in &sources::below(repository, service.folder)? {
            routes.module = Path::new(path)
                .file_stem()
                .map(|stem| stem.to_string_lossy().into_owned())
                .unwrap_or_default();
            routes.visit_file(file);
        }
        ensure!(!routes.found.is_empty(), "{}: no routes were found", service.name);
        page.push_str(&format!("\n## {}\n{}\n\n", service.name, cell(service.ports)));
        page.push_str(&header(&["path", "methods", "what"]));
        for ((path, method), what) in routes.finish(service.name)? {
            let what = if EVERYWHERE.iter().any(|(_, text)| *text == what) { what } else { cell(&what) };
            page.push_str(&row(&[code(&path), method, what]));
        }
    }
    Ok(page)
}

/// A function: its module and its name.
type Handler = (String, String);

#[derive(Default)]
struct Routes {
    /// The module that is read.
    module: String,
    /// Path, method and handler.
    found: Vec<(Option<String>, String, Option<Handler>)>,
    /// Documentation of functions.
    docs: HashMap<Handler, String>,
    constants: HashMap<String, String>,
}

impl Routes {
    /// What each method of each path does.
    fn finish(self, service: &str) -> Result<BTreeMap<(String, String), String>> {
        let mut routes = BTreeMap::new();
        for (path, method, handler) in self.found {
            let path = path.map(|path| {
                self.constants
                    .iter()
                    .fold(path, |path, (name, text)| path.replace(&format!("{{{name}}}"), text))
            });
            let path = path.map(|path| path.replace("{{", "{").replace("}}", "}"));
            let Some(path) = path.filter(|path| !path.contains("{}")) else {
                routes.extend(
                    MADE.map(|(path, method, what)| ((path.to_owned(), method.to_owned()), what.to_owned())),
                );
                continue;
            };
            let known =
                EVERYWHERE.iter().find(|(known, _)| *known == path).map(|(_, what)| (*what).to_owned());
            let documented =
                || handler.as_ref().and_then(|name| self.docs.get(name)).filter(|doc| !doc.is_empty());
            let what = known.or_else(|| documented().cloned());
            let what = what.with_context(|| {
                format!(
                    "{service}: {method} {path} is not documented; write a comment at its handler {handler:?}"
                )
            })?;
            routes.insert((path, method), what);
        }
        Ok(routes)
    }
}

impl<'ast> Visit<'ast> for Routes {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !sources::is_for_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        let doc = sources::doc(&item.attrs);
        if !doc.is_empty() {
            self.docs.insert((self.module.clone(), item.sig.ident.to_string()), doc);
        }
        visit::visit_item_fn(self, item);
    }

    fn visit_item_const(&mut self, item: &'ast ItemConst) {
        if let Some(text) = sources::text(&item.expr) {
            self.constants.insert(item.ident.to_string(), text);
        }
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        visit::visit_expr_method_call(self, call);
        let arguments: Vec<&Expr> = call.args.iter().collect();
        if call.method == "route"
            && let [path, handlers] = arguments.as_slice()
            && let Some(handlers) = methods(handlers, &self.module)
        {
            let path = path_of(path);
            self.found.extend(handlers.into_iter().map(|(method, handler)| (path.clone(), method, handler)));
        }
    }
}

/// The methods of `get(one).put(two)` with their handlers.
fn methods(expression: &Expr, module: &str) -> Option<Vec<(String, Option<Handler>)>> {
    let handler = |argument: Option<&Expr>| {
        let Some(Expr::Path(path)) = argument else { return None };
        let mut names = path.path.segments.iter().rev().map(|segment| segment.ident.to_string());
        let name = names.next()?;
        Some((names.next().unwrap_or_else(|| module.to_owned()), name))
    };
    match expression {
        Expr::MethodCall(call) => {
            let mut all = methods(&call.receiver, module)?;
            all.push((call.method.to_string().to_uppercase(), handler(call.args.first())));
            Some(all)
        }
        Expr::Call(call) => {
            let name = sources::name(&call.func)?;
            let is_method = ["get", "post", "put", "delete"].contains(&name.as_str());
            is_method.then(|| vec![(name.to_uppercase(), handler(call.args.first()))])
        }
        _ => None,
    }
}

/// The path of a literal, or of a `format!` whose parts are constants.
fn path_of(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Reference(reference) => path_of(&reference.expr),
        Expr::Macro(made) => format_of(&made.mac),
        other => sources::text(other),
    }
}

fn format_of(made: &Macro) -> Option<String> {
    let first = made.tokens.clone().into_iter().next()?;
    match syn::parse_str::<Lit>(&first.to_string()).ok()? {
        Lit::Str(text) => Some(text.value()),
        _ => None,
    }
}
