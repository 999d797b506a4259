//! Bitstreams as [`fpga_core::library`] has them.

use crate::bitstream::{Bitstream, FromNamespaces};
use fpga_core::board_kind::BoardKind;
use fpga_core::library::{
    AllowedNamespaces, LabelOperator, LabelRequirement, LibraryBitstream, LibraryVariant,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use std::str::FromStr;

/// Type of the condition by which the registry says whether a Bitstream counts.
pub const ACCEPTED: &str = "Accepted";

/// Which Bitstreams outside of the library namespace count (P-2).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OwnBitstreams {
    /// All of them: whom the API server lets write them is trusted.
    #[default]
    Any,
    /// Those that the registry has accepted as they are now ([`ACCEPTED`]).
    Accepted,
}

/// The text is no [`OwnBitstreams`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not known; write any, or accepted where a registry decides")]
pub struct InvalidOwnBitstreams(String);

impl FromStr for OwnBitstreams {
    type Err = InvalidOwnBitstreams;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "any" => Ok(Self::Any),
            "accepted" => Ok(Self::Accepted),
            _ => Err(InvalidOwnBitstreams(text.to_owned())),
        }
    }
}

/// How Bitstreams become the library.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LibraryRules {
    /// The namespace whose Bitstreams all pods may name without it.
    pub shared: Option<String>,
    /// What counts elsewhere.
    pub own: OwnBitstreams,
}

impl LibraryRules {
    /// A Bitstream as the library has it, as [`library_bitstream`]. One that does not count is valid nowhere; its name is still
    /// taken, so that no pod gets another Bitstream than it names.
    #[must_use]
    pub fn bitstream(&self, object: &Bitstream) -> LibraryBitstream {
        let is_of_library = self.shared.is_some() && object.metadata.namespace == self.shared;
        if self.own == OwnBitstreams::Any || is_of_library || is_accepted(object) {
            library_bitstream(object)
        } else {
            LibraryBitstream { allowed: AllowedNamespaces::Same, variants: Vec::new() }
        }
    }
}

/// Whether the registry has accepted the Bitstream in its present generation.
fn is_accepted(object: &Bitstream) -> bool {
    let mut conditions = object.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|condition| {
        condition.type_ == ACCEPTED
            && condition.status == "True"
            && condition.observed_generation == object.metadata.generation
    })
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn object(namespace: &str, conditions: &Value) -> Bitstream {
        let object = json!({
            "apiVersion": "fpga-scheduling.io/v1alpha1", "kind": "Bitstream",
            "metadata": {"namespace": namespace, "name": "sobel", "generation": 2},
            "spec": {"variants": [{
                "vendor": "intel", "board": "a10", "shell": "1", "bytes": 1,
                "digest": format!("sha256:{}", "0a".repeat(32)), "source": {"https": "https://files.example/x"},
            }]},
            "status": {"conditions": conditions},
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn outside_of_the_library_only_what_is_accepted_as_it_is_now_counts() {
        let accepted = |status: &str, generation: i64| {
            json!([{"type": "Accepted", "status": status, "observedGeneration": generation, "reason": "r",
                    "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}])
        };
        let shared = Some("library".to_owned());
        let strict = LibraryRules { shared: shared.clone(), own: OwnBitstreams::Accepted };
        for (what, namespace, conditions, counts) in [
            ("the library's", "library", json!([]), true),
            ("a tenant's", "shop", json!([]), false),
            ("an accepted one", "shop", accepted("True", 2), true),
            ("one that has changed since", "shop", accepted("True", 1), false),
            ("a refused one", "shop", accepted("False", 2), false),
        ] {
            let object = object(namespace, &conditions);
            assert_eq!(!strict.bitstream(&object).variants.is_empty(), counts, "{what}");
            let any = LibraryRules { shared: shared.clone(), own: OwnBitstreams::Any };
            assert!(!any.bitstream(&object).variants.is_empty(), "{what}");
        }
        let without_library = LibraryRules { shared: None, own: OwnBitstreams::Accepted };
        assert!(without_library.bitstream(&object("library", &json!([]))).variants.is_empty());
        assert!("some".parse::<OwnBitstreams>().unwrap_err().to_string().contains("any, or accepted"));
    }
}
