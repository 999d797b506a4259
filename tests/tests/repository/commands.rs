//! Checks that each block of commands in a document is run by a test, or says why not; and that each alert has a runbook.

use fpga_tests::testbed::documents::{self, Runner};
use fpga_tests::testbed::programs::repository;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Collects the Rust files below a folder, without build outputs.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap_or_default();
        if path.is_dir()
            && !path.is_symlink()
            && !["build", "target"].contains(&name)
            && !name.starts_with('.')
        {
            sources(&path, found);
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

/// The text of all Rust files of the repository.
fn code() -> String {
    let mut files = Vec::new();
    sources(&repository(), &mut files);
    // A file may have gone since it was listed.
    files.iter().filter_map(|file| std::fs::read_to_string(file).ok()).collect()
}

#[test]
fn each_cell_of_the_table_of_outages_names_a_test() {
    let (text, code) =
        (std::fs::read_to_string(repository().join("book/operate/outages.md")).unwrap(), code());
    let tests: BTreeMap<&str, &str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("- ")?.strip_suffix('`')?.split_once(": `"))
        .collect();
    let unknown: Vec<_> = tests.values().filter(|name| !code.contains(&format!("fn {name}()"))).collect();
    assert!(unknown.is_empty(), "there is no test {unknown:?}");
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert!(rows.len() > 5, "the table has {} rows", rows.len());
    let mut named = BTreeSet::new();
    for row in rows {
        for cell in row.trim_matches('|').split('|').skip(1) {
            let numbers = cell.split('(').skip(1).filter_map(|rest| rest.split_once(')'));
            let numbers: Vec<&str> = numbers.flat_map(|(numbers, _)| numbers.split(", ")).collect();
            assert!(!numbers.is_empty(), "a cell without a test: {cell}");
            named.extend(numbers);
        }
    }
    assert!(named.iter().eq(tests.keys()), "the table has {named:?}, the list {tests:#?}");
}

#[test]
fn each_block_of_commands_says_which_test_runs_it_or_why_none_does() {
    let code = code();
    let mut wrong = Vec::new();
    let (mut all, mut run) = (0, 0);
    for document in documents::all().unwrap() {
        for block in documents::blocks(&documents::text(&document).unwrap()) {
            all += 1;
            let at = format!("{}, line {}", document.display(), block.line);
            match block.runner {
                Runner::Unsaid => wrong.push(format!(
                    "{at}: write <!-- run -->, <!-- run: TEST --> or <!-- not run: REASON --> on the line above"
                )),
                Runner::Test(test) if !code.contains(&format!("fn {test}()")) => wrong.push(format!("{at}: there is no test {test}")),
                Runner::Nobody(reason) if reason.len() < 10 => wrong.push(format!("{at}: give the reason")),
                Runner::Documents | Runner::Test(_) => run += 1,
                Runner::Nobody(_) => {}
            }
        }
    }
    assert!(wrong.is_empty(), "blocks of commands: {wrong:#?}");
    assert!(all > 30 && run > 8, "{all} blocks were found, of which {run} are run");
}

#[test]
fn images_are_built_with_the_tag_that_the_chart_asks_for() {
    let chart = std::fs::read_to_string(repository().join("manifests/chart/Chart.yaml")).unwrap();
    let version = chart.lines().find_map(|line| line.strip_prefix("appVersion: ")).unwrap().trim_matches('"');
    let mut pages = documents::all().unwrap();
    pages.push("manifests/image/Dockerfile".into());
    let mut tags = Vec::new();
    for page in pages {
        let text = documents::text(&page).unwrap();
        let images = text.split("-t kube-fpga/").skip(1).filter_map(|rest| rest.split_whitespace().next());
        tags.extend(images.map(|image| format!("{}: {image}", page.display())));
    }
    let wrong: Vec<_> = tags.iter().filter(|tag| !tag.ends_with(&format!(":{version}"))).collect();
    assert!(wrong.is_empty() && tags.len() > 3, "{wrong:?} of {tags:?}");
}

#[test]
fn each_alert_of_the_chart_has_a_runbook_and_each_runbook_its_alert() {
    let mut alerts = BTreeSet::new();
    let mut folders = vec![repository().join("manifests/chart")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = std::fs::read_to_string(&path) {
                let names = text.lines().filter_map(|line| line.trim_start().strip_prefix("- alert: "));
                alerts.extend(names.map(|name| name.trim().to_owned()));
            }
        }
    }
    let page = documents::text(Path::new("book/operate/runbooks.md")).unwrap();
    let runbooks: BTreeSet<String> =
        page.lines().filter_map(|line| line.strip_prefix("## ")).map(str::to_owned).collect();
    assert!(!alerts.is_empty());
    assert_eq!(alerts, runbooks, "left: the chart's alerts, right: the headings of book/operate/runbooks.md");
}
