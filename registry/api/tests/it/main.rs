//! The committed CustomResourceDefinitions are those of the types.

#![allow(clippy::unwrap_used, reason = "in a test a failure is a panic")]

use fpga_accelerators::Accelerator;
use fpga_registry_api::{AcceleratorInterface, Bitstream, FromNamespaces, definitions};
use serde_json::{Value, json};
use std::path::Path;

#[test]
fn the_committed_definitions_are_those_of_the_types() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/chart/custom-resources");
    let files = std::fs::read_dir(&folder).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    files.sort();
    let definitions = definitions();
    let names: Vec<_> = definitions.iter().map(|crd| format!("{}.yaml", crd.spec.names.plural)).collect();
    assert_eq!(files, names);
    for (definition, name) in definitions.iter().zip(&names) {
        let text = std::fs::read_to_string(folder.join(name)).unwrap();
        let committed: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(
            committed,
            serde_json::to_value(definition).unwrap(),
            "{name} is old: run `make manifests`"
        );
    }
}

#[test]
fn what_an_author_leaves_out_is_the_default() {
    let digest = format!("sha256:{}", "0a".repeat(32));
    let sobel: Bitstream = serde_json::from_value(json!({
        "apiVersion": "fpga-scheduling.io/v1alpha1",
        "kind": "Bitstream",
        "metadata": { "name": "sobel" },
        "spec": { "variants": [{
            "vendor": "intel", "board": "a10gx", "shell": "1.2", "digest": digest, "bytes": 7,
            "source": { "https": "https://files.example/sobel.aocx" },
        }] },
    }))
    .unwrap();
    assert_eq!(sobel.spec.allowed_namespaces.from, FromNamespaces::Same);
    assert_eq!((sobel.spec.variants[0].region_size, sobel.status), (1, None));
}

#[test]
fn the_interface_of_every_shipped_accelerator_can_be_said_by_a_bitstream() {
    for accelerator in Accelerator::ALL {
        let interface = accelerator.interface();
        let said = AcceleratorInterface::of(&interface).unwrap();
        assert_eq!(said.parse().unwrap(), interface, "{accelerator:?}");
    }
}

#[test]
fn an_interface_from_an_older_definition_is_checked_by_its_reader() {
    let mut said = AcceleratorInterface::of(&Accelerator::Sha256.interface()).unwrap();
    said.block_bytes = 0;
    let error = said.parse().unwrap_err().to_string();
    assert!(error.contains("blockBytes 0 is not possible; write 1 to 4000000"), "{error}");
    said.block_bytes = -1;
    assert!(said.parse().is_err());
}
