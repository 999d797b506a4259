//! Holds ARCHITECTURE.md against the workspace: the crates and what they import, and that no crate has a circle of
//! modules.

#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test a failure is a panic")]

use fpga_tests::testbed::programs::repository;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use syn::visit::{self, Visit};

/// Names by the names that they import.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// A crate of the workspace.
struct Package {
    /// The folder of the crate, relative to the repository.
    folder: String,
    /// The crates of the workspace that it needs outside of its tests.
    imports: BTreeSet<String>,
}

/// The crates of the workspace by their names, as cargo knows them.
fn workspace() -> BTreeMap<String, Package> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline", "--locked"])
        .current_dir(repository())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
    let members: BTreeSet<String> = packages.iter().map(name).collect();
    let package = |package: &Value| {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let folder = manifest.parent().unwrap().strip_prefix(repository().canonicalize().unwrap()).unwrap();
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        let imports = dependencies.filter(|dependency| dependency["kind"] != "dev").map(name);
        let imports = imports.filter(|name| members.contains(name)).collect();
        (name(package), Package { folder: folder.to_str().unwrap().to_owned(), imports })
    };
    packages.iter().map(package).collect()
}

/// The texts in backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// A name that is on no floor, since it imports itself by way of others; the names are those of one such circle.
#[derive(Debug)]
struct Circle(Vec<String>);

/// The floor of each name: 0 without imports, otherwise one above its highest import.
fn floors(imports: &Imports) -> Result<BTreeMap<String, usize>, Circle> {
    let mut floors: BTreeMap<String, usize> = BTreeMap::new();
    while floors.len() < imports.len() {
        let floor = |(name, imported): (&String, &BTreeSet<String>)| {
            let below = imported.iter().map(|name| floors.get(name).map(|floor| floor + 1));
            let floor = below.collect::<Option<Vec<usize>>>()?.into_iter().max().unwrap_or(0);
            Some((name.clone(), floor))
        };
        let left = imports.iter().filter(|(name, _)| !floors.contains_key(*name));
        let next: Vec<_> = left.filter_map(floor).collect();
        if next.is_empty() {
            return Err(circle(imports, &floors));
        }
        floors.extend(next);
    }
    Ok(floors)
}

/// A circle among the names that have no floor.
fn circle(imports: &Imports, floors: &BTreeMap<String, usize>) -> Circle {
    let mut way: Vec<String> = Vec::new();
    let mut name = imports.keys().find(|name| !floors.contains_key(*name)).unwrap();
    while !way.contains(name) {
        way.push(name.clone());
        name = imports[name].iter().find(|name| !floors.contains_key(*name)).unwrap();
    }
    let first = way.iter().position(|other| other == name).unwrap();
    Circle(way.split_off(first))
}

/// Finds the modules of its own crate that a file names, outside of its unit tests.
struct Names<'a> {
    /// The module path of the file below the crate.
    path: &'a [String],
    /// The modules directly below the crate.
    modules: &'a BTreeSet<String>,
    found: BTreeSet<String>,
}

impl Names<'_> {
    /// Notes a path of these names.
    fn path(&mut self, names: &[String]) {
        let (up, rest) = match names.first().map(String::as_str) {
            Some("crate") => (self.path.len(), &names[1..]),
            Some("super") => {
                let up = names.iter().take_while(|name| *name == "super").count();
                (up, &names[up..])
            }
            _ => return,
        };
        if up == self.path.len()
            && let Some(module) = rest.first().filter(|name| self.modules.contains(*name))
        {
            self.found.insert(module.clone());
        }
    }

    /// Notes all paths of a `use`.
    fn tree(&mut self, before: &mut Vec<String>, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.tree(before, &path.tree);
                before.pop();
            }
            syn::UseTree::Group(group) => group.items.iter().for_each(|tree| self.tree(before, tree)),
            syn::UseTree::Name(name) => self.end(before, name.ident.to_string()),
            syn::UseTree::Rename(rename) => self.end(before, rename.ident.to_string()),
            syn::UseTree::Glob(_) => self.path(before),
        }
    }

    fn end(&mut self, before: &[String], name: String) {
        self.path(&[before, &[name]].concat());
    }
}

/// Whether an item is compiled for unit tests: its `cfg` has the word `test`.
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    let words = |list: &syn::MetaList| {
        let text = list.tokens.to_string();
        text.split(|c: char| !c.is_alphanumeric()).any(|word| word == "test")
    };
    attributes.iter().any(|attribute| {
        matches!(&attribute.meta, syn::Meta::List(list) if list.path.is_ident("cfg") && words(list))
    })
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        // An inner module would need a path of its own; the workspace has them for tests and generated code only.
        if !is_for_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_for_tests(&item.attrs) {
            self.tree(&mut Vec::new(), &item.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.path(&names);
        visit::visit_path(self, path);
    }
}

