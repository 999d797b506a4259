//! The committed header equals cbindgen's output for the source, and the pkg-config file has its placeholders.

use std::path::Path;

#[test]
fn the_header_is_that_of_the_source() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = folder.join("include/fpga_hook.h");
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap();
    let sources = ["src/handle.rs", "src/hold.rs", "src/api.rs"].map(|name| folder.join(name));
    let builder = cbindgen::Builder::new().with_config(config);
    let builder = sources.into_iter().fold(builder, cbindgen::Builder::with_src);
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    let made = String::from_utf8(made).unwrap();
    if std::env::var_os("FPGA_UPDATE_HEADER").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == made,
        "include/fpga_hook.h is not what the source says. Make it anew and look at the difference:\n  \
         FPGA_UPDATE_HEADER=1 cargo test -p fpga-hook-c header"
    );
}
