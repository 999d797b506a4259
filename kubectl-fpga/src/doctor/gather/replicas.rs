//! Facts of the extender's replicas, asked of each of them.

use super::ask::looked;
use crate::connection::{Cluster, ConnectArgs};
use crate::doctor::facts::{Certificate, Looked, Metrics, Replica};
use crate::part::Part;
use crate::replicas;
use futures::future::join_all;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct Version {
    version: String,
}

/// All replicas, asked at the same time.
pub(super) async fn look(connect: &ConnectArgs, cluster: &Cluster) -> Looked<Vec<Replica>> {
    let found = match replicas::find(Part::Extender, connect, cluster).await {
        Ok(found) => found,
        Err(problem) => return Looked::Hidden(problem.to_string()),
    };
    let asked = found.iter().map(async |replica| {
        let (config, nodes, metrics, ready, version) = futures::join!(
            replica.ask("/config"),
            replica.ask("/nodes"),
            replica.text("/metrics"),
            replica.text("/readyz"),
            replica.ask::<Version>("/version"),
        );
        Replica {
            name: replica.name.clone(),
            ready: replica.ready && ready.is_ok(),
            config: looked(config).and_some(),
            nodes: looked(nodes).and_some(),
            metrics: match looked(metrics) {
                Looked::Found(text) => Looked::Found(metrics_of(&text.unwrap_or_default())),
                Looked::Hidden(why) => Looked::Hidden(why),
            },
            version: version.ok().flatten().map(|version| version.version),
        }
    });
    Looked::Found(join_all(asked).await)
}

impl<T> Looked<Option<T>> {
    fn and_some(self) -> Looked<T> {
        match self {
            Self::Found(Some(found)) => Looked::Found(found),
            Self::Found(None) => Looked::Hidden("it doesn't tell; it may be of another version".to_owned()),
            Self::Hidden(why) => Looked::Hidden(why),
        }
    }
}

fn metrics_of(text: &str) -> Metrics {
    Metrics { sums: sums(text), certificates: certificates(text), refused_streams: refused_streams(text) }
}

/// For each metric, the sum of its samples.
fn sums(text: &str) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((key, value)) = line.rsplit_once(' ') else { continue };
        let Ok(value) = value.parse::<f64>() else { continue };
        let name = key.split_once('{').map_or(key, |(name, _)| name);
        *sums.entry(name.to_owned()).or_default() += value;
    }
    sums
}

/// Labels and value of each sample of the metric `name`.
fn samples<'t>(text: &'t str, name: &str) -> Vec<(BTreeMap<&'t str, &'t str>, f64)> {
    let sample = |line: &'t str| {
        let (key, value) = line.strip_prefix(name)?.rsplit_once(' ')?;
        // The values of these labels contain no quotes and no commas.
        let labels = key.strip_prefix('{')?.strip_suffix('}')?.split(',');
        let labels = labels.filter_map(|label| label.split_once('='));
        let labels = labels.map(|(label, value)| (label, value.trim_matches('"'))).collect();
        Some((labels, value.parse().ok()?))
    };
    text.lines().filter_map(sample).collect()
}

/// Certificates at the replica's ports.
fn certificates(text: &str) -> Vec<Certificate> {
    let samples = samples(text, "fpga_extender_certificate_expires_seconds");
    let certificate = |(labels, expires): (BTreeMap<&str, &str>, f64)| {
        let (port, which) = (labels.get("port")?, labels.get("certificate")?);
        #[expect(clippy::cast_possible_truncation, reason = "seconds are whole, and too many are cut")]
        let expires = expires as i64;
        Some(Certificate { port: (*port).to_owned(), which: (*which).to_owned(), expires })
    };
    samples.into_iter().filter_map(certificate).collect()
}

/// Number of refused streams by reason, without reasons that did not occur.
fn refused_streams(text: &str) -> BTreeMap<String, f64> {
    let samples = samples(text, "fpga_extender_streams_refused_total");
    let refused = samples.into_iter().filter(|(_, count)| *count > 0.0);
    refused.filter_map(|(labels, count)| Some(((*labels.get("reason")?).to_owned(), count))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_summed_over_their_labels() {
        let sums = sums("# HELP a b\nx_total{a=\"1\"} 2\nx_total{a=\"2\"} 3\ny 0.5\n# EOF\n");
        assert_eq!((sums["x_total"], sums["y"], sums.len()), (5.0, 0.5, 2));
    }

    #[test]
    fn certificates_and_refused_streams_are_read_with_their_labels() {
        let text = "# HELP x
fpga_extender_certificate_expires_seconds{port=\"http\",certificate=\"own\"} 1803859200
fpga_extender_certificate_expires_seconds{port=\"stream\",certificate=\"client_ca\"} 5
fpga_extender_certificate_expires_seconds{odd} 5
fpga_extender_streams_refused_total{reason=\"token\"} 3
fpga_extender_streams_refused_total{reason=\"silent\"} 0
";
        let mk = |port: &str, which: &str, expires| Certificate {
            port: port.into(),
            which: which.into(),
            expires,
        };
        assert_eq!(certificates(text), [mk("http", "own", 1_803_859_200), mk("stream", "client_ca", 5)]);
        assert_eq!(refused_streams(text), [("token".to_owned(), 3.0)].into());
    }
}
