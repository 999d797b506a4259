//! The resource Bitstream on a real API server: bad input is refused with what to write, several people write one
//! object, and it stays when the chart goes.

use anyhow::Result;
use fpga_accelerators::{Accelerator, Interface};
use fpga_tests::testbed::bitstreams;
use fpga_tests::testbed::control_plane::ControlPlane;
use fpga_tests::testbed::manifests::kubectl;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

fn digest(byte: &str) -> String {
    format!("sha256:{}", byte.repeat(32))
}

fn variant(board: &str) -> Value {
    json!({
        "vendor": "intel",
        "board": board,
        "shell": "1.2",
        "digest": digest("0a"),
        "bytes": 1000,
        "source": { "oci": format!("registry.example:5000/team/sobel@{}", digest("1b")) },
    })
}

fn bitstream(name: &str, variants: &[Value]) -> Value {
    json!({
        "apiVersion": "fpga-scheduling.io/v1alpha1",
        "kind": "Bitstream",
        "metadata": { "name": name },
        "spec": { "variants": variants },
    })
}

/// An interface with values of all fields that are not the defaults.
fn interface() -> Value {
    json!({
        "kernel": "aes_256_ctr",
        "blockBytes": 16,
        "outputBytesPerBlock": 16,
        "tail": "Partial",
        "pure": true,
        "parameters": [{ "name": "key", "bytes": 32 }],
        "workGroupSize": 256,
        "workItemsPerBlock": 1,
    })
}

async fn create(bitstreams: &Api<DynamicObject>, object: &Value) -> kube::Result<DynamicObject> {
    bitstreams.create(&PostParams::default(), &serde_json::from_value(object.clone()).unwrap()).await
}

