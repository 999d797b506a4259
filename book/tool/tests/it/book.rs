//! The pinned mdBook makes the book's pages, as `make book` does.

use fpga_book::{layout, repository};
use std::process::Command;

#[test]
fn mdbook_makes_a_page_of_each_chapter_and_complains_of_nothing() {
    let mdbook = repository().join("build/mdbook/mdbook");
    assert!(mdbook.exists(), "{} is missing. Run `make mdbook` (5 MB, once)", mdbook.display());
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    layout::write(repository(), &source).unwrap();
    std::fs::copy(repository().join("book/book.toml"), folder.path().join("book.toml")).unwrap();

    let output = Command::new(mdbook).arg("build").arg(folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{said}");
    for level in ["WARN", "ERROR"] {
        assert!(!said.contains(level), "{said}");
    }

    let summary = std::fs::read_to_string(source.join("SUMMARY.md")).unwrap();
    let chapters = summary.lines().filter_map(|line| line.split_once("](")?.1.strip_suffix(".md)"));
    let mut pages = 0;
    for chapter in chapters {
        let page = folder.path().join("html").join(chapter).with_extension("html");
        assert!(page.is_file(), "{} is missing: {said}", page.display());
        pages += 1;
    }
    assert!(pages > 50, "only {pages} pages");
}
