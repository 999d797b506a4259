//! Settings of tenants: the policy between them, shares and quotas, from flags and from a file that is read again
//! when it changes.
//!
//! The file is JSON (`--tenants FILE`). A setting that the file lacks has the value of the flag. If the file can't
//! be read, the manager logs that and keeps the current settings.

use clap::Args;
use fpga_board::dispatch::Tenant;
use fpga_board::dispatch::policy::{DispatchPolicy, DispatchRules, Share, Weight};
use fpga_net::duration;
use fpga_net::size;
use fpga_session::quota::Quota;
use fpga_session::settings::Current;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// Maximum number of bytes of the file that are read.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Flags of the tenants' settings.
#[derive(Debug, Clone, Args)]
pub struct TenantArgs {
    /// How to choose between tenants that wait: `fifo`, `round-robin`, `drr` (device time by weight), `priority`,
    /// `sjf` (shortest first) or `edf` (earliest deadline first).
    #[arg(long, env = "FPGA_POLICY", default_value_t)]
    pub policy: DispatchPolicy,

    /// Device time that a weight of 1 gets in a turn of `drr`.
    #[arg(long, env = "FPGA_QUANTUM", default_value = "1ms", value_parser = duration::parse)]
    pub quantum: Duration,

    /// How long a task waits until its priority is one higher.
    #[arg(long, env = "FPGA_AGEING", default_value = "100ms", value_parser = duration::parse)]
    pub ageing: Duration,

    /// Quota of a tenant, as far as --tenants gives it none: for example
    /// `memory=2GiB,sessions=64,buffers=65536,programs=1024,queued-tasks=16384,upload=1GiB` [default: no limits but
    /// 256 sessions, 65536 tasks, and uploads of 4GiB].
    #[arg(long, env = "FPGA_DEFAULT_QUOTA", value_name = "LIMIT=VALUE,...")]
    pub default_quota: Option<DefaultQuota>,

    /// File with policy, shares and quotas of tenants (JSON), read again when it changes.
    #[arg(long, env = "FPGA_TENANTS", value_name = "FILE")]
    pub tenants: Option<PathBuf>,
}

/// A quota in the syntax of `--default-quota`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DefaultQuota(Quota);

/// The text is not a [`DefaultQuota`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no quota; write for example `memory=2GiB,sessions=64`; the limits are memory and upload (sizes), \
     buffers, programs, queued-tasks and sessions (numbers)"
)]
pub struct InvalidQuota(String);

/// The reason why a file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file can't be read.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// The path of the file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The content of the file is not valid.
    #[error(
        "{}: {reason}; write for example {{\"policy\": \"drr\", \"tenants\": {{\"uid:1000\": {{\"weight\": 4, \
         \"quota\": {{\"memory\": \"2GiB\"}}}}}}}}",
        .path.display()
    )]
    Content {
        /// The path of the file.
        path: PathBuf,
        /// The first error in the content.
        reason: String,
    },
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    policy: Option<Text<DispatchPolicy>>,
    quantum: Option<Duration_>,
    ageing: Option<Duration_>,
    default: TenantEntry,
    tenants: BTreeMap<String, TenantEntry>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct TenantEntry {
    weight: Option<u32>,
    priority: Option<u8>,
    deadline: Option<Duration_>,
    quota: QuotaEntry,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
struct QuotaEntry {
    memory: Option<Size>,
    buffers: Option<u64>,
    programs: Option<u64>,
    queued_tasks: Option<u64>,
    upload: Option<Size>,
    sessions: Option<u64>,
}

/// A value that is parsed from text by its type.
#[derive(Debug, Clone, Copy)]
struct Text<T>(T);

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
struct Duration_(Duration);

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
struct Size(u64);

impl TryFrom<String> for Duration_ {
    type Error = duration::InvalidDuration;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        duration::parse(&text).map(Self)
    }
}

impl TryFrom<String> for Size {
    type Error = size::InvalidSize;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        size::parse(&text).map(Self)
    }
}

impl<'de, T: FromStr<Err: std::fmt::Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

impl FromStr for DefaultQuota {
    type Err = InvalidQuota;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidQuota(text.to_owned());
        let mut quota = Quota::default();
        for limit in text.split(',') {
            let (name, value) = limit.split_once('=').ok_or_else(invalid)?;
            let size = || size::parse(value).map_err(|_| invalid());
            let number = || value.parse().map_err(|_| invalid());
            match name {
                "memory" => quota.memory = size()?,
                "upload" => quota.upload = size()?,
                "buffers" => quota.buffers = number()?,
                "programs" => quota.programs = number()?,
                "queued-tasks" => quota.queued_tasks = number()?,
                "sessions" => quota.sessions = number()?,
                _ => return Err(invalid()),
            }
        }
        Ok(Self(quota))
    }
}

impl TenantArgs {
    /// The settings of the flags and the file.
    ///
    /// # Errors
    /// [`SettingsError`] if the file can't be used.
    pub fn read(&self) -> Result<Current, SettingsError> {
        let rules = DispatchRules {
            policy: self.policy,
            quantum: self.quantum,
            ageing: self.ageing,
            default: Share::default(),
            tenants: BTreeMap::new(),
        };
        let default_quota = self.default_quota.map_or_else(Quota::default, |DefaultQuota(quota)| quota);
        let base = Current { rules, default_quota, ..Current::default() };
        match &self.tenants {
            None => Ok(base),
            Some(path) => {
                let text = read(path).map_err(|source| SettingsError::Read { path: path.clone(), source })?;
                with_file(base, &text).map_err(|reason| SettingsError::Content { path: path.clone(), reason })
            }
        }
    }
}

