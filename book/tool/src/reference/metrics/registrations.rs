//! Reads the calls `registry.register(NAME, HELP, METRIC)` and their like in Rust sources.
//!
//! Names and helps are literals, or variables that were set to literals above, or members of the tuples that a loop goes
//! over. The type of a metric is that of the field or variable of its name. A call that is not of such a form is an error,
//! so that no metric is missed in silence.

use crate::reference::listed;
use crate::reference::sources::{self, Source};
use anyhow::{Context as _, Result, bail, ensure};
use std::collections::{BTreeMap, HashMap};
use syn::visit::{self, Visit};
use syn::{
    Expr, ExprForLoop, ExprMethodCall, GenericArgument, ItemConst, ItemImpl, ItemMod, ItemStruct, Local, Pat,
    PathArguments, PathSegment, Type, Visibility,
};

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
    Info,
}

/// A metric.
#[derive(Debug)]
pub struct Metric {
    pub name: String,
    pub unit: Option<String>,
    pub help: String,
    pub kind: Kind,
    pub labels: Vec<String>,
}

/// The type of a metric before the sets of labels are known.
#[derive(Debug, Clone)]
struct Typed {
    kind: Kind,
    labels: Option<String>,
}

/// A call that was read, or why it was not understood.
type Call = (String, Option<String>, String, Typed);

/// What was read of a service's sources.
#[derive(Default)]
pub struct Registrations {
    calls: Vec<Result<Call>>,
    /// Fields of structs that are sets of labels.
    labels: BTreeMap<String, Vec<String>>,
    /// Public constants of text.
    constants: HashMap<String, String>,
}

impl Registrations {
    /// Reads a file. `prefixes` says what precedes names where a function gets a registry with a prefix.
    pub fn read(&mut self, source: &Source, prefixes: &[(&str, &str)]) {
        let mut items = Items { fields: HashMap::new(), constants: HashMap::new(), of: self };
        items.visit_file(&source.file);
        let (fields, own) = (items.fields, items.constants);
        let mut reader = Reader {
            path: &source.path,
            prefixes,
            fields,
            constants: [&own, &self.constants],
            calls: Vec::new(),
            implementing: String::new(),
            prefix: None,
            variables: HashMap::new(),
            loops: Vec::new(),
        };
        reader.visit_file(&source.file);
        let calls = reader.calls;
        self.calls.extend(calls);
    }

    /// The metrics.
    pub fn finish(self) -> Result<Vec<Metric>> {
        let labels = self.labels;
        let metric = |call: Result<Call>| {
            let (name, unit, help, typed) = call?;
            let labels = match typed.labels {
                None => Vec::new(),
                Some(set) => labels.get(&set).with_context(|| format!("{name}: no labels {set}"))?.clone(),
            };
            Ok(Metric { name, unit, help, kind: typed.kind, labels })
        };
        let (read, failed): (Vec<_>, Vec<_>) = self.calls.into_iter().map(metric).partition(Result::is_ok);
        ensure!(failed.is_empty(), "{}", listed(failed));
        read.into_iter().collect()
    }
}

/// Collects the items that calls refer to.
struct Items<'r> {
    fields: HashMap<String, Typed>,
    /// Constants of text of the file.
    constants: HashMap<String, String>,
    of: &'r mut Registrations,
}

impl<'ast> Visit<'ast> for Items<'_> {
    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        let named =
            item.fields.iter().filter_map(|field| Some((field.ident.as_ref()?.to_string(), &field.ty)));
        let names = named.clone().map(|(name, _)| name).collect();
        self.of.labels.insert(item.ident.to_string(), names);
        for (name, kind) in named {
            if let Some(typed) = of_type(kind) {
                self.fields.insert(name, typed);
            }
        }
    }

    fn visit_item_const(&mut self, item: &'ast ItemConst) {
        if let Some(text) = sources::text(&item.expr) {
            if matches!(item.vis, Visibility::Public(_)) {
                self.of.constants.insert(item.ident.to_string(), text.clone());
            }
            self.constants.insert(item.ident.to_string(), text);
        }
    }
}

/// The metric that a type is.
fn of_type(kind: &Type) -> Option<Typed> {
    match kind {
        Type::Path(path) => of_segment(path.path.segments.last()?),
        Type::Array(array) => of_type(&array.elem),
        Type::Reference(reference) => of_type(&reference.elem),
        _ => None,
    }
}

