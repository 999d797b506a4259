//! Compiles the .proto file without an installed `protoc`, and makes the table of `src/weight.rs` from it.

use std::fmt::Write as _;
use std::path::Path;

/// Numbers of `google.protobuf.FieldDescriptorProto.Type` and `.Label`.
mod descriptor {
    pub(super) const STRING: i32 = 9;
    pub(super) const MESSAGE: i32 = 11;
    pub(super) const BYTES: i32 = 12;
    pub(super) const REPEATED: i32 = 3;
}

/// Messages that lie on the heap, since few messages that may have them do.
const BOXED: [&str; 1] = [".fpga.remote.v1.Call.trace"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(["proto/remote_opencl.proto"], ["proto"])?;
    let mut weights = String::from("static MESSAGES: &[Message] = &[\n");
    let messages = &descriptors.file.first().ok_or("no file")?.message_type;
    let index_of = |name: &str| {
        let short = name.rsplit('.').next();
        messages.iter().position(|message| message.name.as_deref() == short)
    };
    for message in messages {
        writeln!(weights, "    // {}", message.name())?;
        writeln!(weights, "    Message {{ fields: &[")?;
        for field in &message.field {
            let repeated = field.label == Some(descriptor::REPEATED);
            let kind = match field.r#type {
                Some(descriptor::BYTES) if !repeated => "Kind::Bytes".to_owned(),
                Some(descriptor::STRING) if !repeated => "Kind::Text".to_owned(),
                Some(descriptor::STRING | descriptor::BYTES) => "Kind::Texts".to_owned(),
                Some(descriptor::MESSAGE) => {
                    let index = index_of(field.type_name()).ok_or("a message of another file")?;
                    let name = messages[index].name();
                    let path = format!(".fpga.remote.v1.{}.{}", message.name(), field.name());
                    if repeated || BOXED.contains(&path.as_str()) {
                        format!("Kind::Many {{ message: {index}, element: size_of::<crate::v1::{name}>() }}")
                    } else {
                        format!("Kind::One({index})")
                    }
                }
                _ if repeated => "Kind::Numbers { element: size_of::<u64>() }".to_owned(),
                _ => continue,
            };
            writeln!(weights, "        Field {{ number: {}, kind: {kind} }},", field.number())?;
        }
        writeln!(weights, "    ] }},")?;
    }
    writeln!(weights, "];")?;
    let client_message = index_of("ClientMessage").ok_or("no ClientMessage")?;
    writeln!(weights, "const CLIENT_MESSAGE: usize = {client_message};")?;
    std::fs::write(Path::new(&std::env::var("OUT_DIR")?).join("weights.rs"), weights)?;
    // Decoding doesn't copy bulk data: `bytes` fields are slices of the received frame.
    let configured =
        BOXED.into_iter().fold(tonic_prost_build::configure().bytes("."), |all, path| all.boxed(path));
    configured.compile_fds(descriptors)?;
    Ok(())
}
