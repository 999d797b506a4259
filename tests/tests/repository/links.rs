//! Checks the links of all documents: the file that a relative link names is there, and has the heading that it names.

use fpga_tests::testbed::documents;
use fpga_tests::testbed::programs::repository;
use std::collections::BTreeSet;
use std::path::Path;

/// The lines of a document outside of blocks of code, without code in them.
fn prose(text: &str) -> Vec<String> {
    let mut is_code = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            lines.push(line.split('`').step_by(2).collect());
        }
    }
    lines
}

/// The targets of links and of pictures.
fn targets(text: &str) -> Vec<String> {
    let of_line = |line: String| -> Vec<String> {
        let forms = [("](", ')'), (" src=\"", '"'), (" srcset=\"", '"')];
        let of_form = |(begin, end): &(&str, char)| {
            let found = line.split(begin).skip(1).filter_map(|rest| rest.split(*end).next());
            found.map(str::to_owned).collect::<Vec<_>>()
        };
        forms.iter().flat_map(of_form).collect()
    };
    prose(text).into_iter().flat_map(of_line).collect()
}

/// The names by which forges and mdBook link to the headings of a document.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut is_code = false;
    let mut anchors = BTreeSet::new();
    for line in text.lines() {
        is_code ^= line.trim_start().starts_with("```");
        if let Some(heading) = line.strip_prefix('#').filter(|_| !is_code) {
            // Of a link only the text counts.
            let heading = heading.trim_start_matches('#').trim();
            let shown: String =
                heading.split("](").map(|part| part.split_once(')').map_or(part, |(_, rest)| rest)).collect();
            let shown = if heading.contains("](") { shown } else { heading.to_owned() };
            let kept = shown.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            anchors.insert(kept.collect::<String>().to_lowercase().replace(' ', "-"));
        }
    }
    anchors
}

#[test]
fn every_link_of_a_document_leads_to_a_file_and_a_heading_that_are_there() {
    let mut broken = Vec::new();
    let mut checked = 0;
    for document in documents::all().unwrap() {
        let text = documents::text(&document).unwrap();
        for target in targets(&text) {
            if target.contains("://") {
                continue;
            }
            checked += 1;
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = if file.is_empty() {
                repository().join(&document)
            } else {
                repository().join(document.parent().unwrap_or(Path::new(""))).join(file)
            };
            let is_there = path.exists();
            let has_anchor = || {
                anchor.is_empty()
                    || path.extension().is_some_and(|extension| extension == "md")
                        && anchors(&std::fs::read_to_string(&path).unwrap()).contains(anchor)
            };
            if !is_there || !has_anchor() {
                broken.push(format!("{}: {target}", document.display()));
            }
        }
    }
    assert!(checked > 150, "only {checked} links were found");
    assert!(broken.is_empty(), "links to what is not there: {broken:#?}");
}