/// The text of the file, up to [`MAX_FILE_BYTES`].
fn read(path: &Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// `base` with what the file says.
fn with_file(mut base: Current, text: &str) -> Result<Current, String> {
    let File { policy, quantum, ageing, default, tenants } =
        serde_json::from_str(text).map_err(|error| error.to_string())?;
    if let Some(Text(policy)) = policy {
        base.rules.policy = policy;
    }
    if let Some(Duration_(quantum)) = quantum {
        base.rules.quantum = quantum;
    }
    if let Some(Duration_(ageing)) = ageing {
        base.rules.ageing = ageing;
    }
    base.rules.default = default.share(base.rules.default).map_err(|error| format!("default: {error}"))?;
    base.default_quota = default.quota.over(base.default_quota);
    for (name, entry) in tenants {
        let share = entry.share(base.rules.default).map_err(|error| format!("{name}: {error}"))?;
        let tenant = Tenant::new(&name);
        base.quotas.insert(tenant.clone(), entry.quota.over(base.default_quota));
        base.rules.tenants.insert(tenant, share);
    }
    Ok(base)
}

impl TenantEntry {
    fn share(&self, base: Share) -> Result<Share, String> {
        let weight = match self.weight {
            Some(weight) => Weight::new(weight).map_err(|error| error.to_string())?,
            None => base.weight,
        };
        Ok(Share {
            weight,
            priority: self.priority.unwrap_or(base.priority),
            deadline: self.deadline.map_or(base.deadline, |Duration_(deadline)| deadline),
        })
    }
}

impl QuotaEntry {
    fn over(&self, base: Quota) -> Quota {
        Quota {
            memory: self.memory.map_or(base.memory, |Size(bytes)| bytes),
            buffers: self.buffers.unwrap_or(base.buffers),
            programs: self.programs.unwrap_or(base.programs),
            queued_tasks: self.queued_tasks.unwrap_or(base.queued_tasks),
            upload: self.upload.map_or(base.upload, |Size(bytes)| bytes),
            sessions: self.sessions.unwrap_or(base.sessions),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(file: Option<PathBuf>) -> TenantArgs {
        TenantArgs {
            policy: DispatchPolicy::Fifo,
            quantum: Duration::from_millis(1),
            ageing: Duration::from_millis(100),
            default_quota: None,
            tenants: file,
        }
    }

    #[test]
    fn a_quota_of_flags_is_that_of_tenants_of_which_the_file_says_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tenants.json");
        let text =
            r#"{"default": {"quota": {"buffers": 10}}, "tenants": {"shop": {"quota": {"sessions": 2}}}}"#;
        std::fs::write(&path, text).unwrap();
        let default_quota = Some("memory=2GiB,sessions=64,buffers=9".parse().unwrap());
        let current = TenantArgs { default_quota, ..args(Some(path)) }.read().unwrap();
        let of = |name: &str| current.quota(&Tenant::new(name));
        assert_eq!((of("mill").memory, of("mill").sessions, of("mill").buffers), (2 << 30, 64, 10));
        assert_eq!((of("shop").memory, of("shop").sessions, of("shop").buffers), (2 << 30, 2, 10));
        for text in ["", "memory", "memory=12", "sessions=-1", "colour=1"] {
            let error = text.parse::<DefaultQuota>().unwrap_err().to_string();
            assert!(error.contains("`memory=2GiB,sessions=64`"), "{error}");
        }
    }

    #[test]
    fn a_file_goes_over_the_flags_and_tenants_over_the_default() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tenants.json");
        let text = r#"{"policy": "drr", "quantum": "2ms",
            "default": {"weight": 2, "quota": {"buffers": 10}},
            "tenants": {"uid:7": {"weight": 9, "priority": 3, "deadline": "5ms",
                                   "quota": {"memory": "1GiB", "queued-tasks": 4}}}}"#;
        std::fs::write(&path, text).unwrap();
        let current = args(Some(path)).read().unwrap();
        assert_eq!(
            (current.rules.policy, current.rules.quantum.as_millis()),
            (DispatchPolicy::DeficitRoundRobin, 2)
        );
        assert_eq!(current.rules.ageing, Duration::from_millis(100));
        let (seven, other) = (Tenant::new("uid:7"), Tenant::new("uid:8"));
        assert_eq!(current.rules.share(&seven).weight.get(), 9);
        assert_eq!(current.rules.share(&other).weight.get(), 2);
        let quota = current.quota(&seven);
        assert_eq!((quota.memory, quota.queued_tasks, quota.buffers), (1 << 30, 4, 10));
        assert_eq!(current.quota(&other), Quota { buffers: 10, ..Quota::default() });
    }

    #[test]
    fn what_can_not_be_used_is_named_with_a_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tenants.json");
        for (text, reason) in [
            ("{", "EOF"),
            (r#"{"policy": "lottery"}"#, "no policy"),
            (r#"{"tenants": {"a": {"weight": 0}}}"#, "a: 0 is no weight"),
            (r#"{"tenants": {"a": {"wieght": 1}}}"#, "wieght"),
            (r#"{"default": {"quota": {"memory": "12"}}}"#, "no size"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = args(Some(path.clone())).read().unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("write for example"), "{error}");
        }
        let error = args(Some(dir.path().join("none"))).read().unwrap_err().to_string();
        assert!(error.contains("none"), "{error}");
    }
}