fn of_segment(segment: &PathSegment) -> Option<Typed> {
    let plain = |kind| Some(Typed { kind, labels: None });
    match segment.ident.to_string().as_str() {
        "Counter" | "ConstCounter" => plain(Kind::Counter),
        "Gauge" | "ConstGauge" => plain(Kind::Gauge),
        "Histogram" => plain(Kind::Histogram),
        "Info" => plain(Kind::Info),
        "Family" => {
            let PathArguments::AngleBracketed(arguments) = &segment.arguments else { return None };
            let mut types = arguments.args.iter().filter_map(|argument| match argument {
                GenericArgument::Type(kind) => Some(kind),
                _ => None,
            });
            let labels = match types.next()? {
                Type::Path(path) => path.path.segments.last()?.ident.to_string(),
                _ => return None,
            };
            Some(Typed { kind: of_type(types.next()?)?.kind, labels: Some(labels) })
        }
        _ => None,
    }
}

/// Reads the calls of a file.
struct Reader<'r> {
    path: &'r str,
    prefixes: &'r [(&'r str, &'r str)],
    fields: HashMap<String, Typed>,
    /// Constants of the file, and public ones of others.
    constants: [&'r HashMap<String, String>; 2],
    calls: Vec<Result<Call>>,
    /// The type whose functions are read.
    implementing: String,
    /// What precedes names in the function.
    prefix: Option<String>,
    variables: HashMap<String, Expr>,
    loops: Vec<Loop>,
}

/// A loop over tuples.
struct Loop {
    names: Vec<String>,
    rows: Vec<Vec<Expr>>,
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !sources::is_for_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        self.implementing = match &*item.self_ty {
            Type::Path(path) => {
                path.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default()
            }
            _ => String::new(),
        };
        visit::visit_item_impl(self, item);
        self.implementing.clear();
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.prefix = None;
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.prefix = None;
        visit::visit_item_fn(self, item);
    }

    fn visit_local(&mut self, local: &'ast Local) {
        visit::visit_local(self, local);
        let Some(init) = &local.init else { return };
        self.bind(&local.pat, &init.expr);
    }

    fn visit_expr_for_loop(&mut self, expression: &'ast ExprForLoop) {
        let names = match &*expression.pat {
            Pat::Tuple(tuple) => tuple.elems.iter().map(pattern_name).collect(),
            _ => Vec::new(),
        };
        let over = match &*expression.expr {
            Expr::Array(array) => Some(array.clone()),
            other => sources::name(other).and_then(|name| match self.variables.get(&name) {
                Some(Expr::Array(array)) => Some(array.clone()),
                _ => None,
            }),
        };
        let rows = over.into_iter().flat_map(|array| array.elems).filter_map(|row| match row {
            Expr::Tuple(tuple) => Some(tuple.elems.into_iter().collect()),
            _ => None,
        });
        self.loops.push(Loop { names, rows: rows.collect() });
        visit::visit_expr_for_loop(self, expression);
        self.loops.pop();
    }

    fn visit_expr_method_call(&mut self, call: &'ast ExprMethodCall) {
        visit::visit_expr_method_call(self, call);
        let arguments: Vec<&Expr> = call.args.iter().collect();
        match (call.method.to_string().as_str(), arguments.as_slice()) {
            ("sub_registry_with_prefix", [prefix]) => self.prefix = self.text(prefix),
            ("register", [name, help, metric]) => self.take(name, help, None, metric),
            ("register_with_unit", [name, help, unit, metric]) => self.take(name, help, Some(unit), metric),
            ("encode_descriptor", [name, help, unit, kind]) => {
                let unit =
                    if sources::name(unit).is_some_and(|name| name == "None") { None } else { Some(*unit) };
                self.take(name, help, unit, kind);
            }
            _ => {}
        }
    }
}

