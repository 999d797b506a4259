//! Custom resources, from their definitions.

use super::markdown::{cell, code, header, row};
use anyhow::{Context as _, Result};
use serde_json::Value;

/// The chapter of custom resources.
pub fn page() -> Result<String> {
    let mut page = String::from(
        "# Custom resources\n\nThe API server refuses what is not as it is here, and says what to write. `kubectl explain` shows the same.\n",
    );
    for definition in fpga_registry_api::definitions() {
        let definition = serde_json::to_value(definition)?;
        let spec = &definition["spec"];
        let kind = spec["names"]["kind"].as_str().context("a definition without kind")?;
        for version in spec["versions"].as_array().context("a definition without versions")? {
            let name = version["name"].as_str().context("a version without name")?;
            let group = spec["group"].as_str().context("a definition without group")?;
            let scope = spec["scope"].as_str().unwrap_or_default().to_lowercase();
            let schema = &version["schema"]["openAPIV3Schema"];
            let about = schema["description"].as_str().unwrap_or_default();
            page.push_str(&format!("\n## {kind}\n`{group}/{name}`, {scope}. {}\n", cell(about)));
            page.push_str(&format!("\n{}", header(&["field", "type", "what", "refused with"])));
            for part in ["spec", "status"] {
                fields(part, &schema["properties"][part], &mut page);
            }
        }
    }
    Ok(page)
}

/// Adds a row for each field below `schema`.
fn fields(path: &str, schema: &Value, page: &mut String) {
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let mut path = format!("{path}.{name}");
        let mut kind = field["type"].as_str().unwrap_or("any").to_owned();
        let mut inner = field;
        if kind == "array" {
            path.push_str("[]");
            inner = &field["items"];
            kind = format!("list of {}", inner["type"].as_str().unwrap_or("any"));
        } else if let Some(values) = field["additionalProperties"]["type"].as_str() {
            kind = format!("map of {values}");
        }
        if required.contains(&name.as_str()) {
            kind.push_str(", required");
        }
        let values: Vec<&str> =
            field["enum"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let mut what = field["description"].as_str().unwrap_or_default().to_owned();
        if !values.is_empty() {
            what.push_str(&format!(" One of: `{}`.", values.join("`, `")));
        }
        let rules = field["x-kubernetes-validations"].as_array().into_iter().flatten();
        let messages: Vec<&str> = rules.filter_map(|rule| rule["message"].as_str()).collect();
        page.push_str(&row(&[code(&path), kind, cell(&what), cell(&messages.join("; "))]));
        fields(&path, inner, page);
    }
}
