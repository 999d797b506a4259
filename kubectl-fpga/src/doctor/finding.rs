//! The result of a check.

use serde::Serialize;

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The check found no fault.
    Ok,
    /// A remark; nothing needs to be done.
    Note,
    /// The check could not look.
    Unknown,
    /// The system works less well than it could, or will fail later.
    Warning,
    /// Pods are placed wrongly, or not at all.
    Problem,
}

/// A result of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Name of the check.
    pub check: &'static str,
    /// Severity.
    pub severity: Severity,
    /// The observation.
    pub what: String,
    /// Consequence or cause of the observation; empty if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// How to mend it; empty if nothing needs to be done.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mend: String,
}

impl Finding {
    /// A finding without fault.
    pub fn ok(check: &'static str, what: impl Into<String>) -> Self {
        Self { check, severity: Severity::Ok, what: what.into(), why: String::new(), mend: String::new() }
    }

    /// `findings`, or if there are none, [`Finding::ok`] with `what`.
    pub fn or_ok(check: &'static str, findings: Vec<Self>, what: impl Into<String>) -> Vec<Self> {
        if findings.is_empty() { vec![Self::ok(check, what)] } else { findings }
    }

    /// A remark: nothing needs to be done.
    pub fn note(check: &'static str, what: impl Into<String>, why: impl Into<String>) -> Self {
        let (what, why) = (what.into(), why.into());
        Self { check, severity: Severity::Note, what, why, mend: String::new() }
    }

    /// The check could not look: the reason, and how to enable the check.
    pub fn unknown(check: &'static str, why: impl Into<String>, mend: impl Into<String>) -> Self {
        let what = "could not be checked".to_owned();
        Self { check, severity: Severity::Unknown, what, why: why.into(), mend: mend.into() }
    }

    /// The system works less well than it could, or will fail later.
    pub fn warning(
        check: &'static str,
        what: impl Into<String>,
        why: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self { check, severity: Severity::Warning, what: what.into(), why: why.into(), mend: mend.into() }
    }

    /// Pods are placed wrongly, or not at all.
    pub fn problem(
        check: &'static str,
        what: impl Into<String>,
        why: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Problem, ..Self::warning(check, what, why, mend) }
    }
}

/// The first five names, and the number of the others.
pub fn named<S: AsRef<str>>(names: &[S]) -> String {
    let shown = names.iter().take(5).map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(5) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
