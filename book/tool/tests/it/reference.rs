//! The reference chapters of the book are those that the code makes.

use fpga_book::{layout, reference, repository};
use std::collections::HashSet;

#[test]
fn the_reference_chapters_are_those_that_the_code_makes() {
    for page in reference::pages(repository()).unwrap() {
        let path = repository().join("book/reference").join(page.name);
        let written = std::fs::read_to_string(&path).unwrap();
        let (line, made) = (written.lines().zip(page.text.lines()))
            .find(|(written, made)| written != made)
            .unwrap_or_default();
        assert!(
            written == page.text,
            "{} is not what the code makes; run `make reference`. The first line that differs:\n{line}\ninstead of\n{made}",
            path.display()
        );
    }
}

#[test]
fn all_documents_that_chapters_link_to_are_chapters_each_of_which_is_in_the_list_once() {
    let folder = tempfile::tempdir().unwrap();
    let book = folder.path().join("book");
    layout::write(repository(), &book).unwrap();
    let summary = std::fs::read_to_string(book.join("SUMMARY.md")).unwrap();
    let mut seen = HashSet::new();
    let links = summary.lines().filter_map(|line| line.split_once("](")?.1.strip_suffix(')'));
    for link in links {
        assert!(book.join(link).is_file(), "{link}");
        // mdBook refuses a list that has a chapter twice.
        assert!(seen.insert(link.to_owned()), "{link}");
    }
    assert!(seen.len() > 50, "{seen:?}");
}