impl Reader<'_> {
    fn bind(&mut self, pattern: &Pat, value: &Expr) {
        match (pattern, value) {
            (Pat::Tuple(names), Expr::Tuple(values)) => {
                for (name, value) in names.elems.iter().zip(&values.elems) {
                    self.variables.insert(pattern_name(name), value.clone());
                }
            }
            (Pat::Type(typed), _) => {
                if let Some(kind) = of_type(&typed.ty) {
                    self.fields.insert(pattern_name(&typed.pat), kind);
                }
            }
            _ => {
                self.variables.insert(pattern_name(pattern), value.clone());
            }
        }
    }

    /// Takes a call; one in a loop over tuples once for each of them.
    fn take(&mut self, name: &Expr, help: &Expr, unit: Option<&Expr>, metric: &Expr) {
        let bound = sources::name(name)
            .and_then(|name| self.loops.iter().find(|bound| bound.names.contains(&name)))
            .map(|bound| (bound.names.clone(), bound.rows.clone()));
        let Some((names, rows)) = bound else {
            let call = self.call(name, help, unit, metric);
            self.calls.push(call);
            return;
        };
        if rows.is_empty() {
            self.calls.push(Err(anyhow::anyhow!(
                "{}: a loop whose tuples can't be read registers metrics",
                self.path
            )));
        }
        for row in rows {
            let before = self.variables.clone();
            self.variables.extend(names.iter().cloned().zip(row));
            let call = self.call(name, help, unit, metric);
            self.calls.push(call);
            self.variables = before;
        }
    }

    fn call(&self, name: &Expr, help: &Expr, unit: Option<&Expr>, metric: &Expr) -> Result<Call> {
        let at = self.path;
        let name = self.text(name).with_context(|| format!("{at}: a metric whose name is no text"))?;
        let help = self.text(help).with_context(|| format!("{at}: {name}: the help is no text"))?;
        let unit =
            unit.map(|unit| unit_name(unit).with_context(|| format!("{at}: {name}: the unit is unknown")));
        let typed =
            self.typed(metric).with_context(|| format!("{at}: {name}: the metric's type is unknown"))?;
        let name = if name.starts_with("fpga_") { name } else { format!("{}_{name}", self.prefix(&name)?) };
        Ok((name, unit.transpose()?, help, typed))
    }

    fn prefix(&self, name: &str) -> Result<String> {
        if let Some(prefix) = &self.prefix {
            return Ok(prefix.clone());
        }
        let is_here = |key: &str| key == self.implementing || self.path.starts_with(key);
        match self.prefixes.iter().find(|(key, _)| is_here(key)).map(|(_, prefix)| (*prefix).to_owned()) {
            Some(prefix) => Ok(prefix),
            None => {
                bail!("{}: what precedes {name}? Say so in book/tool/src/reference/metrics.rs", self.path)
            }
        }
    }

    fn text(&self, expression: &Expr) -> Option<String> {
        sources::text(expression).or_else(|| {
            let name = match expression {
                Expr::Path(path) => path.path.segments.last()?.ident.to_string(),
                _ => return None,
            };
            let variable = self.variables.get(&name).and_then(sources::text);
            variable.or_else(|| self.constants.iter().find_map(|known| known.get(&name)).cloned())
        })
    }

    fn typed(&self, expression: &Expr) -> Option<Typed> {
        match expression {
            Expr::MethodCall(call) => self.typed(&call.receiver),
            Expr::Reference(reference) => self.typed(&reference.expr),
            Expr::Field(field) => match &field.member {
                syn::Member::Named(name) => self.fields.get(&name.to_string()).cloned(),
                syn::Member::Unnamed(_) => None,
            },
            Expr::Call(call) => match &*call.func {
                Expr::Path(path) => path.path.segments.iter().rev().nth(1).and_then(of_segment),
                _ => None,
            },
            Expr::Path(_) => {
                let name = sources::name(expression)?;
                let by_value =
                    self.variables.get(&name).filter(|value| sources::name(value).as_ref() != Some(&name));
                by_value.and_then(|value| self.typed(value)).or_else(|| self.fields.get(&name).cloned())
            }
            _ => None,
        }
    }
}

fn pattern_name(pattern: &Pat) -> String {
    match pattern {
        Pat::Ident(ident) => ident.ident.to_string(),
        Pat::Type(typed) => pattern_name(&typed.pat),
        _ => String::new(),
    }
}

/// `seconds` of `Unit::Seconds` or `Some(&Unit::Seconds)`.
fn unit_name(unit: &Expr) -> Option<String> {
    match unit {
        Expr::Call(call) => unit_name(call.args.first()?),
        Expr::Reference(reference) => unit_name(&reference.expr),
        Expr::Path(path) => Some(path.path.segments.last()?.ident.to_string().to_lowercase()),
        _ => None,
    }
}
