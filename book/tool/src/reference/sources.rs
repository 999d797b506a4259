//! Rust sources of the repository, parsed.

use anyhow::{Context as _, Result};
use std::path::Path;
use syn::{Attribute, Expr, ExprLit, Lit, Meta};

/// A parsed file.
pub struct Source {
    /// Its path in the repository.
    pub path: String,
    /// Its items.
    pub file: syn::File,
}

/// The Rust files below a folder of the repository, without those of unit tests, in the order of their paths.
pub fn below(repository: &Path, folder: &str) -> Result<Vec<Source>> {
    let mut found = Vec::new();
    collect(repository, &repository.join(folder), &mut found)?;
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn collect(repository: &Path, folder: &Path, found: &mut Vec<Source>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        if stem == "tests" || stem == "testing" {
            continue;
        }
        if path.is_dir() {
            collect(repository, &path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path)?;
            let file = syn::parse_file(&text).with_context(|| path.display().to_string())?;
            let path = path.strip_prefix(repository)?.display().to_string();
            found.push(Source { path, file });
        }
    }
    Ok(())
}

/// Whether an item is compiled for tests only.
pub fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string().contains("test"),
        _ => false,
    })
}

/// The documentation of an item in one line, up to its first empty line.
pub fn doc(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter(|attribute| attribute.path().is_ident("doc")).map(|attribute| {
        match &attribute.meta {
            Meta::NameValue(value) => text(&value.value).unwrap_or_default(),
            _ => String::new(),
        }
    });
    let paragraph: Vec<String> =
        lines.map(|line| line.trim().to_owned()).take_while(|line| !line.is_empty()).collect();
    paragraph.join(" ")
}

/// The text of a string literal.
pub fn text(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}

/// The name, if the expression is only a name.
pub fn name(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Path(path) => path.path.get_ident().map(ToString::to_string),
        _ => None,
    }
}
