//! The files of the page, in the program itself.

/// A file of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct File {
    /// Its media type.
    pub kind: &'static str,
    /// Its text.
    pub text: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

macro_rules! files {
    ($($path:literal: $kind:expr),* $(,)?) => {
        [$(($path, File { kind: $kind, text: include_str!(concat!("assets/", $path)) })),*]
    };
}

const FILES: &[(&str, File)] = &files![
    "index.html": HTML,
    "icon.svg": IMAGE,
    "css/base.css": CSS,
    "css/frame.css": CSS,
    "css/boards.css": CSS,
    "css/views.css": CSS,
    "js/main.js": SCRIPT,
    "js/colour.js": SCRIPT,
    "js/dom.js": SCRIPT,
    "js/filter.js": SCRIPT,
    "js/format.js": SCRIPT,
    "js/keys.js": SCRIPT,
    "js/reasons.js": SCRIPT,
    "js/route.js": SCRIPT,
    "js/sources.js": SCRIPT,
    "js/store.js": SCRIPT,
    "js/stream.js": SCRIPT,
    "js/theme.js": SCRIPT,
    "js/virtual.js": SCRIPT,
    "js/parts/board.js": SCRIPT,
    "js/parts/figures.js": SCRIPT,
    "js/parts/moments.js": SCRIPT,
    "js/parts/mosaic.js": SCRIPT,
    "js/parts/panel.js": SCRIPT,
    "js/parts/slowest.js": SCRIPT,
    "js/parts/spark.js": SCRIPT,
    "js/parts/waiting.js": SCRIPT,
    "js/parts/whom.js": SCRIPT,
    "js/views/cluster.js": SCRIPT,
    "js/views/decisions.js": SCRIPT,
    "js/views/function.js": SCRIPT,
    "js/views/functions.js": SCRIPT,
    "js/views/node.js": SCRIPT,
    "js/views/pod.js": SCRIPT,
    "js/views/pool.js": SCRIPT,
    "js/views/trace.js": SCRIPT,
];

/// The file at a path below the page's address.
#[must_use]
pub fn file(path: &str) -> Option<File> {
    let path = if path.is_empty() { "index.html" } else { path };
    FILES.iter().find(|(name, _)| *name == path).map(|(_, file)| *file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    fn names(folder: &Path, below: &str, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = format!("{below}{}", path.file_name().unwrap().to_str().unwrap());
            if path.is_dir() {
                names(&path, &format!("{name}/"), found);
            } else {
                found.insert(name);
            }
        }
    }

    #[test]
    fn every_file_of_the_folder_is_served() {
        let mut there = BTreeSet::new();
        names(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/web/assets"), "", &mut there);
        let served: BTreeSet<String> = FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(there, served);
    }

    #[test]
    fn no_script_makes_html_of_text() {
        let scripts = FILES.iter().filter(|(_, file)| file.kind == SCRIPT);
        for (name, file) in scripts {
            for way in ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "new Function"]
            {
                assert!(!file.text.contains(way), "{name} has {way}");
            }
        }
    }
}
