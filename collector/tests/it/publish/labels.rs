//! The node's labels.

use super::api_server::{mk_api, serve};
use super::{last, put_device, start};
use fpga_test_kit::until;

#[test]
fn asked_to_label_the_node_it_says_what_all_devices_share_and_takes_it_back_when_they_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let api = mk_api();
    api.lock().unwrap().labels.insert("zone".to_owned(), "a".to_owned());
    let server = serve("127.0.0.1:0", &api);
    let labels = || {
        let mut labels: Vec<_> = api.lock().unwrap().labels.clone().into_iter().collect();
        labels.sort();
        labels
    };
    let mk = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect::<Vec<_>>()
    };
    let (vendor, shell) = (("fpga-scheduling.io/fpga-vendor", "intel"), "fpga-scheduling.io/shell-version");
    let collector = start(dir.path(), &server, &["--label-node", "--device-timeout", "1500ms"]);
    put_device(&collector, "dm0", "1.2");
    // The board's name has a space, which no label may have.
    until("the labels", || labels() == mk(&[vendor, (shell, "1.2"), ("zone", "a")]));
    put_device(&collector, "dm1", "1.3");
    until("the vendor only", || labels() == mk(&[vendor, ("zone", "a")]));
    assert_eq!(api.lock().unwrap().labellings, 2);

    // A collector that ends leaves the labels, and the next one manages them.
    assert_eq!(collector.terminate().code(), Some(0));
    assert_eq!(labels(), mk(&[vendor, ("zone", "a")]));
    let collector = start(dir.path(), &server, &["--label-node", "--device-timeout", "1500ms"]);
    for id in ["dm0", "dm1"] {
        assert_eq!(collector.request("DELETE", &format!("/v1/devices/{id}"), b"").status, 200);
    }
    until("no label of ours", || labels() == mk(&[("zone", "a")]));
    // The API server has the write before the collector has the answer.
    until("the count of writes", || {
        collector.metric("fpga_collector_labellings_total{outcome=\"written\"}") >= 1.0
    });
}

#[test]
fn unasked_it_labels_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let api = mk_api();
    let server = serve("127.0.0.1:0", &api);
    let collector = start(dir.path(), &server, &[]);
    put_device(&collector, "dm0", "1.2");
    until("the board", || last(&api).is_some_and(|state| state.devices.len() == 1));
    assert_eq!(collector.terminate().code(), Some(0));
    assert_eq!(api.lock().unwrap().labellings, 0);
}
