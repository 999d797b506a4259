//! Faults of the collectors' streams.

use super::*;
use crate::doctor::checks::streams;

#[test]
fn collectors_that_do_not_stream_are_found_with_what_they_were_refused_for() {
    let sources = |sources: [&'static str; 2], refused: &'static [(&'static str, f64)]| {
        with_replicas(move |place, replica| {
            if let Looked::Found(nodes) = &mut replica.nodes {
                for (node, source) in nodes.iter_mut().zip(sources) {
                    node.source = source.into();
                }
            }
            if place == 0 {
                let refused_streams =
                    refused.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect();
                replica.metrics = Looked::Found(Metrics { refused_streams, ..Metrics::default() });
            }
        })
    };
    let (check, both) = ("streams", ["stream", "stream"]);
    only(&sources(["watched", "stream"], &[]), Severity::Warning, check, "to every replica: n1");
    for (reason, hint) in [
        ("token", "Kubernetes 1.32"),
        ("other_node", "spec.nodeName"),
        ("not_ready", "tokenreviews"),
        ("unknown_node", "kubectl get nodes"),
        ("other_uid", "made anew"),
        ("introduction", "same version"),
    ] {
        let refused: &'static [_] = Box::leak(Box::new([(reason, 2.0)]));
        let facts = sources(["watched", "watched"], refused);
        only(&facts, Severity::Warning, check, "to every replica: n1, n2");
        let finding = streams::streams(&facts).remove(0);
        assert!(
            finding.why.contains("Refused since the start: 2 ") && finding.mend.contains(hint),
            "{finding:#?}"
        );
    }
    only(&sources(both, &[("token", 1.0)]), Severity::Note, check, "streams were refused: 1 for want");
    only(&sources(["watched", "watched"], &[]), Severity::Note, check, "no collector streams");
    // Streams that end because a collector restarts are not a finding.
    let restarted = run(&sources(both, &[("replaced", 3.0), ("silent", 2.0)]));
    assert!(restarted.iter().all(|finding| finding.severity == Severity::Ok), "{restarted:#?}");
    // A collector that does not reach one of the replicas is a finding.
    let one = with_replicas(|place, replica| {
        if let (1, Looked::Found(nodes)) = (place, &mut replica.nodes) {
            nodes[1].source = "watched".into();
        }
    });
    only(&one, Severity::Warning, check, "to every replica: n2");
}
