//! Bitstreams as [`fpga_core::library`] has them.

use crate::bitstream::{Bitstream, FromNamespaces};
use fpga_core::board_kind::BoardKind;
use fpga_core::library::{
    AllowedNamespaces, LabelOperator, LabelRequirement, LibraryBitstream, LibraryVariant,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// A Bitstream as the library has it. A variant whose digest or region size is none is left out, and an unknown operator of
/// a selector selects nothing.
#[must_use]
pub fn library_bitstream(object: &Bitstream) -> LibraryBitstream {
    let variants = object.spec.variants.iter().filter_map(|variant| {
        let boards = BoardKind {
            vendor: Some(variant.vendor.clone()),
            board: Some(variant.board.clone()),
            shell: Some(variant.shell.clone()),
        };
        let region_size = u32::try_from(variant.region_size).ok()?;
        Some(LibraryVariant { boards, digest: variant.digest.parse().ok()?, region_size })
    });
    let allowed = &object.spec.allowed_namespaces;
    let allowed = match (allowed.from, &allowed.selector) {
        (FromNamespaces::All, _) => AllowedNamespaces::All,
        (FromNamespaces::Selector, Some(selector)) => {
            requirements(selector).map_or(AllowedNamespaces::Same, AllowedNamespaces::Selector)
        }
        (FromNamespaces::Same | FromNamespaces::Selector, _) => AllowedNamespaces::Same,
    };
    LibraryBitstream { allowed, variants: variants.collect() }
}

/// The requirements of a selector; `None` if one can't be understood.
fn requirements(selector: &LabelSelector) -> Option<Vec<LabelRequirement>> {
    let labels = selector.match_labels.iter().flatten().map(|(key, value)| {
        Some(LabelRequirement { key: key.clone(), operator: LabelOperator::In([value.clone()].into()) })
    });
    let expression = |expression: &LabelSelectorRequirement| {
        let values = expression.values.iter().flatten().cloned().collect();
        let operator = match expression.operator.as_str() {
            "In" => LabelOperator::In(values),
            "NotIn" => LabelOperator::NotIn(values),
            "Exists" => LabelOperator::Exists,
            "DoesNotExist" => LabelOperator::DoesNotExist,
            _ => return None,
        };
        Some(LabelRequirement { key: expression.key.clone(), operator })
    };
    labels.chain(selector.match_expressions.iter().flatten().map(expression)).collect()
}