#[tokio::test]
async fn what_is_wrong_in_any_field_is_refused_with_what_to_write() {
    let plane = ControlPlane::shared().await.unwrap();
    let namespace = plane.new_namespace("bitstreams").await.unwrap();
    let bitstreams = bitstreams::serve(&plane, &namespace).await.unwrap();
    let (long, selector) = ("x".repeat(64), json!({ "matchLabels": { "team": "vision" } }));
    let two_places = json!({ "oci": variant("a")["source"]["oci"], "https": "https://files.example/a" });
    let by_tag = json!({ "oci": "registry.example/team/sobel:latest" });
    let with = |field: &str, value: Value| {
        let mut interface = interface();
        interface[field] = value;
        interface
    };
    let parameter = |name: &str, bytes: u32| json!({ "name": name, "bytes": bytes });
    let expression = |operator: &str, values: Value| json!({ "matchExpressions": [{ "key": "team", "operator": operator, "values": values }] });
    for (path, value, message) in [
        ("/spec/variants", json!([]), "variants is empty; write at least one"),
        ("/spec/variants", json!(null), "spec.variants: Required value"),
        ("/spec/variants", json!(vec![variant("a"); 65]), "must have at most 64 items"),
        ("/spec/variants", json!([variant("a"), variant("a")]), "spec.variants[1]: Duplicate value"),
        (
            "/spec/variants/0/vendor",
            json!("in tel"),
            "label fpga-scheduling.io/fpga-vendor, for example intel",
        ),
        ("/spec/variants/0/vendor", json!(""), "vendor is no label value"),
        ("/spec/variants/0/vendor", json!(long), "may not be more than 63 bytes"),
        ("/spec/variants/0/vendor", json!(null), "spec.variants[0].vendor: Required value"),
        ("/spec/variants/0/board", json!("-a10"), "label fpga-scheduling.io/board, for example a10gx"),
        ("/spec/variants/0/shell", json!("1.2."), "label fpga-scheduling.io/shell-version, for example 1.2"),
        ("/spec/variants/0/regionSize", json!(0), "write 1 to 64"),
        ("/spec/variants/0/regionSize", json!(65), "write 1 to 64"),
        ("/spec/variants/0/regionSize", json!("half"), "must be of type integer"),
        (
            "/spec/variants/0/digest",
            json!("sha256:12"),
            "64 lower-case hexadecimal digits, as `sha256sum FILE`",
        ),
        ("/spec/variants/0/digest", json!(digest("0A")), "64 lower-case hexadecimal digits"),
        ("/spec/variants/0/bytes", json!(0), "write 1 to 4294967296 (4 GiB), as `stat -c %s FILE` prints it"),
        ("/spec/variants/0/bytes", json!(4_294_967_297_u64), "write 1 to 4294967296 (4 GiB)"),
        ("/spec/variants/0/source", json!({}), "source has one place; write either `oci:"),
        ("/spec/variants/0/source", two_places, "source has one place; write either `oci:"),
        (
            "/spec/variants/0/source",
            by_tag,
            "write REGISTRY/REPOSITORY@sha256:DIGEST, as `kubectl fpga bitstream push`",
        ),
        ("/spec/variants/0/source", json!({ "https": "http://files.example/a" }), "write https://HOST/PATH"),
        (
            "/spec/variants/0/source",
            json!({ "https": "https://me:secret@files.example/a" }),
            "without user, password",
        ),
        ("/spec/variants/0/peakRequestsPerSecond", json!(0), "write for example 152.5, or leave it out"),
        (
            "/spec/allowedNamespaces",
            json!({ "from": "Some" }),
            "supported values: \"Same\", \"All\", \"Selector\"",
        ),
        ("/spec/allowedNamespaces", json!({ "from": "Selector" }), "a selector goes with `from: Selector`"),
        (
            "/spec/allowedNamespaces",
            json!({ "from": "All", "selector": selector }),
            "a selector goes with `from: Selector`",
        ),
        (
            "/spec/allowedNamespaces",
            json!({ "from": "Selector", "selector": expression("In", json!([])) }),
            "values go with the operators In and NotIn",
        ),
        (
            "/spec/allowedNamespaces",
            json!({ "from": "Selector", "selector": expression("Like", json!(["v"])) }),
            "supported values: \"In\", \"NotIn\"",
        ),
        ("/spec/interface", with("kernel", json!("9th")), "for example aes_256_ctr"),
        ("/spec/interface", with("kernel", json!("x".repeat(65))), "may not be more than 64"),
        (
            "/spec/interface",
            with("blockBytes", json!(0)),
            "blockBytes is the size of a block of the input; write 1",
        ),
        ("/spec/interface", with("blockBytes", json!(null)), "spec.interface.blockBytes: Required value"),
        ("/spec/interface", with("outputBytesPerBlock", json!(-1)), "write 0 to 4000000"),
        (
            "/spec/interface",
            with("outputBytesPerBlock", json!(0)),
            "write outputBytesPerBlock or outputBytesAtEnd",
        ),
        (
            "/spec/interface",
            with("outputBytesPerBlock", json!(24)),
            "write a multiple, or `tail: ZeroFilled`",
        ),
        ("/spec/interface", with("outputBytesAtEnd", json!(65_537)), "write 0 to 65536"),
        ("/spec/interface", with("outputBytesAtEnd", json!(4)), "carried to the end; write stateBytes"),
        (
            "/spec/interface",
            with("tail", json!("Cut")),
            "supported values: \"Partial\", \"ZeroFilled\", \"Refused\"",
        ),
        ("/spec/interface", with("stateBytes", json!(-1)), "write 0 to 65536"),
        ("/spec/interface", with("workGroupSize", json!(0)), "what the kernel's reqd_work_group_size says"),
        ("/spec/interface", with("workItemsPerBlock", json!(0)), "or leave it out for a single work-item"),
        (
            "/spec/interface",
            with("workItemsPerBlock", json!(null)),
            "write workItemsPerBlock, or `workGroupSize: 1`",
        ),
        (
            "/spec/interface",
            with("parameters", json!([parameter("Key", 4)])),
            "a letter first, for example key",
        ),
        (
            "/spec/interface",
            with("parameters", json!([parameter("key", 0)])),
            "the size of the value; write 1 to 65536",
        ),
        (
            "/spec/interface",
            with("parameters", json!([parameter("key", 4), parameter("key", 4)])),
            "spec.interface.parameters[1]: Duplicate value",
        ),
        ("/metadata/name", json!("x".repeat(129)), "at most 128 characters; write a shorter metadata.name"),
        ("/metadata/name", json!("So_bel"), "a lowercase RFC 1123 subdomain"),
    ] {
        let mut object = bitstream("sobel", &[variant("a10")]);
        let (parent, field) = path.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[field] = value;
        let error = create(&bitstreams, &object).await.expect_err(path).to_string();
        assert!(error.contains(message), "{path}: {error}");
    }
    create(&bitstreams, &bitstream("sobel", &[variant("a10")])).await.unwrap();
    for accelerator in Accelerator::ALL {
        let mut object = bitstream(accelerator.name(), &[variant("a10")]);
        object["spec"]["interface"] = serde_json::to_value(accelerator.interface()).unwrap();
        let created = create(&bitstreams, &object).await.unwrap();
        let interface: Interface = serde_json::from_value(created.data["spec"]["interface"].clone()).unwrap();
        assert_eq!(interface, accelerator.interface());
    }
    plane.stop().await;
}

