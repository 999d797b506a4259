//! The text form of a variant: `file=sobel.aocx,vendor=intel,board=a10gx,shell=1.2`.

use std::path::PathBuf;
use std::str::FromStr;

/// A file, and the kind of board that it was built for.
#[derive(Debug, Clone, PartialEq)]
pub struct VariantArg {
    /// The file with the bytes.
    pub file: PathBuf,
    /// Vendor of the board.
    pub vendor: String,
    /// Name of the board.
    pub board: String,
    /// Version of the board's shell.
    pub shell: String,
    /// Number of slots of the region.
    pub region_size: u32,
    /// Requests per second at most.
    pub peak: Option<f64>,
}

/// The text is no variant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0}; write file=FILE,vendor=VENDOR,board=BOARD,shell=SHELL, and if needed region-size=SLOTS and peak=REQUESTS-PER-SECOND"
)]
pub struct InvalidVariant(String);

impl FromStr for VariantArg {
    type Err = InvalidVariant;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = |reason: String| InvalidVariant(reason);
        let [mut file, mut vendor, mut board, mut shell, mut region_size, mut peak]: [Option<&str>; 6] =
            [None; 6];
        for part in text.split(',') {
            let (key, value) = part.split_once('=').ok_or_else(|| invalid(format!("{part:?} has no `=`")))?;
            let field = match key {
                "file" => &mut file,
                "vendor" => &mut vendor,
                "board" => &mut board,
                "shell" => &mut shell,
                "region-size" => &mut region_size,
                "peak" => &mut peak,
                _ => return Err(invalid(format!("{key:?} is not known"))),
            };
            if field.replace(value).is_some() {
                return Err(invalid(format!("{key} is written twice")));
            }
        }
        let given = |field: Option<&str>, name: &str| {
            let value = field.filter(|value| !value.is_empty());
            value.map(str::to_owned).ok_or_else(|| invalid(format!("{name} is missing")))
        };
        let number = |what: &str, text: &str| invalid(format!("{what}={text} is no number"));
        Ok(Self {
            file: given(file, "file")?.into(),
            vendor: given(vendor, "vendor")?,
            board: given(board, "board")?,
            shell: given(shell, "shell")?,
            region_size: match region_size {
                None => 1,
                Some(text) => text.parse().map_err(|_| number("region-size", text))?,
            },
            peak: peak.map(|text| text.parse().map_err(|_| number("peak", text))).transpose()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variant_is_read_and_what_is_wrong_in_it_told() {
        let variant: VariantArg =
            "file=a.aocx,vendor=intel,board=a10gx,shell=1.2,region-size=2,peak=1.5".parse().unwrap();
        assert_eq!((variant.board.as_str(), variant.region_size, variant.peak), ("a10gx", 2, Some(1.5)));
        let least: VariantArg = "board=b,file=a,shell=s,vendor=v".parse().unwrap();
        assert_eq!((least.region_size, least.peak), (1, None));
        for (text, reason) in [
            ("a.aocx", "has no `=`"),
            ("file=a,vendor=v,board=b", "shell is missing"),
            ("file=,vendor=v,board=b,shell=s", "file is missing"),
            ("file=a,file=b", "file is written twice"),
            ("file=a,bord=b", "\"bord\" is not known"),
            ("file=a,vendor=v,board=b,shell=s,region-size=half", "region-size=half is no number"),
            ("file=a,vendor=v,board=b,shell=s,peak=fast", "peak=fast is no number"),
        ] {
            let error = text.parse::<VariantArg>().unwrap_err().to_string();
            assert!(error.contains(reason) && error.contains("write file=FILE"), "{error}");
        }
    }
}