/// The Rust files below a folder, without those of unit tests.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let is_for_tests = path.file_stem().is_some_and(|name| name == "tests");
        if path.is_dir() && !is_for_tests {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !is_for_tests {
            found.push(path);
        }
    }
}

/// The modules directly below a crate by the ones that they import.
fn modules(src: &Path) -> Imports {
    let mut files = Vec::new();
    sources(src, &mut files);
    let path_of = |file: &Path| -> Vec<String> {
        let inside = file.strip_prefix(src).unwrap().with_extension("");
        inside.iter().map(|name| name.to_str().unwrap().to_owned()).collect()
    };
    let is_root = |path: &[String]| matches!(path, [name] if name == "lib" || name == "main");
    let paths: Vec<Vec<String>> = files.iter().map(|file| path_of(file)).collect();
    let all: BTreeSet<String> =
        paths.iter().filter(|path| !is_root(path)).filter_map(|path| path.first().cloned()).collect();
    let mut imports: Imports = all.iter().map(|name| (name.clone(), BTreeSet::new())).collect();
    for (file, path) in files.iter().zip(&paths).filter(|(_, path)| !is_root(path)) {
        let text = std::fs::read_to_string(file).unwrap();
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let mut names = Names { path, modules: &all, found: BTreeSet::new() };
        names.visit_file(&parsed);
        names.found.remove(&path[0]);
        imports.get_mut(&path[0]).unwrap().append(&mut names.found);
    }
    imports
}

#[test]
fn the_code_map_names_every_crate_and_what_it_imports() {
    let page = std::fs::read_to_string(repository().join("ARCHITECTURE.md")).unwrap();
    let mut mapped = BTreeMap::new();
    for row in page.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        if let [folder, package, imports, _] = cells[..] {
            let folder = quoted(folder).next().unwrap().trim_end_matches('/').to_owned();
            let imports: BTreeSet<String> = quoted(imports).map(str::to_owned).collect();
            mapped.extend(quoted(package).map(|name| (name.to_owned(), (folder.clone(), imports.clone()))));
        }
    }
    let built = workspace();
    let built = built.into_iter().map(|(name, package)| (name, (package.folder, package.imports)));
    assert_eq!(mapped, built.collect(), "left: ARCHITECTURE.md's code map, right: the workspace");
}

#[test]
fn the_floors_of_the_page_are_those_of_the_crates() {
    let page = std::fs::read_to_string(repository().join("ARCHITECTURE.md")).unwrap();
    let drawn = page.lines().filter_map(|line| line.strip_prefix("floor ")).flat_map(|line| {
        let (floor, names) = line.split_once(':').unwrap();
        let floor: usize = floor.trim().parse().unwrap();
        names.split_whitespace().map(move |name| (name.to_owned(), floor)).collect::<Vec<_>>()
    });
    let imports = workspace().into_iter().map(|(name, package)| (name, package.imports)).collect();
    assert_eq!(
        drawn.collect::<BTreeMap<_, _>>(),
        floors(&imports).unwrap(),
        "left: the page, right: the crates"
    );
}

/// In an OpenCL driver handles point to the table of functions, whose functions make handles.
const HAS_A_CIRCLE_BY_ITS_ABI: &str = "fpga-opencl-icd";

#[test]
fn no_crate_has_a_circle_of_modules() {
    let mut circles = Vec::new();
    for (name, package) in workspace().into_iter().filter(|(name, _)| name != HAS_A_CIRCLE_BY_ITS_ABI) {
        let src = repository().join(package.folder).join("src");
        if let Err(circle) = floors(&modules(&src)) {
            circles.push((name, circle));
        }
    }
    assert!(circles.is_empty(), "{circles:?}");
}

#[test]
fn a_circle_is_found_by_use_by_path_and_by_super() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("lib.rs", "mod a; mod b; mod c; pub use a::A;");
    write("a.rs", "use crate::{b::B, c};");
    write("b.rs", "fn b() { crate::c::f() }\n#[cfg(test)] mod tests { use crate::a; }");
    write("c.rs", "mod inner;");
    write("c/inner.rs", "fn f() {}");
    let of = |name: &str, names: &[&str]| {
        (name.to_owned(), names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>())
    };
    let expected = Imports::from([of("a", &["b", "c"]), of("b", &["c"]), of("c", &[])]);
    assert_eq!(modules(folder.path()), expected);
    assert!(floors(&expected).is_ok());
    write("c/inner.rs", "use super::super::a::A;");
    let Err(Circle(circle)) = floors(&modules(folder.path())) else { panic!("no circle was found") };
    assert!(circle.contains(&"a".to_owned()) && circle.contains(&"c".to_owned()), "{circle:?}");
}
