//! Metrics of connections: kube-scheduler and collectors see only that a connection was closed, the metrics tell why.

use fpga_net::http::Refusal;
use fpga_net::label_texts;
use fpga_net::tls::{Expiry, Reload};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// A port of the extender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PortName {
    /// The port of the verbs.
    Http,
    /// The port for people and their tools.
    Read,
    /// The port for probes and metrics.
    Metrics,
    /// The port of the collectors' streams.
    Stream,
}

/// Labels of a refused connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RefusalLabels {
    port: PortName,
    reason: Refusal,
}

/// Labels of a reload of certificate files.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReloadLabels {
    port: PortName,
    outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Outcome {
    Loaded,
    Failed,
}

/// Label of a port.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PortLabels {
    port: PortName,
}

/// Labels of the end of a certificate's validity.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ExpiryLabels {
    port: PortName,
    certificate: Which,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Which {
    Own,
    ClientCa,
}

/// The metrics of all ports; clones share their values.
#[derive(Debug, Clone, Default)]
pub struct PortMetrics {
    refused: Family<RefusalLabels, Counter>,
    reloads: Family<ReloadLabels, Counter>,
    unused: Family<PortLabels, Gauge>,
    expires: Family<ExpiryLabels, Gauge>,
}

impl PortMetrics {
    /// Registers all metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "Connections refused, or ended by us before their time";
        registry.register("connections_refused", help, metrics.refused.clone());
        registry.register(
            "certificate_reloads",
            "Changes of certificate files seen",
            metrics.reloads.clone(),
        );
        let help = "1 while the certificate files have changed and are not used for what is wrong with them";
        registry.register("certificate_unused", help, metrics.unused.clone());
        let help = "When the certificate in use ends, or the first authority for clients, since the epoch";
        registry.register_with_unit("certificate_expires", help, Unit::Seconds, metrics.expires.clone());
        metrics
    }

    /// Sets the ends of the certificates in use.
    pub fn valid_until(&self, port: PortName, expiry: Expiry) {
        if expiry.certificate.is_some() {
            // 0 until files are not used, so that Prometheus knows of the port.
            drop(self.unused.get_or_create(&PortLabels { port }));
        }
        for (certificate, end) in [(Which::Own, expiry.certificate), (Which::ClientCa, expiry.client_ca)] {
            if let Some(end) = end {
                self.expires.get_or_create(&ExpiryLabels { port, certificate }).set(end);
            }
        }
    }

    /// Counts a refused connection.
    pub fn refused(&self, port: PortName, refusal: Refusal) {
        self.refused.get_or_create(&RefusalLabels { port, reason: refusal }).inc();
    }

    /// Counts a reload of certificate files.
    pub fn reloaded(&self, port: PortName, reload: &Reload) {
        let (outcome, unused) = match reload {
            Reload::Same => return,
            Reload::Loaded => (Outcome::Loaded, 0),
            Reload::Failed(_) => (Outcome::Failed, 1),
        };
        self.reloads.get_or_create(&ReloadLabels { port, outcome }).inc();
        self.unused.get_or_create(&PortLabels { port }).set(unused);
    }
}

label_texts! {
    PortName {
        Http => "http",
        Read => "read",
        Metrics => "metrics",
        Stream => "stream",
    }
    Which {
        Own => "own",
        ClientCa => "client_ca",
    }
    Outcome {
        Loaded => "loaded",
        Failed => "failed",
    }
}
