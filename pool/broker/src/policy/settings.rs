//! Settings of the policy, and what each tenant may have.

use fpga_cluster::pool::policy::PoolPolicy;
use fpga_cluster::pool::tenants::TenantRules;
use fpga_cluster::qos::groups::GoalPolicy;
use fpga_cluster::qos::rules::GoalRules;
use fpga_cluster::shared_pool::Parameters;
use fpga_core::units::Millis;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

/// Maximum size of a file of tenants, in bytes.
const MAX_FILE_BYTES: usize = 1 << 20;

/// Number of reports of a lease's usage in a period.
const REPORTS_PER_PERIOD: u64 = 5;

/// Settings of the policy.
#[derive(Debug, Clone)]
pub struct PolicySettings {
    /// Policy of the jobs.
    pub jobs: PoolPolicy,
    /// Maximum number of waiting jobs.
    pub most_waiting: usize,
    /// Policy of the groups.
    pub goals: GoalPolicy,
    /// Rules of the groups.
    pub rules: GoalRules,
    /// Time between two divisions of the slots between groups.
    pub period: Millis,
    /// What tenants may have.
    pub tenants: TenantSettings,
}

/// What tenants may have, by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantSettings {
    others: Allowance,
    named: BTreeMap<String, Allowance>,
}

/// What a tenant may have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Allowance {
    pub(super) rules: TenantRules,
    pub(super) guaranteed_slots: u32,
}

/// The reason why a file of tenants can't be used.
#[derive(Debug, thiserror::Error)]
pub enum TenantsError {
    /// The file can't be read.
    #[error("{path} can't be read")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The file's content.
    #[error("{path} does not say what tenants may have: {reason}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What the file says that it must not, and where.
        reason: String,
    },
}

/// The form of a file of tenants.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TenantsFile {
    #[serde(default)]
    default: Entry,
    #[serde(default)]
    tenants: BTreeMap<String, Entry>,
}

/// What a file says of a tenant. What it leaves out is not limited, but waiting jobs are, by
/// [`PolicySettings::allowance`].
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Entry {
    weight: Option<NonZeroU32>,
    waiting_jobs: Option<usize>,
    waiting_bytes: Option<u64>,
    held_slots: Option<u32>,
    guaranteed_slots: Option<u32>,
}

impl PolicySettings {
    /// Time between two reports of what a lease has used: what is not told yet of a group's lease at the end of a period is
    /// a small part of it.
    pub(super) fn usage_interval(&self) -> Millis {
        Millis(self.period.0 / REPORTS_PER_PERIOD)
    }

    /// What a tenant may have. Without a quota of waiting jobs it may have half of all places, so that no tenant takes those
    /// of all others.
    pub(super) fn allowance(&self, tenant: &str) -> Allowance {
        let mut allowance = self.tenants.of(tenant);
        if allowance.rules.waiting_jobs == TenantRules::default().waiting_jobs {
            allowance.rules.waiting_jobs = self.most_waiting.div_ceil(2);
        }
        allowance
    }

    pub(super) fn parameters(&self) -> Parameters {
        let Self { jobs, most_waiting, goals, rules, .. } = self;
        Parameters { jobs: jobs.clone(), most_waiting: *most_waiting, goals: *goals, rules: *rules }
    }
}

impl TenantSettings {
    /// Reads a file (TOML).
    ///
    /// # Errors
    /// [`TenantsError`].
    pub fn read(path: &Path) -> Result<Self, TenantsError> {
        let text = fpga_net::token_file::read_text(path, MAX_FILE_BYTES)
            .map_err(|source| TenantsError::Io { path: path.to_owned(), source })?;
        Self::parse(&text).map_err(|reason| TenantsError::Malformed { path: path.to_owned(), reason })
    }

    /// Parses the text of a file. The error says what is wrong.
    ///
    /// # Errors
    /// A text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let TenantsFile { default, tenants } = toml::from_str(text).map_err(|error| error.to_string())?;
        let others = default.over(Allowance::default());
        let named = tenants.into_iter().map(|(name, entry)| (name, entry.over(others))).collect();
        Ok(Self { others, named })
    }

    fn of(&self, tenant: &str) -> Allowance {
        self.named.get(tenant).copied().unwrap_or(self.others)
    }
}

impl Entry {
    fn over(&self, base: Allowance) -> Allowance {
        let rules = TenantRules {
            weight: self.weight.unwrap_or(base.rules.weight),
            waiting_jobs: self.waiting_jobs.unwrap_or(base.rules.waiting_jobs),
            waiting_bytes: self.waiting_bytes.unwrap_or(base.rules.waiting_bytes),
            held_slots: self.held_slots.unwrap_or(base.rules.held_slots),
        };
        Allowance { rules, guaranteed_slots: self.guaranteed_slots.unwrap_or(base.guaranteed_slots) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_what_the_file_says_over_what_all_have() {
        let text = "[default]\nheld-slots = 2\n[tenants.a]\nweight = 3\n[tenants.b]\nheld-slots = 9\nguaranteed-slots = 1\n";
        let settings = TenantSettings::parse(text).unwrap();
        let facts = |name: &str| {
            let Allowance { rules, guaranteed_slots } = settings.of(name);
            (rules.weight.get(), rules.held_slots, guaranteed_slots)
        };
        assert_eq!([facts("a"), facts("b"), facts("c")], [(3, 2, 0), (1, 9, 1), (1, 2, 0)]);
        assert!(TenantSettings::parse("[tenants.a]\nweight = 0").is_err());
        assert!(TenantSettings::parse("[tenants.a]\nslots = 1").unwrap_err().contains("unknown field"));
    }
}
