//! Checks that the tests which documents name exist.

use fpga_tests::testbed::programs::repository;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Documents that name tests in backquotes.
const DOCUMENTS: [&str; 2] =
    ["scheduler-extender/docs/operators-complaints.md", "scheduler-extender/docs/promises.md"];

/// Collects the Rust files below a folder, without build outputs.
pub fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap_or_default();
        if path.is_dir() && !path.is_symlink() && name != "target" && !name.starts_with('.') {
            sources(&path, found);
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

/// The names of all tests in a file, also of those that only some target of make runs.
pub fn named_tests(text: &str) -> BTreeSet<String> {
    tests_of(&text.lines().filter(|line| !line.trim().starts_with("#[ignore")).collect::<Vec<_>>().join("\n"))
}

/// The names of the tests in a file that `make test` runs.
fn tests_of(text: &str) -> BTreeSet<String> {
    let mut tests = BTreeSet::new();
    let (mut is_test, mut is_ignored) = (false, false);
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if line.starts_with("#[ignore") {
            is_ignored = true;
        } else if let Some(rest) = line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn "))
            && std::mem::take(&mut is_test)
            && !std::mem::take(&mut is_ignored)
        {
            tests.extend(rest.split('(').next().map(str::to_owned));
        }
    }
    tests
}

#[test]
fn a_test_that_is_ignored_is_none_that_is_run() {
    let text = "#[test]\nfn run_always() {}\n#[test]\n#[ignore = \"long\"]\nfn left_out() {}\n#[test]\nfn also_run() {}";
    assert_eq!(tests_of(text), ["run_always", "also_run"].map(str::to_owned).into());
}

#[test]
fn every_test_that_a_document_names_is_there_and_run() {
    let mut files = Vec::new();
    sources(&repository(), &mut files);
    let all: BTreeSet<String> =
        files.iter().flat_map(|file| tests_of(&std::fs::read_to_string(file).unwrap())).collect();
    assert!(all.len() > 300, "only {} tests were found", all.len());
    for document in DOCUMENTS {
        let text = std::fs::read_to_string(repository().join(document)).unwrap();
        let quoted = text.split('`').skip(1).step_by(2);
        // Names of tests are sentences, with several underscores.
        let named: Vec<&str> = quoted
            .filter(|word| {
                word.matches('_').count() >= 2 && !word.starts_with("fpga_") && !word.contains(' ')
            })
            .collect();
        assert!(named.len() > 20, "{document} names {} tests", named.len());
        let missing: Vec<_> = named.iter().filter(|name| !all.contains(**name)).collect();
        assert!(missing.is_empty(), "{document} names tests that are not there, or not run: {missing:#?}");
    }
}

#[test]
fn every_threat_of_the_chapter_on_isolation_names_a_test_that_is_there() {
    let mut files = Vec::new();
    sources(&repository(), &mut files);
    let all: BTreeSet<String> =
        files.iter().flat_map(|file| named_tests(&std::fs::read_to_string(file).unwrap())).collect();
    let text = std::fs::read_to_string(repository().join("book/understand/isolation.md")).unwrap();
    let (_, table) =
        text.split_once("| threat | what stops it | set by | test |\n|---|---|---|---|\n").unwrap();
    let rows: Vec<&str> = table.lines().take_while(|line| line.starts_with('|')).collect();
    assert!(rows.len() > 15, "{} threats", rows.len());
    for row in rows {
        let test = row.trim_end_matches([' ', '|']).rsplit("| ").next().unwrap().trim_matches('`');
        assert!(all.contains(test), "{test} is not there: {row}");
    }
}
