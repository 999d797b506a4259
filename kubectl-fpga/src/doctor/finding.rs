//! What a check found.

use serde::Serialize;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// All is well.
    Ok,
    /// Worth knowing.
    Note,
    /// It could not be looked at.
    Unknown,
    /// It works, and not as well as it could; or it will break.
    Warning,
    /// Pods are placed wrongly, or not at all.
    Problem,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Which check.
    pub check: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What it is.
    pub what: String,
    /// What it does.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mend: String,
}

impl Finding {
    /// All is well.
    pub fn ok(check: &'static str, what: impl Into<String>) -> Self {
        Self { check, severity: Severity::Ok, what: what.into(), why: String::new(), mend: String::new() }
    }

    /// What was found; if that is nothing, that all is well.
    pub fn or_ok(check: &'static str, findings: Vec<Self>, what: impl Into<String>) -> Vec<Self> {
        if findings.is_empty() { vec![Self::ok(check, what)] } else { findings }
    }

    /// Worth knowing.
    pub fn note(check: &'static str, what: impl Into<String>, why: impl Into<String>) -> Self {
        let (what, why) = (what.into(), why.into());
        Self { check, severity: Severity::Note, what, why, mend: String::new() }
    }

    /// It could not be looked at: why, and how it can.
    pub fn unknown(check: &'static str, why: impl Into<String>, mend: impl Into<String>) -> Self {
        let what = "could not be checked".to_owned();
        Self { check, severity: Severity::Unknown, what, why: why.into(), mend: mend.into() }
    }

    /// It will break, or works badly.
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
