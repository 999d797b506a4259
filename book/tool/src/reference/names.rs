//! Labels, annotations and resources of Kubernetes objects, from the constants of the code.

use super::markdown::{cell, code, header, row};
use super::sources::{self, Source};
use anyhow::Result;
use std::collections::BTreeMap;
use std::path::Path;
use syn::visit::{self, Visit};
use syn::{ItemConst, ItemMod, Visibility};

/// Folders whose constants name keys of Kubernetes objects.
const FOLDERS: [&str; 8] = [
    "core/scheduling/src",
    "core/board/src",
    "core/cluster/src",
    "endpoint-picker/src",
    "net/src",
    "node-plugin/src",
    "registry",
    "scheduler-extender/src",
];
const PREFIXES: [&str; 2] = ["fpga-scheduling.io/", "blastfunction.io/"];

/// Keys that only the chart's templates read.
const OF_THE_CHART: [(&str, &str); 4] = [
    (
        "fpga-scheduling.io/board-kind",
        "Label of device managers' pods: the name of their kind in `boardKinds`.",
    ),
    (
        "fpga-scheduling.io/admission",
        "Label of pods: with the value `ignore` the chart's admission policies leave the pod as it is, but for hostPath volumes of kube-fpga's folders, which stay refused.",
    ),
    (
        "fpga-scheduling.io/container",
        "Pod annotation: the container that gets the board of a pod that asks by labels or annotations alone.",
    ),
    (
        "fpga-scheduling.io/monitoring",
        "Label of namespaces: with the value `true` the NetworkPolicies let the namespace's pods ask for metrics.",
    ),
];

/// The chapter of labels, annotations and resources.
pub fn page(repository: &Path) -> Result<String> {
    let mut found = Constants::default();
    for folder in FOLDERS {
        for Source { file, .. } in sources::below(repository, folder)? {
            found.visit_file(&file);
        }
    }
    let mut page = format!(
        "# Labels, annotations and resources\n\nWhat nodes, pods and Services say. What a pod may write, with examples: [the pod's \
         author](../use/pods.md).\n\n{}",
        header(&["key", "what"])
    );
    let mut all = found.docs.clone();
    for (key, template) in keys_of_the_chart(repository)? {
        let said = OF_THE_CHART.iter().find(|(known, _)| *known == key).map(|(_, doc)| (*doc).to_owned());
        all.entry(key)
            .or_insert_with(|| said.unwrap_or_else(|| format!("Of the chart alone: `{template}`.")));
    }
    for (key, doc) in all {
        page.push_str(&row(&[code(&key), cell(&found.resolved(&doc))]));
    }
    Ok(page)
}

/// Keys of ours in the chart's templates, each with the first template that has it, but for names of policies, resources and API groups.
fn keys_of_the_chart(repository: &Path) -> Result<BTreeMap<String, String>> {
    let mut keys = BTreeMap::new();
    let mut folders = vec![repository.join("manifests/chart/templates")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path)?;
            let template = path.strip_prefix(repository)?.display().to_string();
            for piece in text.split(PREFIXES[0]).skip(1) {
                let is_key = |c: char| c.is_ascii_lowercase() || c == '-';
                let end = piece.find(|c| !is_key(c)).unwrap_or(piece.len());
                let key = piece[..end].trim_end_matches('-');
                // What is followed by more is a folder or a version of the API group.
                if !key.is_empty() && !piece[end..].starts_with(['/', '1', '2']) && key != "v" {
                    let first =
                        keys.entry(format!("{}{key}", PREFIXES[0])).or_insert_with(|| template.clone());
                    if template < *first {
                        first.clone_from(&template);
                    }
                }
            }
        }
    }
    Ok(keys)
}

#[derive(Default)]
struct Constants {
    /// Documentation by key.
    docs: BTreeMap<String, String>,
    /// Keys by the names of their constants.
    keys: BTreeMap<String, String>,
}

impl Constants {
    /// The documentation with names of constants replaced by the keys.
    fn resolved(&self, doc: &str) -> String {
        let mut text = doc.to_owned();
        for (name, key) in &self.keys {
            text = text.replace(&format!("[`{name}`]"), &format!("`{key}`"));
        }
        text
    }
}

impl<'ast> Visit<'ast> for Constants {
    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if !sources::is_for_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_const(&mut self, item: &'ast ItemConst) {
        let Some(key) = sources::text(&item.expr) else { return };
        let is_key =
            PREFIXES.iter().any(|prefix| key.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty()));
        let is_public = matches!(item.vis, Visibility::Public(_));
        if is_key && is_public && !key.contains("v1") {
            self.keys.insert(item.ident.to_string(), key.clone());
            self.docs.insert(key, sources::doc(&item.attrs));
        }
    }
}
