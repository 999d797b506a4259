//! The committed header equals cbindgen's output for the source.

use std::path::Path;

#[test]
fn the_header_is_that_of_the_source() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = folder.join("include/acc.h");
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap();
    let names = [
        "code",
        "job",
        "group",
        "values",
        "fallback",
        "request",
        "api",
        "api/many",
        "api/streams",
        "api/groups",
    ];
    let builder = cbindgen::Builder::new().with_config(config);
    let builder = names
        .map(|name| folder.join("src").join(format!("{name}.rs")))
        .into_iter()
        .fold(builder, cbindgen::Builder::with_src);
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    let made = String::from_utf8(made).unwrap();
    if std::env::var_os("FPGA_UPDATE_HEADER").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == made,
        "include/acc.h is not what the source says. Make it anew and look at the difference:\n  \
         FPGA_UPDATE_HEADER=1 cargo test -p fpga-acc-c header"
    );
}
