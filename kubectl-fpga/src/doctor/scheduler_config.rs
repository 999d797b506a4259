//! kube-scheduler's configuration file, as far as it concerns an extender.

use super::facts::DEFAULT_SCHEDULER;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The score plugins that are on by default, and their weights.
const DEFAULT_WEIGHTS: [(&str, u64); 7] = [
    ("TaintToleration", 3),
    ("NodeAffinity", 2),
    ("PodTopologySpread", 2),
    ("InterPodAffinity", 2),
    ("NodeResourcesFit", 1),
    ("NodeResourcesBalancedAllocation", 1),
    ("ImageLocality", 1),
];

/// A `KubeSchedulerConfiguration`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulerConfig {
    /// What it is.
    pub kind: Option<String>,
    /// When the search for feasible nodes stops; 0 and nothing: by the size of the cluster.
    pub percentage_of_nodes_to_score: Option<u32>,
    /// The profiles.
    pub profiles: Option<Vec<Profile>>,
    /// The extenders.
    pub extenders: Option<Vec<Extender>>,
}

/// A profile.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Profile {
    /// Its name.
    pub scheduler_name: Option<String>,
    /// Its own [`SchedulerConfig::percentage_of_nodes_to_score`].
    pub percentage_of_nodes_to_score: Option<u32>,
    /// Its plugins.
    pub plugins: Option<Plugins>,
}

/// Plugins of a profile.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Plugins {
    /// At the point where nodes are scored.
    pub score: Option<PluginSet>,
    /// At all points.
    pub multi_point: Option<PluginSet>,
}

/// Plugins that are switched on and off.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PluginSet {
    /// On.
    pub enabled: Option<Vec<Plugin>>,
    /// Off; `*` is all.
    pub disabled: Option<Vec<Plugin>>,
}

/// A plugin.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Plugin {
    /// Its name.
    pub name: String,
    /// Its weight; 0 is 1.
    pub weight: Option<u64>,
}

/// An extender.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Extender {
    /// Where it is.
    pub url_prefix: String,
    /// Path of filter.
    pub filter_verb: String,
    /// Path of prioritize.
    pub prioritize_verb: String,
    /// Path of preempt.
    pub preempt_verb: String,
    /// Path of bind.
    pub bind_verb: String,
    /// What its score counts.
    pub weight: u64,
    /// TLS by default settings.
    #[serde(rename = "enableHTTPS")]
    pub enable_https: bool,
    /// TLS.
    pub tls_config: Option<TlsConfig>,
    /// Longest time of a call.
    pub http_timeout: Option<String>,
    /// Names instead of whole nodes.
    pub node_cache_capable: bool,
    /// Which pods are sent to it; none: all.
    pub managed_resources: Option<Vec<ManagedResource>>,
    /// Whether pods are placed without it while it is away.
    pub ignorable: bool,
}

/// TLS of an extender.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TlsConfig {
    /// Whom it speaks to is not checked.
    pub insecure: bool,
    /// Certificate authority.
    pub ca_file: Option<String>,
    /// The same in the file itself.
    pub ca_data: Option<String>,
    /// Certificate to show.
    pub cert_file: Option<String>,
    /// The same in the file itself.
    pub cert_data: Option<String>,
}

/// A resource by which pods are chosen.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedResource {
    /// Its name.
    pub name: String,
    /// Whether kube-scheduler itself looks for it on nodes.
    pub ignored_by_scheduler: bool,
}

impl SchedulerConfig {
    /// The configuration in this YAML.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let config: Self = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        match config.kind.as_deref() {
            Some("KubeSchedulerConfiguration") => Ok(config),
            kind => Err(format!(
                "it is a {}, and no KubeSchedulerConfiguration",
                kind.unwrap_or("file without kind")
            )),
        }
    }

    /// Our extender: the one for our resource, else the one that is named like ours, else the only one.
    #[must_use]
    pub fn ours(&self) -> Option<&Extender> {
        let all = self.extenders.as_deref().unwrap_or_default();
        let for_our_resource = |extender: &&Extender| {
            extender.managed().iter().any(|resource| resource.name == fpga_core::names::ACCELERATED_RESOURCE)
        };
        let named = |extender: &&Extender| {
            extender.url_prefix.contains("fpga") || extender.url_prefix.contains(":9461")
        };
        let only = if let [one] = all { Some(one) } else { None };
        all.iter().find(for_our_resource).or_else(|| all.iter().find(named)).or(only)
    }

    /// What pods write as their `schedulerName` to be placed by it.
    #[must_use]
    pub fn scheduler_names(&self) -> Vec<&str> {
        match self.profiles.as_deref().unwrap_or_default() {
            [] => vec![DEFAULT_SCHEDULER],
            profiles => profiles.iter().map(Profile::name).collect(),
        }
    }

    /// Per profile the most points that its plugins can give a node together.
    #[must_use]
    pub fn plugin_points(&self) -> u64 {
        let profiles = self.profiles.as_deref().unwrap_or_default();
        profiles
            .iter()
            .map(Profile::plugin_points)
            .max()
            .unwrap_or_else(|| Profile::default().plugin_points())
    }

    /// The percentage that is in force; nothing if kube-scheduler adapts it.
    #[must_use]
    pub fn percentage(&self) -> Option<u32> {
        let profiles = self.profiles.as_deref().unwrap_or_default();
        let own = profiles.iter().filter_map(|profile| profile.percentage_of_nodes_to_score).min();
        own.or(self.percentage_of_nodes_to_score).filter(|percentage| *percentage > 0)
    }
}

