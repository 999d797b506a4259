//! Kinds of boards: what the chart renders for them is what device managers take.

use super::render;
use fpga_test_kit::http::request_unix;
use fpga_test_kit::{Program, manager, until};
use fpga_tests::testbed::programs::repository;
use serde_json::Value;
use std::path::Path;

/// The example of a real board in the page, and the values in it.
fn example() -> String {
    let page = std::fs::read_to_string(repository().join("manifests/README.md")).unwrap();
    let mut blocks = page.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.find(|block| block.starts_with("boardKinds:")).expect("the page has an example").to_owned()
}

/// The DaemonSet of device managers, and the file of tenants.
async fn rendered(values: &Path) -> (Value, String) {
    let (well, text) = render(&["--values", values.to_str().unwrap()]).await;
    assert!(well, "{text}");
    let objects = text.split("\n---\n").filter(|object| object.contains("name: fpga-device-manager-a10\n"));
    let objects: Vec<Value> = objects.map(|object| serde_saphyr::from_str(object).unwrap()).collect();
    let of_kind = |kind: &str| objects.iter().find(|object| object["kind"] == kind).unwrap().clone();
    let tenants = of_kind("ConfigMap")["data"]["tenants.json"].as_str().unwrap().to_owned();
    (of_kind("DaemonSet"), tenants)
}

#[tokio::test]
async fn the_example_of_a_real_board_starts_as_it_is_rendered() {
    let folder = tempfile::Builder::new().prefix("b").tempdir_in("/tmp").unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let values = folder.path().join("values.yaml");
    std::fs::write(&values, example()).unwrap();
    let (set, tenants) = rendered(&values).await;
    assert_eq!(
        serde_json::from_str::<Value>(&tenants).unwrap()["tenants"]["shop"]["quota"]["memory"],
        "4GiB"
    );
    std::fs::create_dir(path("tenants")).unwrap();
    std::fs::write(path("tenants/tenants.json"), tenants).unwrap();
    std::fs::create_dir(path("bitstreams")).unwrap();
    let container = &set["spec"]["template"]["spec"]["containers"][0];
    let image = container["image"].as_str().unwrap();
    assert!(image.starts_with("kube-fpga/fpga-device-manager-"), "{image}");
    // The mounts are below a folder here, and the runtime without a card is PoCL.
    let local = |argument: &str| {
        let local = argument.replace("=/bitstreams", &format!("={}", path("bitstreams")));
        let local = local.replace("/tenants/", &format!("{}/", path("tenants")));
        local.replace("/run/fpga", &path("run"))
    };
    let arguments = container["args"].as_array().unwrap().iter().map(|one| local(one.as_str().unwrap()));
    let arguments: Vec<String> = arguments
        .map(|argument| match argument.split_once('=').map(|(flag, _)| flag) {
            Some("--runtime") => "--runtime=pocl".to_owned(),
            Some("--metrics-listen") => format!("--metrics-listen=unix:{}", path("metrics.sock")),
            _ => argument,
        })
        .collect();
    let (own, of_serve) = arguments.split_at(arguments.iter().position(|one| one == "--").unwrap());
    let ready = folder.path().join("ready");
    let mut command = manager::command();
    command.args(own).arg("--ready-file").arg(&ready).args(of_serve).env("TMPDIR", folder.path());
    let mut program = Program::start(&mut command);
    let addresses = program.ready(&ready);
    assert!(addresses.iter().any(|address| address.contains("/managers/a10-0/dm.sock")), "{addresses:?}");
    let text = until("metrics of the board", || {
        let answer = request_unix(Path::new(&path("metrics.sock")), "GET", "/metrics", b"");
        answer.ok().map(|answer| answer.text).filter(|text| text.contains("fpga_device_manager_slots{"))
    });
    assert!(text.contains("fpga_device_manager_slots{board=\"a10-0\"} 1"), "{text}");
    assert_eq!(program.terminate().code(), Some(0));
}
