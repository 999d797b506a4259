//! kube-scheduler's configuration file, as far as it concerns an extender.

use serde::Deserialize;
use std::collections::BTreeMap;

/// Name of the scheduler of pods that name none.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// The score plugins that are enabled by default, and their weights.
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
    /// Kind of the object.
    pub kind: Option<String>,
    /// How several kube-schedulers choose the one that places pods.
    pub leader_election: LeaderElection,
    /// Percentage of the nodes after which the search for feasible nodes stops. With 0 or `None`, kube-scheduler
    /// chooses it by the number of nodes.
    pub percentage_of_nodes_to_score: Option<u32>,
    /// Profiles; each is a scheduler with a name of its own.
    pub profiles: Option<Vec<Profile>>,
    /// Extenders.
    pub extenders: Option<Vec<Extender>>,
}

/// How several kube-schedulers choose the one that places pods.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaderElection {
    /// Whether one is chosen; `None` is true.
    pub leader_elect: Option<bool>,
}

/// A profile of kube-scheduler.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Profile {
    /// The `schedulerName` of pods that use the profile.
    pub scheduler_name: Option<String>,
    /// Overrides [`SchedulerConfig::percentage_of_nodes_to_score`]. With 0, kube-scheduler chooses it by the number of
    /// nodes.
    pub percentage_of_nodes_to_score: Option<u32>,
    /// Changes to the default plugins.
    pub plugins: Option<Plugins>,
}

/// Enabled and disabled plugins of a profile.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Plugins {
    /// For the extension point that scores nodes.
    pub score: Option<PluginSet>,
    /// For all extension points.
    pub multi_point: Option<PluginSet>,
}

/// Plugins to enable and to disable.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PluginSet {
    /// Enabled plugins.
    pub enabled: Option<Vec<Plugin>>,
    /// Disabled plugins; `*` is all.
    pub disabled: Option<Vec<Plugin>>,
}

/// A plugin to enable or disable.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Plugin {
    /// Name of the plugin.
    pub name: String,
    /// Weight of the plugin; 0 or `None` is the default, which is 1 for plugins that are not enabled by default.
    pub weight: Option<u64>,
}

/// An extender of kube-scheduler.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Extender {
    /// URL to which the verbs are appended.
    pub url_prefix: String,
    /// Path of filter; empty if not called.
    pub filter_verb: String,
    /// Path of prioritize; empty if not called.
    pub prioritize_verb: String,
    /// Path of preempt; empty if not called.
    pub preempt_verb: String,
    /// Path of bind; empty if not called.
    pub bind_verb: String,
    /// Factor of the extender's scores.
    pub weight: u64,
    /// Whether TLS settings get defaults; the scheme of the URL alone decides whether TLS is used.
    #[serde(rename = "enableHTTPS")]
    pub enable_https: bool,
    /// TLS settings.
    pub tls_config: Option<TlsConfig>,
    /// Timeout of a call, as Go writes durations.
    pub http_timeout: Option<String>,
    /// Whether requests carry node names instead of whole nodes.
    pub node_cache_capable: bool,
    /// Resources by which pods are sent to the extender; without any, all pods are sent.
    pub managed_resources: Option<Vec<ManagedResource>>,
    /// Whether pods are placed without the extender while it does not answer.
    pub ignorable: bool,
}

/// TLS settings of an extender.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TlsConfig {
    /// Whether the extender's certificate is not verified.
    pub insecure: bool,
    /// Path of the certificate authority.
    pub ca_file: Option<String>,
    /// The certificate authority itself.
    pub ca_data: Option<String>,
    /// Path of the client certificate.
    pub cert_file: Option<String>,
    /// The client certificate itself.
    pub cert_data: Option<String>,
}

/// A resource by which pods are sent to the extender.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedResource {
    /// Name of the resource.
    pub name: String,
    /// Whether kube-scheduler does not itself check that nodes have the resource.
    pub ignored_by_scheduler: bool,
}

impl SchedulerConfig {
    /// Parses YAML.
    ///
    /// # Errors
    /// The text is not YAML of this form, or not of kind `KubeSchedulerConfiguration`.
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

    /// The extender of this project: the one that manages its resource, or else the first whose URL has `fpga` or
    /// port 9461, or else the only one.
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

    /// The `schedulerName`s that this configuration serves.
    #[must_use]
    pub fn scheduler_names(&self) -> Vec<&str> {
        match self.profiles.as_deref().unwrap_or_default() {
            [] => vec![DEFAULT_SCHEDULER],
            profiles => profiles.iter().map(Profile::name).collect(),
        }
    }

    /// The most points that the score plugins of any profile can give a node together.
    #[must_use]
    pub fn plugin_points(&self) -> u64 {
        let profiles = self.profiles.as_deref().unwrap_or_default();
        profiles
            .iter()
            .map(Profile::plugin_points)
            .max()
            .unwrap_or_else(|| Profile::default().plugin_points())
    }

    /// The percentage of nodes that each profile searches: its own, or else the common one; `None` if kube-scheduler
    /// chooses it by the number of nodes.
    #[must_use]
    pub fn percentages(&self) -> Vec<Option<u32>> {
        let common = self.percentage_of_nodes_to_score;
        let own: Vec<Option<u32>> = match self.profiles.as_deref().unwrap_or_default() {
            [] => vec![None],
            profiles => profiles.iter().map(|profile| profile.percentage_of_nodes_to_score).collect(),
        };
        own.into_iter().map(|own| own.or(common).filter(|percentage| *percentage > 0)).collect()
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
    /// Resources by which pods are sent to the extender.
    #[must_use]
    pub fn managed(&self) -> &[ManagedResource] {
        self.managed_resources.as_deref().unwrap_or_default()
    }

    /// Whether kube-scheduler has a client certificate for the extender.
    #[must_use]
    pub fn has_certificate(&self) -> bool {
        self.tls_config.as_ref().is_some_and(|tls| tls.cert_file.is_some() || tls.cert_data.is_some())
    }

    /// The host of the URL; `None` if the URL has none.
    #[must_use]
    pub fn host(&self) -> Option<String> {
        let uri: http::Uri = self.url_prefix.parse().ok()?;
        Some(uri.host()?.trim_matches(['[', ']']).to_owned())
    }

    /// Timeout of a call in milliseconds, 5,000 by default; `None` if the text is not a duration.
    #[must_use]
    pub fn timeout_ms(&self) -> Option<u64> {
        match self.http_timeout.as_deref() {
            None | Some("" | "0s") => Some(5_000),
            Some(text) => go_duration(text),
        }
    }
}

/// Parses a duration as Go writes it, such as `1m30s`, into milliseconds.
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
            ("manifests/rendered/pocl.yaml", 1),
        ] {
            let path = format!("{}/../{file}", env!("CARGO_MANIFEST_DIR"));
            let mut text = std::fs::read_to_string(path).unwrap();
            // In the manifests it is an indented value of a ConfigMap.
            if let Some((_, value)) = text.split_once("\n  kube-scheduler.yaml: |\n") {
                text =
                    value.lines().map_while(|line| line.strip_prefix("    ")).collect::<Vec<_>>().join("\n");
            }
            let config = SchedulerConfig::parse(&text).unwrap();
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
