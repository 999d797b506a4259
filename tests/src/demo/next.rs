//! What a newcomer may try after a demo: three things, each with a document or a command.

use std::fmt::Write as _;

/// A demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Demo {
    /// The demo of functions, on modelled or real nodes.
    Functions,
    /// The demo of the pool.
    Pool,
}

impl Demo {
    /// The document or command of each thing to try, and what it is.
    const fn next(self) -> [(&'static str, &'static str); 3] {
        const CLUSTER: (&str, &str) = (
            "book/quick-start.md",
            "install kube-fpga on your own cluster, and watch it by `kubectl fpga web`",
        );
        match self {
            Self::Functions => [
                ("book/use/c.md", "write a function"),
                CLUSTER,
                ("make demo POOL=1", "run jobs of two tenants in the pool, on slots that boards lend"),
            ],
            Self::Pool => [
                ("book/use/jobs.md", "write a job"),
                CLUSTER,
                ("make demo", "call functions, whose pods Kubernetes places by what the boards do"),
            ],
        }
    }

    /// The lines that a demo ends with.
    pub(super) fn what_next(self) -> String {
        let mut text = "\nWhat to try next".to_owned();
        for (how, what) in self.next() {
            // Writing to a string can't fail.
            let _ = write!(text, "\n    {how:<22}{what}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::programs::repository;

    #[test]
    fn each_demo_ends_with_three_things_to_try_whose_documents_are_there() {
        for demo in [Demo::Functions, Demo::Pool] {
            let text = demo.what_next();
            assert_eq!(text.trim_start().lines().count(), 1 + 3, "{text}");
            let documents = demo.next().into_iter().filter(|(how, _)| !how.starts_with("make demo"));
            for (document, _) in documents {
                assert!(repository().join(document).is_file(), "{document} is missing");
                assert!(text.contains(document), "{text}");
            }
        }
    }
}
