//! Checks of the connection from kube-scheduler to the extender: TLS, and the resolution of the host's name.

use super::ours;
use crate::doctor::facts::{Facts, Looked};
use crate::doctor::finding::Finding;

/// Whether kube-scheduler verifies the extender's certificate.
#[must_use]
pub fn tls(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "tls";
    let Some((_, extender)) = ours(facts) else { return Vec::new() };
    let https = extender.url_prefix.starts_with("https://");
    let tls = extender.tls_config.clone().unwrap_or_default();
    let has_ca =
        tls.ca_data.is_some_and(|data| !data.is_empty()) || tls.ca_file.is_some_and(|file| !file.is_empty());
    // A URL without host is a finding of `dns`.
    let Some(host) = extender.host() else { return Vec::new() };
    let is_local =
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    let why = "Whoever gets between may say where pods go.";
    vec![if extender.enable_https && !https {
        Finding::problem(
            CHECK,
            "enableHTTPS is true and urlPrefix begins with http://",
            "enableHTTPS alters only TLS defaults; the URL's scheme decides: nothing is encrypted.",
            "Write https:// in urlPrefix, with tlsConfig.caData; or take enableHTTPS out.",
        )
    } else if https && (tls.insecure || !has_ca) {
        let what = if tls.insecure {
            "tlsConfig.insecure is true"
        } else {
            "https without tlsConfig.caData or caFile"
        };
        // Without enableHTTPS kube-scheduler trusts the host's authorities, none of which signs names of cluster
        // services.
        let why = if tls.insecure || extender.enable_https {
            format!("The extender's certificate is not checked. {why}")
        } else {
            "kube-scheduler's host knows no authority for the extender's certificate: calls fail.".to_owned()
        };
        Finding::problem(
            CHECK,
            what,
            why,
            "Give tlsConfig.caData, the authority of the extender's certificate in base64.",
        )
    } else if https {
        Finding::ok(CHECK, "https with an authority of its own")
    } else if is_local {
        Finding::ok(CHECK, "plain http, within kube-scheduler's own machine")
    } else {
        Finding::warning(
            CHECK,
            format!("plain http to {host}"),
            format!("Nothing on the way is encrypted or checked. {why}"),
            "Give the extender a certificate (manifests/README.md: HTTPS for kube-scheduler), and urlPrefix https:// with \
             tlsConfig.caData.",
        )
    }]
}

/// Whether kube-scheduler can resolve the extender's name.
#[must_use]
pub fn dns(facts: &Facts) -> Vec<Finding> {
    const CHECK: &str = "dns";
    let Some((_, extender)) = ours(facts) else { return Vec::new() };
    let Some(host) = extender.host() else {
        return vec![Finding::problem(
            CHECK,
            format!("urlPrefix {:?} is no URL", extender.url_prefix),
            "kube-scheduler can't reach the extender.",
            "Write for example http://127.0.0.1:9461.",
        )];
    };
    if host.parse::<std::net::IpAddr>().is_ok() || host == "localhost" {
        return vec![Finding::ok(CHECK, format!("{host} needs no resolving"))];
    }
    let is_service = host.ends_with(".svc") || host.contains(".svc.") || !host.contains('.');
    let mend =
        "Set dnsPolicy: ClusterFirstWithHostNet on kube-scheduler's pod, or give an address in urlPrefix.";
    let why = "The host's network doesn't know the names of cluster services: every call fails, and FPGA pods stay Pending.";
    vec![match &facts.scheduler_pod {
        _ if !is_service => Finding::ok(CHECK, format!("{host} is not a name of the cluster's own DNS")),
        Looked::Found(pod) if pod.host_network && pod.dns_policy != "ClusterFirstWithHostNet" => {
            let what = format!(
                "urlPrefix has {host}, and {} in the host's network has dnsPolicy {}",
                pod.name, pod.dns_policy
            );
            Finding::problem(CHECK, what, why, mend)
        }
        Looked::Found(_) => Finding::ok(CHECK, format!("kube-scheduler's pod resolves {host}")),
        Looked::Hidden(hidden) => Finding::unknown(
            CHECK,
            format!("urlPrefix has {host}, and kube-scheduler's pod can't be looked at: {hidden}"),
            format!("If kube-scheduler is in the host's network: {mend}"),
        ),
    }]
}
