//! Bitstreams of tenants (P-2): off by default, then up to the quota of their namespace. The registry says which count, by a
//! condition that nobody else may write, and the scheduler goes by it.

use super::bed::{Bed, NODES};
use super::{bitstream, bitstreams};
use anyhow::Context as _;
use fpga_tests::testbed::manifests::kubectl;
use fpga_tests::testbed::wait;
use fpga_tests::testbed::{extender, helm};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DynamicObject, ListParams, PostParams};
use serde_json::{Value, json};

/// Runs kubectl as somebody who may edit the namespace `default`; returns what it says in either case.
async fn as_tenant(bed: &Bed, args: &[&str]) -> Result<String, String> {
    let all = [args, &["-n", "default", "--as=tenant"]].concat();
    kubectl(&bed.plane, &all).await.map_err(|error| format!("{error:#}"))
}

/// A Bitstream of the namespace `default` with so many bytes, in a file.
fn file_of(bed: &Bed, name: &str, bytes: u64) -> String {
    let mut object = bitstream(name);
    object.metadata.namespace = Some("default".to_owned());
    object.data["spec"]["variants"][0]["bytes"] = json!(bytes);
    let path = bed.plane.run_dir().path().join(format!("{name}.json"));
    std::fs::write(&path, serde_json::to_vec(&object).unwrap()).unwrap();
    path.display().to_string()
}

/// Waits until the condition `Accepted` of the Bitstream has this reason in the present generation.
async fn until_judged(all: &Api<DynamicObject>, name: &str, reason: &str) -> Value {
    let what = format!("{name} to be {reason}");
    let judged = wait::until(&what, async || {
        let object = all.get(name).await?;
        let conditions = object.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let accepted = conditions.into_iter().find(|condition| condition["type"] == "Accepted");
        let found = accepted.filter(|condition| {
            condition["reason"] == reason
                && condition["observedGeneration"] == json!(object.metadata.generation)
        });
        found.map(Some).with_context(|| object.data["status"].to_string())
    });
    judged.await.unwrap()
}

/// A pod that names the Bitstream.
fn pod(name: &str, bitstream: &str) -> Value {
    let annotations = json!({"fpga-scheduling.io/bitstreams": bitstream});
    json!({
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [
            {"name": "main", "image": "local", "command": ["/bin/sh", "-c", "exec sleep 3600"],
             "resources": {"limits": {"fpga-scheduling.io/accelerated": "1"}}},
        ]},
    })
}

async fn create_pod(bed: &Bed, name: &str, bitstream: &str) {
    let pod = serde_json::from_value(pod(name, bitstream)).unwrap();
    bed.pods().create(&PostParams::default(), &pod).await.unwrap();
}

async fn why_pending(bed: &Bed, name: &str) -> String {
    let what = format!("the reason why {name} waits");
    let why = wait::until(&what, async || {
        let pod: Pod = bed.pods().get(name).await?;
        let conditions = pod.status.into_iter().flat_map(|status| status.conditions.unwrap_or_default());
        let scheduled = conditions.into_iter().find(|condition| condition.type_ == "PodScheduled");
        Ok(scheduled.filter(|scheduled| scheduled.status == "False").and_then(|scheduled| scheduled.message))
    });
    why.await.unwrap()
}

async fn until_placed(bed: &Bed, name: &str) {
    let what = format!("{name} to be placed");
    let placed = wait::until(&what, async || {
        let pod = bed.pods().get(name).await?;
        Ok(pod.spec.and_then(|spec| spec.node_name).map(drop))
    });
    placed.await.unwrap();
}

