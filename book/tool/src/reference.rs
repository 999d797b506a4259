//! The reference chapters, made from the code.

mod exit_codes;
mod flags;
mod grpc;
mod http;
mod markdown;
mod metrics;
mod names;
mod programs;
mod resources;
mod sources;
mod values;

use anyhow::{Context as _, Result, ensure};
use std::path::Path;

/// A chapter that is made from the code.
#[derive(Debug)]
pub struct Page {
    /// Name of the file in `book/reference`.
    pub name: &'static str,
    /// Its text.
    pub text: String,
}

/// All chapters that are made from the code of `repository`.
///
/// # Errors
/// A source in a form that the generator does not understand. The message names the file and what was expected.
pub fn pages(repository: &Path) -> Result<Vec<Page>> {
    let page = |name, text: Result<String>| -> Result<Page> {
        let text = text.with_context(|| format!("book/reference/{name}"))?;
        Ok(Page { name, text: format!("{text}\n<!-- Made by `make reference` from the code. -->\n") })
    };
    let (made, failed): (Vec<Result<Page>>, Vec<Result<Page>>) = [
        page("flags.md", Ok(flags::page())),
        page("exit-codes.md", Ok(exit_codes::page())),
        page("values.md", values::page(repository)),
        page("metrics.md", metrics::page(repository)),
        page("annotations.md", names::page(repository)),
        page("http.md", http::page(repository)),
        page("grpc.md", grpc::page(repository)),
        page("resources.md", resources::page()),
    ]
    .into_iter()
    .partition(Result::is_ok);
    ensure!(failed.is_empty(), "{}", listed(failed));
    made.into_iter().collect()
}

/// All errors among some results, one a line.
fn listed<T>(results: Vec<Result<T>>) -> String {
    let errors = results.into_iter().filter_map(Result::err).map(|error| format!("{error:#}"));
    errors.collect::<Vec<_>>().join("\n")
}
