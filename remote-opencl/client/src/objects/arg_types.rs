//! Sizes of OpenCL C's built-in types by their names, for the check of an argument's size.

/// Size in bytes of a scalar or vector type; `None` for other types (structures, typedefs).
pub(crate) fn scalar_size(type_name: &str) -> Option<usize> {
    let name = type_name.trim();
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (base, width) = name.split_at(name.len() - digits);
    let element = match base {
        "char" | "uchar" | "unsigned char" => 1,
        "short" | "ushort" | "unsigned short" | "half" => 2,
        "int" | "uint" | "unsigned int" | "float" => 4,
        "long" | "ulong" | "unsigned long" | "double" => 8,
        _ => return None,
    };
    match width {
        "" => Some(element),
        "2" => Some(element * 2),
        // A vector of three elements is as large as one of four.
        "3" | "4" => Some(element * 4),
        "8" => Some(element * 8),
        "16" => Some(element * 16),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_types_have_their_size_and_others_none() {
        for (name, size) in [
            ("int", Some(4)),
            ("uchar16", Some(16)),
            ("float3", Some(16)),
            ("unsigned long", Some(8)),
            ("double2", Some(16)),
            ("my_type", None),
            ("float5", None),
            ("struct point", None),
            ("16", None),
            ("", None),
        ] {
            assert_eq!(scalar_size(name), size, "{name}");
        }
    }
}
