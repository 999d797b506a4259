//! Values of the chart: defaults and comments of `values.yaml`, types of `values.schema.json`.

use super::markdown::{cell, code, header, row};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::path::Path;

/// A value of the chart, as a line of `values.yaml` has it.
#[derive(Debug, PartialEq)]
struct Entry {
    /// The keys from the top to the value.
    path: Vec<String>,
    /// The default; empty for what has values below it.
    default: String,
    /// The comment above it.
    comment: String,
}

/// The chapter of the chart's values.
pub fn page(repository: &Path) -> Result<String> {
    let chart = repository.join("manifests/chart");
    let text = std::fs::read_to_string(chart.join("values.yaml"))?;
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(chart.join("values.schema.json"))?)?;
    let mut page = String::from(
        "# Values of the chart\n\nWhat `helm install --values FILE` or `--set NAME=VALUE` can change, in \
         [values.yaml](../../manifests/chart/values.yaml). Others are refused by name. `manifests/values` has whole examples.\n",
    );
    let mut rows = 0;
    for entry in entries(&text) {
        let depth = entry.path.len();
        let name = entry.path.join(".");
        if depth == 1 {
            page.push_str(&format!("\n## {name}\n"));
            if entry.default.is_empty() {
                if !entry.comment.is_empty() {
                    page.push_str(&format!("{}\n", cell(&entry.comment)));
                }
                page.push_str(&format!("\n{}", header(&["value", "type", "default", "what"])));
                continue;
            }
            // A list of things with keys of their own: the comment is a table already.
            if entry.comment.contains('\n') {
                page.push_str(&format!(
                    "\nDefault: `{}`\n\n```text\n{}\n```\n",
                    entry.default, entry.comment
                ));
                continue;
            }
            page.push_str(&format!("\n{}", header(&["value", "type", "default", "what"])));
        }
        let kind =
            kind_of(&schema, &entry.path).with_context(|| format!("values.schema.json lacks {name}"))?;
        page.push_str(&row(&[code(&name), cell(&kind), code(&entry.default), cell(&entry.comment)]));
        rows += 1;
    }
    ensure!(rows > 30, "only {rows} values were understood in values.yaml");
    Ok(page)
}

/// The entries of `values.yaml`, in its order. Lines of lists belong to the entry above them.
fn entries(text: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut path: Vec<(usize, String)> = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    for line in text.lines() {
        let trimmed = line.trim_start();
        let indent = line.len() - trimmed.len();
        if let Some(words) = trimmed.strip_prefix('#') {
            comment.push(words.strip_prefix(' ').unwrap_or(words));
            continue;
        }
        if trimmed.is_empty() {
            comment.clear();
            continue;
        }
        let key = trimmed
            .split_once(':')
            .filter(|(key, _)| !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric()));
        let Some((key, rest)) = key else {
            // An item of a list, or a line that continues the one above.
            if let Some(last) = entries.last_mut() {
                let joined = format!("{} {trimmed}", last.default);
                last.default = joined.trim().to_owned();
            }
            continue;
        };
        path.truncate(path.iter().take_while(|(column, _)| *column < indent).count());
        path.push((indent, key.to_owned()));
        let (default, beside) = match rest.split_once(" # ") {
            Some((default, beside)) => (default, Some(beside)),
            None => (rest, None),
        };
        comment.extend(beside);
        let comment = std::mem::take(&mut comment).join("\n");
        let path = path.iter().map(|(_, key)| key.clone()).collect();
        entries.push(Entry { path, default: default.trim().to_owned(), comment });
    }
    entries
}

/// The type of a value by the schema: its name, or the values that it may have.
fn kind_of(schema: &Value, path: &[String]) -> Option<String> {
    let mut at = schema;
    for key in path {
        at = resolved(schema, at);
        at = match at["properties"].get(key) {
            Some(property) => property,
            // A map of any keys.
            None => at.get("additionalProperties").filter(|inner| inner.is_object())?,
        };
    }
    let at = resolved(schema, at);
    if let Some(values) = at["enum"].as_array() {
        let values = values.iter().map(|value| value.to_string().trim_matches('"').to_owned());
        return Some(values.collect::<Vec<_>>().join(", "));
    }
    let name = match &at["type"] {
        Value::String(name) => name.clone(),
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        _ if at["anyOf"].is_array() || at["allOf"].is_array() || at["oneOf"].is_array() => {
            "see the schema".to_owned()
        }
        _ => "any".to_owned(),
    };
    let bound = |key: &str, words: &str| at[key].as_f64().map(|bound| format!(", {words} {bound}"));
    Some(
        [Some(name), bound("minimum", "at least"), bound("maximum", "at most")]
            .into_iter()
            .flatten()
            .collect(),
    )
}

fn resolved<'s>(schema: &'s Value, at: &'s Value) -> &'s Value {
    let name = at["$ref"].as_str().and_then(|path| path.strip_prefix("#/definitions/"));
    name.map_or(at, |name| &schema["definitions"][name])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_its_path_default_and_the_comment_above_or_beside_it() {
        let text =
            "# Of all.\n\n# The first.\na:\n  # How many.\n  # Or more.\n  b: 3\n  c: x # beside\nd: []\n";
        let of = |path: &[&str], default: &str, comment: &str| Entry {
            path: path.iter().map(|key| (*key).to_owned()).collect(),
            default: default.to_owned(),
            comment: comment.to_owned(),
        };
        let expected = vec![
            of(&["a"], "", "The first."),
            of(&["a", "b"], "3", "How many.\nOr more."),
            of(&["a", "c"], "x", "beside"),
            of(&["d"], "[]", ""),
        ];
        assert_eq!(entries(text), expected);
    }
}
