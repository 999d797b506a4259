//! Lays the book out for mdBook: the documents of the repository that `book/SUMMARY.md` names, where they lie in the
//! repository, and the files that they link to. So each document is one text, readable on a forge and in the book.

use anyhow::{Context as _, Result, bail};
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// Makes `folder` anew with `book/SUMMARY.md`, its chapters and what they link to.
///
/// # Errors
/// A chapter is missing or links to a document that is no chapter; a file can't be written.
pub fn write(repository: &Path, folder: &Path) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let summary = std::fs::read_to_string(repository.join("book/SUMMARY.md"))?;
    let chapters: BTreeSet<PathBuf> =
        links(&summary).iter().map(|link| from("book/SUMMARY.md", link)).collect();
    let mut beside = BTreeSet::new();
    for chapter in &chapters {
        let text = std::fs::read_to_string(repository.join(chapter))
            .with_context(|| chapter.display().to_string())?;
        let place = chapter.to_str().context("a name that is not UTF-8")?;
        // In the book the list of chapters is beside each page, and no page of its own.
        let text = text.replace("SUMMARY.md)", "README.md)");
        for link in links(&text) {
            let target = from(place, &link);
            let path = repository.join(&target);
            let is_document = target.extension().is_some_and(|extension| extension == "md");
            if is_document && !chapters.contains(&target) {
                bail!("{place} links to {}, which is no chapter of book/SUMMARY.md", target.display());
            }
            // Folders of sources are for readers of the repository; the book shows no list of files.
            if !is_document && path.is_file() {
                beside.insert(target);
            }
        }
        put(folder, chapter, text.as_bytes())?;
    }
    for file in beside {
        put(folder, &file, &std::fs::read(repository.join(&file))?)?;
    }
    put(folder, Path::new("SUMMARY.md"), from_root(&summary).as_bytes())
}

/// The list of chapters, of which each has a line of its own, with links from the root of the repository.
fn from_root(summary: &str) -> String {
    let mut text = String::with_capacity(summary.len());
    for line in summary.split_inclusive('\n') {
        let link = line.split_once("](").and_then(|(title, rest)| Some((title, rest.split_once(')')?)));
        match link {
            Some((title, (link, rest))) => {
                let link = from("book/SUMMARY.md", link);
                text.push_str(&format!("{title}]({}){rest}", link.display()));
            }
            None => text.push_str(line),
        }
    }
    text
}

fn put(folder: &Path, file: &Path, bytes: &[u8]) -> Result<()> {
    let path = folder.join(file);
    let parent = path.parent().context("a file without folder")?;
    std::fs::create_dir_all(parent)?;
    std::fs::write(&path, bytes).with_context(|| path.display().to_string())
}

/// The relative targets of the links of a document, without anchors, and of its pictures.
fn links(text: &str) -> Vec<String> {
    let mut is_code = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if is_code {
            continue;
        }
        let pieces = ["](", " src=\"", " srcset=\""].iter().flat_map(|begin| line.split(begin).skip(1));
        for piece in pieces {
            let target = piece.split([')', '#', ' ', '"']).next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:") {
                found.push(target.to_owned());
            }
        }
    }
    found
}

/// The place in the repository that a link of a document means.
fn from(document: &str, link: &str) -> PathBuf {
    let folder = Path::new(document).parent().unwrap_or(Path::new(""));
    let mut path = PathBuf::new();
    for part in folder.join(link).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chapters_link_in_the_list_is_not_taken_for_that_of_another_one() {
        let summary = "# Summary\n\n[kube-fpga](../README.md)\n[About](README.md)\n\n- [Pods](use/pods.md)\n";
        let expected =
            "# Summary\n\n[kube-fpga](README.md)\n[About](book/README.md)\n\n- [Pods](book/use/pods.md)\n";
        assert_eq!(from_root(summary), expected);
    }

    #[test]
    fn links_in_code_and_to_other_sites_are_no_links_to_documents() {
        let text = "[a](x.md#part) [b](https://example.com)\n```sh\necho '](no.md)'\n```\n[c](../y/z.md)";
        assert_eq!(links(text), ["x.md", "../y/z.md"]);
        let pictures = "<source srcset=\"dark.png\">\n<img alt=\"A page\" src=\"light.png\">";
        assert_eq!(links(pictures), ["dark.png", "light.png"]);
        assert_eq!(from("book/use/pods.md", "../../README.md"), Path::new("README.md"));
    }
}
