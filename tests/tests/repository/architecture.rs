//! Holds ARCHITECTURE.md against the workspace: the crates and what they import, and that no crate and no folder has a
//! circle of modules.

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

/// The path of a module or an item below its crate.
type ItemPath = Vec<String>;

/// Finds the paths into its own crate that a file names, outside of its unit tests.
struct Names<'a> {
    /// The module of the file.
    module: &'a [String],
    /// All modules of the crate.
    modules: &'a BTreeSet<ItemPath>,
    found: Vec<ItemPath>,
    /// The paths behind the names that the file imports.
    imported: BTreeMap<String, ItemPath>,
}

impl Names<'_> {
    /// The path below the crate, if these names begin there: with a keyword, or with a module in the file's own.
    fn absolute(&self, names: &[String]) -> Option<ItemPath> {
        let first = names.first()?;
        let up = names.iter().take_while(|name| *name == "super").count();
        let (base, rest) = match first.as_str() {
            "crate" => (&[][..], &names[1..]),
            "self" => (self.module, &names[1..]),
            "super" => (&self.module[..self.module.len().checked_sub(up)?], &names[up..]),
            _ => (self.module, names),
        };
        let path = [base, rest].concat();
        let is_ours = path.len() < base.len() + names.len() || {
            let below = self.module.len() + 1;
            path.get(..below).is_some_and(|module| self.modules.contains(module))
        };
        is_ours.then_some(path)
    }

    /// Notes a path of these names, which the file calls `name`.
    fn note(&mut self, names: &[String], name: Option<String>) {
        if let Some(path) = self.absolute(names) {
            self.imported.extend(name.map(|name| (name, path.clone())));
            self.found.push(path);
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
            syn::UseTree::Name(name) if name.ident == "self" => self.note(before, before.last().cloned()),
            syn::UseTree::Name(name) => self.end(before, &name.ident, &name.ident),
            syn::UseTree::Rename(rename) => self.end(before, &rename.ident, &rename.rename),
            syn::UseTree::Glob(_) => self.note(before, None),
        }
    }

    fn end(&mut self, before: &[String], name: &syn::Ident, called: &syn::Ident) {
        self.note(&[before, &[name.to_string()]].concat(), Some(called.to_string()));
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
        self.note(&names, None);
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

/// For each module with modules in its folder, and for the crate itself, those modules by the ones beside them that
/// they import. A module is one with its folder: what a file imports of its folder, or the other way round, counts
/// nowhere.
fn levels(src: &Path) -> BTreeMap<ItemPath, Imports> {
    let mut files = Vec::new();
    sources(src, &mut files);
    let module_of = |file: &PathBuf| -> ItemPath {
        let inside = file.strip_prefix(src).unwrap().with_extension("");
        let names: ItemPath = inside.iter().map(|name| name.to_str().unwrap().to_owned()).collect();
        if matches!(&names[..], [name] if name == "lib" || name == "main") { Vec::new() } else { names }
    };
    let paths: Vec<ItemPath> = files.iter().map(module_of).collect();
    let modules: BTreeSet<ItemPath> =
        paths.iter().flat_map(|path| (1..=path.len()).map(|length| path[..length].to_vec())).collect();
    let mut levels: BTreeMap<ItemPath, Imports> = BTreeMap::new();
    for module in &modules {
        let (name, level) = module.split_last().unwrap();
        levels.entry(level.to_vec()).or_default().insert(name.clone(), BTreeSet::new());
    }
    let mut found = Vec::new();
    let mut imported: BTreeMap<ItemPath, ItemPath> = BTreeMap::new();
    for (file, module) in files.iter().zip(&paths) {
        let text = std::fs::read_to_string(file).unwrap();
        let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let mut names = Names { module, modules: &modules, found: Vec::new(), imported: BTreeMap::new() };
        names.visit_file(&parsed);
        found.extend(names.found.into_iter().map(|path| (module, path)));
        let called = |(name, path)| ([&module[..], &[name]].concat(), path);
        imported.extend(names.imported.into_iter().map(called));
    }
    for (module, path) in found {
        let path = origin(path, &modules, &imported);
        let common = module.iter().zip(&path).take_while(|(a, b)| a == b).count();
        let (level, inside) = module.split_at(common);
        if let (Some(importer), Some(name)) = (inside.first(), path.get(common))
            && let Some(level) = levels.get_mut(level)
            && level.contains_key(name)
        {
            level.get_mut(importer).unwrap().insert(name.clone());
        }
    }
    levels
}

/// The path at which an item is defined, which other modules may have imported and passed on.
fn origin(
    mut path: ItemPath,
    modules: &BTreeSet<ItemPath>,
    imported: &BTreeMap<ItemPath, ItemPath>,
) -> ItemPath {
    // No item of the workspace is passed on so often.
    for _ in 0..8 {
        let passed_on = (1..=path.len()).find_map(|length| {
            let (item, rest) = path.split_at(length);
            let by = imported.get(item).filter(|_| !modules.contains(item))?;
            Some([&by[..], rest].concat())
        });
        match passed_on {
            Some(from) => path = from,
            None => return path,
        }
    }
    panic!("{path:?} is passed on in a circle")
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
fn no_crate_and_no_folder_has_a_circle_of_modules() {
    let mut circles = Vec::new();
    for (name, package) in workspace() {
        for (level, imports) in levels(&repository().join(package.folder).join("src")) {
            let is_excepted = name == HAS_A_CIRCLE_BY_ITS_ABI && level.is_empty();
            if let Err(circle) = floors(&imports) {
                circles.extend((!is_excepted).then_some((name.clone(), level, circle)));
            }
        }
    }
    assert!(circles.is_empty(), "{circles:?}");
}

/// A crate of these files.
struct Sources(tempfile::TempDir);

impl Sources {
    fn new(files: &[(&str, &str)]) -> Self {
        let sources = Self(tempfile::tempdir().unwrap());
        files.iter().for_each(|(name, text)| sources.write(name, text));
        sources
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// The circle at a level.
    fn circle(&self, level: &[&str]) -> Option<BTreeSet<String>> {
        let level: ItemPath = level.iter().map(|name| (*name).to_owned()).collect();
        let Err(Circle(names)) = floors(&levels(self.0.path())[&level]) else { return None };
        Some(names.into_iter().collect())
    }
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_circle_is_found_by_use_by_path_and_by_super() {
    let sources = Sources::new(&[
        ("lib.rs", "mod a; mod b; mod c; pub use a::A;"),
        ("a.rs", "use crate::{b::B, c};"),
        ("b.rs", "fn b() { crate::c::f() }\n#[cfg(test)] mod tests { use crate::a; }"),
        ("c.rs", "mod inner;"),
        ("c/inner.rs", "fn f() {}"),
    ]);
    let of = |name: &str, names: &[&str]| (name.to_owned(), set(names));
    let expected = Imports::from([of("a", &["b", "c"]), of("b", &["c"]), of("c", &[])]);
    assert_eq!(levels(sources.0.path())[&ItemPath::new()], expected);
    assert_eq!(sources.circle(&[]), None);
    sources.write("c/inner.rs", "use super::super::a::A;");
    let circle = sources.circle(&[]).unwrap();
    assert!(circle.is_superset(&set(&["a", "c"])), "{circle:?}");
}

#[test]
fn a_circle_in_a_folder_is_found_also_by_what_the_file_above_passes_on() {
    let sources = Sources::new(&[
        ("lib.rs", "mod a;"),
        ("a.rs", "mod b; mod c; pub use b::B; use c::f; fn g() { f() }"),
        ("a/b.rs", "use super::g;"),
        ("a/c.rs", "use super::B;"),
    ]);
    assert_eq!((sources.circle(&[]), sources.circle(&["a"])), (None, None));
    sources.write("a/b.rs", "fn b() { super::c::f() }");
    assert_eq!(sources.circle(&["a"]), Some(set(&["b", "c"])));
}
