//! No crate and no folder has a circle of modules, in which each module imports the next one.

use fpga_tests::testbed::programs::repository;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};

/// Names by the names that they import.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// The folders of the workspace's crates.
fn crates() -> Vec<String> {
    let manifest = std::fs::read_to_string(repository().join("Cargo.toml")).unwrap();
    let (_, members) = manifest.split_once("members = [").unwrap();
    let (members, _) = members.split_once(']').unwrap();
    members.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The names of a circle; `None` if there is none.
fn circle(imports: &Imports) -> Option<Vec<String>> {
    let mut left = imports.clone();
    // A name without imports that are left is in no circle.
    while let Some(end) = left.iter().find(|(_, imported)| imported.is_empty()).map(|(name, _)| name.clone())
    {
        left.remove(&end);
        left.values_mut().for_each(|imported| _ = imported.remove(&end));
    }
    let mut way: Vec<String> = Vec::new();
    let mut name = left.keys().next()?;
    while !way.contains(name) {
        way.push(name.clone());
        name = left[name].first()?;
    }
    let first = way.iter().position(|other| other == name)?;
    Some(way.split_off(first))
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

/// In an OpenCL driver handles point to the table of functions, whose functions make handles.
const HAS_A_CIRCLE_BY_ITS_ABI: &str = "remote-opencl/icd";

#[test]
fn no_crate_and_no_folder_has_a_circle_of_modules() {
    let mut circles = Vec::new();
    for folder in crates() {
        for (level, imports) in levels(&repository().join(&folder).join("src")) {
            let is_excepted = folder == HAS_A_CIRCLE_BY_ITS_ABI && level.is_empty();
            circles.extend(
                circle(&imports).filter(|_| !is_excepted).map(|names| (folder.clone(), level, names)),
            );
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
        Some(circle(&levels(self.0.path())[&level])?.into_iter().collect())
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
