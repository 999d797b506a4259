//! Writes the CustomResourceDefinitions as YAML; `hack/manifests.sh` puts them into the chart.

fn main() {
    for definition in fpga_registry_api::definitions() {
        match serde_saphyr::to_string(&definition) {
            Ok(text) => print!("# Made by hack/manifests.sh from registry/api: change that.\n{text}"),
            Err(error) => {
                eprintln!("{error}");
                std::process::exit(1);
            }
        }
    }
}
