//! Whether this kernel can confine what tenants run. The decision is apart from the look at the kernel.

use crate::isolation::seccomp;
use fpga_session::confine::{self, ConfineBuilds};
use fpga_session::isolate::Isolate;
use std::fmt;
use std::io;

/// The parts of the confinement, as far as this kernel has them.
#[derive(Debug)]
pub(crate) struct KernelSupport {
    landlock: io::Result<()>,
    seccomp: io::Result<()>,
}

/// A part of the confinement that this kernel lacks.
#[derive(Debug)]
pub(super) struct Missing {
    what: &'static str,
    /// What tenants can do without it.
    consequence: &'static str,
    error: String,
}

/// The confinement is required, and this kernel lacks parts of it.
#[derive(Debug, thiserror::Error)]
#[error(
    "--confine-builds required: {}. Use a node whose kernel and container runtime allow it; or accept this, and write \
     `--confine-builds wanted` (for `supervise` after `--`)",
    .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
)]
pub(crate) struct NotConfined(Vec<Missing>);

impl KernelSupport {
    /// What the kernel has that this process runs on.
    pub(crate) fn of_this_kernel() -> Self {
        Self { landlock: confine::is_there(), seccomp: seccomp::is_there() }
    }

    /// The parts that are missing, for a warning.
    ///
    /// # Errors
    /// [`NotConfined`], if parts are missing and required.
    pub(super) fn check(self, confine: ConfineBuilds, isolate: Isolate) -> Result<Vec<Missing>, NotConfined> {
        let of_processes = match isolate {
            Isolate::Protocol => Ok(()),
            Isolate::Process => self.seccomp,
        };
        let landlock = ("Landlock (Linux 5.13 or later, with `landlock` in `lsm=`)", LANDLOCK_CONSEQUENCE);
        let seccomp = ("seccomp with user notification (Linux 5.5 or later)", SECCOMP_CONSEQUENCE);
        let parts = [(self.landlock, landlock), (of_processes, seccomp)];
        let missing: Vec<_> = parts
            .into_iter()
            .filter_map(|(there, (what, consequence))| {
                let error = there.err()?.to_string();
                Some(Missing { what, consequence, error })
            })
            .collect();
        match confine {
            ConfineBuilds::Off => Ok(Vec::new()),
            ConfineBuilds::Required if !missing.is_empty() => Err(NotConfined(missing)),
            ConfineBuilds::Required | ConfineBuilds::Wanted => Ok(missing),
        }
    }
}

const LANDLOCK_CONSEQUENCE: &str =
    "sources and kernels of a tenant can open the manager's files, tokens of other tenants included";
const SECCOMP_CONSEQUENCE: &str = "kernels of a tenant can make any system call";

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this kernel has no {} ({}), so {}", self.what, self.error, self.consequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ConfineBuilds::{Off, Required, Wanted};

    fn kernel(landlock: bool, seccomp: bool) -> KernelSupport {
        let part = |there: bool| if there { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) };
        KernelSupport { landlock: part(landlock), seccomp: part(seccomp) }
    }

    #[test]
    fn required_confinement_refuses_a_kernel_without_any_part_that_tenants_need_and_says_what_to_write() {
        for (isolate, landlock, seccomp) in [
            (Isolate::Process, false, true),
            (Isolate::Process, true, false),
            (Isolate::Protocol, false, true),
        ] {
            let error = kernel(landlock, seccomp).check(Required, isolate).unwrap_err().to_string();
            assert_eq!(error.contains("Landlock"), !landlock, "{error}");
            assert_eq!(error.contains("seccomp"), !seccomp, "{error}");
            assert!(error.contains("`--confine-builds wanted`"), "{error}");
            assert_eq!(kernel(landlock, seccomp).check(Wanted, isolate).unwrap().len(), 1);
            assert!(kernel(landlock, seccomp).check(Off, isolate).unwrap().is_empty());
        }
    }

    #[test]
    fn required_confinement_takes_a_kernel_that_has_what_the_isolation_uses() {
        assert!(kernel(true, true).check(Required, Isolate::Process).unwrap().is_empty());
        assert!(kernel(true, false).check(Required, Isolate::Protocol).unwrap().is_empty());
    }
}
