//! Whether a run reached what it is for, as the exit status of its command.

use anyhow::{Result, bail};

/// Whether a run is judged.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Verdict {
    /// Exit with success also where a goal is missed or the machine was too slow: for runs that are too short to tell.
    #[arg(long)]
    unjudged: bool,
}

impl Verdict {
    /// Judges a run by what stands against its results.
    ///
    /// # Errors
    /// There is something, and the run is judged.
    pub fn judge(self, faults: &[String]) -> Result<()> {
        if faults.is_empty() || self.unjudged {
            return Ok(());
        }
        bail!("{} (--unjudged exits with success all the same)", faults.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_against_a_result_is_an_error_unless_the_run_is_not_judged() {
        let judged = Verdict { unjudged: false };
        assert!(judged.judge(&[]).is_ok());
        let faults = ["MISSED: one".to_owned(), "VOID: two".to_owned()];
        let error = judged.judge(&faults).unwrap_err().to_string();
        assert!(error.starts_with("MISSED: one; VOID: two"), "{error}");
        assert!(Verdict { unjudged: true }.judge(&faults).is_ok());
    }
}