#[tokio::test]
async fn two_people_write_their_boards_variants_into_one_bitstream_and_a_condition_has_its_generation() {
    let plane = ControlPlane::shared().await.unwrap();
    let namespace = plane.new_namespace("bitstreams").await.unwrap();
    let bitstreams = bitstreams::serve(&plane, &namespace).await.unwrap();
    let apply = async |who: &str, variants: &[Value]| {
        let patch = Patch::Apply(bitstream("sobel", variants));
        bitstreams.patch("sobel", &PatchParams::apply(who), &patch).await
    };
    let boards = |object: &DynamicObject| -> Vec<(String, i64)> {
        let variants = object.data["spec"]["variants"].as_array().unwrap().iter();
        variants
            .map(|v| (v["board"].as_str().unwrap().to_owned(), v["regionSize"].as_i64().unwrap()))
            .collect()
    };
    apply("one", &[variant("a10")]).await.unwrap();
    let mut large = variant("a10");
    large["regionSize"] = json!(2);
    let both = apply("other", &[variant("s10"), large]).await.unwrap();
    let expected = |boards: &[(&str, i64)]| -> Vec<(String, i64)> {
        boards.iter().map(|(board, size)| ((*board).to_owned(), *size)).collect()
    };
    assert_eq!(boards(&both), expected(&[("a10", 1), ("s10", 1), ("a10", 2)]));
    assert_eq!(both.data["spec"]["allowedNamespaces"], json!({ "from": "Same" }));
    let left = apply("one", &[variant("b10")]).await.unwrap();
    assert_eq!(boards(&left), expected(&[("s10", 1), ("a10", 2), ("b10", 1)]));
    let mut other = variant("s10");
    other["digest"] = json!(digest("0c"));
    let conflict = apply("one", &[other]).await.expect_err("the variant is another's").to_string();
    assert!(conflict.contains("conflict with \"other\""), "{conflict}");

    let generation = left.metadata.generation.unwrap();
    let condition = json!({
        "type": "Accepted", "status": "True", "reason": "Valid", "message": "", "observedGeneration": generation,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let mut status = bitstream("sobel", &[]);
    status.as_object_mut().unwrap().remove("spec");
    status["status"] = json!({ "conditions": [condition] });
    let patch = Patch::Apply(&status);
    let patched = bitstreams.patch_status("sobel", &PatchParams::apply("registry"), &patch).await.unwrap();
    assert_eq!(patched.data["status"]["conditions"][0]["observedGeneration"], json!(generation));
    assert_eq!(patched.metadata.generation, Some(generation), "a status is no change of the specification");

    let table = kubectl(&plane, &["-n", &namespace, "get", "bits", "-o", "wide"]).await.unwrap();
    let (headings, row) = table.trim().split_once('\n').unwrap();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        words(headings),
        ["NAME", "ALLOWED", "FIRST-BOARD", "SHELL", "DIGEST", "NODES", "RESIDENT", "PODS", "ACCEPTED", "AGE"]
    );
    assert_eq!(words(row)[..5], ["sobel", "Same", "s10", "1.2", &digest("0a")]);
    assert!(kubectl(&plane, &["-n", &namespace, "get", "fpga"]).await.unwrap().contains("sobel"));
    plane.stop().await;
}

#[tokio::test]
async fn the_definitions_can_be_applied_again_and_bitstreams_stay() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let namespace = plane.new_namespace("bitstreams").await?;
    let bitstreams = bitstreams::serve(&plane, &namespace).await.unwrap();
    create(&bitstreams, &bitstream("sobel", &[variant("a10")])).await?;
    let bitstreams = bitstreams::serve(&plane, &namespace).await.unwrap();
    assert_eq!(bitstreams.list(&Default::default()).await?.items.len(), 1);
    plane.stop().await;
    Ok(())
}
