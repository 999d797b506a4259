//! Checks that the certificates at the extender's ports don't end soon. Nothing else announces that day.

use crate::doctor::facts::{Certificate, Facts};
use crate::doctor::finding::Finding;
use std::collections::BTreeMap;

/// Days before the end of a certificate from which the check warns: time to notice and to renew.
const SOON_DAYS: i64 = 21;
const DAY_SECONDS: i64 = 86_400;

/// Whether a certificate has ended, or will end within 21 days.
#[must_use]
pub fn certificates(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "certificates";
    let mut looked = false;
    // Replicas usually have the same files: each certificate becomes one finding, with the name of one replica.
    let mut found: BTreeMap<&Certificate, &str> = BTreeMap::new();
    for replica in facts.known_replicas() {
        let Some(metrics) = replica.metrics.found() else { continue };
        looked = true;
        found.extend(metrics.certificates.iter().map(|certificate| (certificate, replica.name.as_str())));
    }
    if !looked {
        return Vec::new();
    }
    let findings = found.iter().filter_map(|(certificate, replica)| {
        let left = certificate.expires - facts.now;
        let days = left.abs() / DAY_SECONDS;
        let what = format!("{} of the {} port of {replica}", name(certificate), certificate.port);
        let (why, mend) = consequence(certificate);
        if left <= 0 {
            Some(Finding::problem(CHECK, format!("{what} ended {days} days ago"), why, mend))
        } else if left < SOON_DAYS * DAY_SECONDS {
            Some(Finding::warning(CHECK, format!("{what} ends in {days} days"), why, mend))
        } else {
            None
        }
    });
    let well = match found.keys().map(|certificate| certificate.expires).min() {
        Some(first) => {
            format!("the first of {} ends in {} days", found.len(), (first - facts.now) / DAY_SECONDS)
        }
        None => "no port of the extender has one".to_owned(),
    };
    Finding::or_ok(CHECK, findings.collect(), well)
}

fn name(certificate: &Certificate) -> &'static str {
    if certificate.which == "client_ca" { "an authority for clients" } else { "the certificate" }
}

/// The consequence of the certificate's end, and what to do.
fn consequence(certificate: &Certificate) -> (&'static str, &'static str) {
    match (certificate.port.as_str(), certificate.which.as_str()) {
        ("stream", "client_ca") => (
            "Collectors are refused from then on: states come by annotation, 10 to 15 s late.",
            "Put the new authority beside the old one into the file of --stream-tls-client-ca, then renew the collectors' \
             certificates.",
        ),
        ("stream", _) => (
            "Collectors refuse it from then on: states come by annotation, 10 to 15 s late.",
            "With certificates.mode generate: kubectl -n kube-fpga create job --from=cronjob/fpga-certificates now. With script: \
             manifests/certificates.sh AUTHORITY-FOLDER | kubectl apply -f -. Programs take it up by themselves.",
        ),
        (_, "client_ca") => (
            "kube-scheduler is refused from then on: FPGA pods stay Pending.",
            "Put the new authority beside the old one into the file of --tls-client-ca, then renew kube-scheduler's certificate.",
        ),
        _ => (
            "kube-scheduler refuses it from then on: FPGA pods stay Pending.",
            "Renew it, with the authority that kube-scheduler's tlsConfig names; the extender takes it up by itself.",
        ),
    }
}