impl Profile {
    fn name(&self) -> &str {
        self.scheduler_name.as_deref().unwrap_or(DEFAULT_SCHEDULER)
    }

    fn plugin_points(&self) -> u64 {
        let mut weights: BTreeMap<&str, u64> = DEFAULT_WEIGHTS.into_iter().collect();
        let plugins = self.plugins.as_ref();
        let sets = [
            plugins.and_then(|plugins| plugins.multi_point.as_ref()),
            plugins.and_then(|plugins| plugins.score.as_ref()),
        ];
        for set in sets.into_iter().flatten() {
            for plugin in set.disabled.as_deref().unwrap_or_default() {
                if plugin.name == "*" {
                    weights.clear();
                } else {
                    weights.remove(plugin.name.as_str());
                }
            }
            for plugin in set.enabled.as_deref().unwrap_or_default() {
                let default = DEFAULT_WEIGHTS
                    .iter()
                    .find(|(name, _)| *name == plugin.name)
                    .map_or(1, |(_, weight)| *weight);
                weights.insert(&plugin.name, plugin.weight.filter(|weight| *weight > 0).unwrap_or(default));
            }
        }
        weights.values().fold(0_u64, |sum, weight| sum.saturating_add(weight.saturating_mul(100)))
    }
}

impl Extender {
    /// Resources by which pods are chosen.
    #[must_use]
    pub fn managed(&self) -> &[ManagedResource] {
        self.managed_resources.as_deref().unwrap_or_default()
    }

    /// Whether kube-scheduler shows a certificate to it.
    #[must_use]
    pub fn has_certificate(&self) -> bool {
        self.tls_config.as_ref().is_some_and(|tls| tls.cert_file.is_some() || tls.cert_data.is_some())
    }

    /// The host in its URL.
    #[must_use]
    pub fn host(&self) -> Option<String> {
        let uri: http::Uri = self.url_prefix.parse().ok()?;
        Some(uri.host()?.trim_matches(['[', ']']).to_owned())
    }

    /// Longest time of a call, in milliseconds; nothing if it can't be understood.
    #[must_use]
    pub fn timeout_ms(&self) -> Option<u64> {
        match self.http_timeout.as_deref() {
            None | Some("" | "0s") => Some(5_000),
            Some(text) => go_duration(text),
        }
    }
}

/// A duration as Go writes it, `1m30s`, in milliseconds.
fn go_duration(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut sum = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        sum += number
            * match &rest[..unit] {
                "h" => 3_600_000.0,
                "m" => 60_000.0,
                "s" => 1_000.0,
                "ms" => 1.0,
                "us" | "µs" => 0.001,
                _ => return None,
            };
        rest = &rest[unit..];
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
    let millis = sum as u64;
    Some(millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> SchedulerConfig {
        SchedulerConfig::parse(&format!("kind: KubeSchedulerConfiguration\n{text}")).unwrap()
    }

    #[test]
    fn the_shipped_configurations_are_understood() {
        for (file, managed) in [
            ("scheduler-config/kube-scheduler.yaml", 1),
            ("scheduler-config/kube-scheduler.label-only.yaml", 0),
            ("manifests/base/extender/kube-scheduler.yaml", 1),
        ] {
            let path = format!("{}/../{file}", env!("CARGO_MANIFEST_DIR"));
            let config = SchedulerConfig::parse(&std::fs::read_to_string(path).unwrap()).unwrap();
            let ours = config.ours().unwrap();
            assert_eq!((ours.weight, ours.managed().len(), ours.timeout_ms()), (10, managed, Some(1_000)));
            assert!(ours.node_cache_capable && ours.host().as_deref() == Some("127.0.0.1"));
        }
    }

    #[test]
    fn plugin_weights_are_added_up_as_kube_scheduler_does() {
        assert_eq!(parse("").plugin_points(), 1200);
        let text = "profiles:\n- plugins:\n    score:\n      disabled: [{name: TaintToleration}]\n      enabled: [{name: Own, weight: 7}, {name: ImageLocality}]\n";
        assert_eq!(parse(text).plugin_points(), 1200 - 300 + 700);
        let none = "profiles:\n- plugins:\n    multiPoint:\n      disabled: [{name: \"*\"}]\n";
        assert_eq!(parse(none).plugin_points(), 0);
    }

    #[test]
    fn ours_is_found_among_several_and_others_are_left_alone() {
        let text = "extenders:\n- urlPrefix: http://gpu:80\n- urlPrefix: http://x:1\n  managedResources: [{name: fpga-scheduling.io/accelerated}]\n";
        assert_eq!(parse(text).ours().unwrap().url_prefix, "http://x:1");
        assert!(
            parse("extenders:\n- urlPrefix: http://gpu:80\n- urlPrefix: http://other:80\n").ours().is_none()
        );
        assert!(parse("extenders: null").ours().is_none());
    }

    #[test]
    fn durations_are_read_as_go_writes_them() {
        for (text, millis) in [
            ("1s", Some(1_000)),
            ("1m30s", Some(90_000)),
            ("1.5s", Some(1_500)),
            ("200ms", Some(200)),
            ("5", None),
            ("x", None),
        ] {
            assert_eq!(go_duration(text), millis, "{text}");
        }
    }

    #[test]
    fn what_is_no_such_file_is_told() {
        assert!(SchedulerConfig::parse("kind: Pod").unwrap_err().contains("it is a Pod"));
        assert!(SchedulerConfig::parse("a: [").is_err());
    }
}