/// Waits until the extender rejects both nodes for a new pod that names the Bitstream. kube-scheduler is not involved.
async fn until_rejected(bed: &Bed, bitstream: &str) {
    let body = json!({"Pod": pod("asked", bitstream), "NodeNames": NODES}).to_string();
    wait::until("the extender to know of the change", async || {
        let answer = bed.http.post(&extender::url(&bed.plane, "/filter"), body.clone()).await?.json()?;
        (answer["NodeNames"] == json!([])).then_some(Some(())).with_context(|| answer.to_string())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_bitstreams_are_off_until_allowed_and_count_up_to_the_quota_of_their_namespace() {
    let bed = Bed::start_with(&["--library-namespace", "kube-fpga", "--own-bitstreams", "accepted"]).await;
    let all = bitstreams(bed.client());
    let role = ["create", "rolebinding", "tenant", "-n", "default", "--clusterrole=edit", "--user=tenant"];
    bed.kubectl(&role).await;
    let args = ["--library-namespace", "kube-fpga", "--own-bitstreams"];

    // Off: nobody but administrators can write one, and such a one does not count.
    let refused = as_tenant(&bed, &["create", "-f", &file_of(&bed, "first", 1_000)]).await.unwrap_err();
    assert!(refused.contains("forbidden"), "{refused}");
    let registry = bed.registry("registry", "off", &[&args[..], &["off"]].concat()).await;
    bed.kubectl(&["create", "-f", &file_of(&bed, "by-admin", 1_000)]).await;
    let off = until_judged(&all, "by-admin", "OwnBitstreamsOff").await;
    assert!(off["status"] == "False" && off["message"].as_str().unwrap().contains("library"), "{off}");
    create_pod(&bed, "of-admin", "by-admin").await;
    let why = why_pending(&bed, "of-admin").await;
    assert!(why.contains("bitstream is not valid on the FPGA device"), "{why}");
    bed.kubectl(&["delete", "bits", "by-admin"]).await;
    bed.kubectl(&["delete", "pod", "of-admin", "--wait=false"]).await;
    registry.process().kill().await;

    // Allowed, two of 4 KiB together.
    let values = ["registry.enabled=true", "customResources.ownBitstreams.enabled=true"];
    let roles = helm::template("templates/own-bitstreams.yaml", &values).unwrap();
    let path = bed.plane.run_dir().path().join("roles.yaml");
    std::fs::write(&path, roles).unwrap();
    bed.kubectl(&["apply", "-f", path.to_str().unwrap()]).await;
    let first = file_of(&bed, "first", 1_000);
    wait::until("the tenant's right", async || {
        as_tenant(&bed, &["create", "-f", &first]).await.map(Some).map_err(anyhow::Error::msg)
    })
    .await
    .unwrap();
    let registry = bed.registry("registry", "off", &[&args[..], &["2,4KiB"]].concat()).await;
    assert_eq!(until_judged(&all, "first", "WithinQuota").await["status"], "True");
    // Dates have whole seconds, and names order those of one second.
    for name in ["second", "third"] {
        as_tenant(&bed, &["create", "-f", &file_of(&bed, name, 1_000)]).await.unwrap();
    }
    until_judged(&all, "second", "WithinQuota").await;
    let refused = until_judged(&all, "third", "TooManyBitstreams").await;
    assert!(refused["status"] == "False" && refused["message"].as_str().unwrap().contains("delete one"));
    let table = as_tenant(&bed, &["get", "bits", "-o", "wide"]).await.unwrap();
    assert!(table.contains("WithinQuota") && table.contains("TooManyBitstreams"), "{table}");

    // The verdict is the registry's alone.
    let status = r#"{"status":{"conditions":[{"type":"Accepted","status":"True","reason":"Mine","message":"",
        "observedGeneration":1,"lastTransitionTime":"2026-01-01T00:00:00Z"}]}}"#;
    let patch = ["patch", "bits", "third", "--type=merge", "-p", status];
    let forged = as_tenant(&bed, &[&patch[..], &["--subresource=status"]].concat()).await.unwrap_err();
    assert!(forged.contains("forbidden"), "{forged}");
    as_tenant(&bed, &patch).await.unwrap();
    until_judged(&all, "third", "TooManyBitstreams").await;

    create_pod(&bed, "of-first", "first").await;
    until_placed(&bed, "of-first").await;
    create_pod(&bed, "of-third", "third").await;
    let why = why_pending(&bed, "of-third").await;
    assert!(why.contains("bitstream is not valid on the FPGA device"), "{why}");

    // A Bitstream that grows beyond the quota makes room for the next one, and that one's pods are woken.
    let grown = r#"[{"op":"replace","path":"/spec/variants/0/bytes","value":5000}]"#;
    as_tenant(&bed, &["patch", "bits", "second", "--type=json", "-p", grown]).await.unwrap();
    until_judged(&all, "second", "TooManyBytes").await;
    until_judged(&all, "third", "WithinQuota").await;
    until_placed(&bed, "of-third").await;

    // A change counts when the registry has seen it: without one what is there stays, and what is new waits.
    registry.process().kill().await;
    let changed = r#"[{"op":"replace","path":"/spec/variants/0/bytes","value":2000}]"#;
    as_tenant(&bed, &["patch", "bits", "third", "--type=json", "-p", changed]).await.unwrap();
    until_rejected(&bed, "third").await;
    create_pod(&bed, "of-changed", "third").await;
    why_pending(&bed, "of-changed").await;
    create_pod(&bed, "of-first-again", "first").await;
    until_placed(&bed, "of-first-again").await;
    let _registry = bed.registry("registry", "off", &[&args[..], &["2,4KiB"]].concat()).await;
    until_placed(&bed, "of-changed").await;
    let pods = bed.pods().list(&ListParams::default()).await.unwrap().items;
    assert!(pods.iter().all(|pod| {
        pod.spec.as_ref().unwrap().node_name.as_deref().is_some_and(|node| NODES.contains(&node))
    }));
    bed.stop().await;
}
