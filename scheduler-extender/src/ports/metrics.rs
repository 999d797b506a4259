//! What happens at the ports before there is a request: kube-scheduler and collectors see a closed connection, here is why.

use fpga_net::http::Refusal;
use fpga_net::label_texts;
use fpga_net::tls::{Expiry, Reload};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use std::fmt::{self, Write as _};

/// Our ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PortName {
    /// That of the verbs.
    Http,
    /// That of people and their tools.
    Read,
    /// That of probes and metrics.
    Metrics,
    /// That of collectors.
    Stream,
}

/// Labels of a refused connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RefusalLabels {
    port: PortName,
    reason: Reason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Reason(Refusal);

/// Labels of a look at changed certificates.
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

/// Labels of a certificate's end.
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

/// What is counted at the ports; clones share their values.
#[derive(Debug, Clone, Default)]
pub struct PortMetrics {
    refused: Family<RefusalLabels, Counter>,
    reloads: Family<ReloadLabels, Counter>,
    unused: Family<PortLabels, Gauge>,
    expires: Family<ExpiryLabels, Gauge>,
}

impl PortMetrics {
    /// Registers all.
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

    /// The certificates in use end then.
    pub fn valid_until(&self, port: PortName, expiry: Expiry) {
        for (certificate, end) in [(Which::Own, expiry.certificate), (Which::ClientCa, expiry.client_ca)] {
            if let Some(end) = end {
                self.expires.get_or_create(&ExpiryLabels { port, certificate }).set(end);
            }
        }
    }

    /// A connection was refused.
    pub fn refused(&self, port: PortName, refusal: Refusal) {
        self.refused.get_or_create(&RefusalLabels { port, reason: Reason(refusal) }).inc();
    }

    /// Certificate files were looked at.
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

impl EncodeLabelValue for Reason {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        encoder.write_str(self.0.name())
    }
}
