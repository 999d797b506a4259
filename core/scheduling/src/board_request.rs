//! How a container asks for boards: by a resource, whose quantity is a number of different boards.

use crate::names::{ACCELERATED_RESOURCE, OWN_PREFIX};
use std::borrow::Cow;

/// A resource that containers ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoardResource<'a> {
    /// `fpga-scheduling.io/accelerated`: boards of any vendor.
    OfAnyVendor,
    /// `fpga-scheduling.io/VENDOR`: boards of this vendor.
    OfVendor(&'a str),
}

/// A container's request for boards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoardRequest<'a> {
    /// The resource.
    pub resource: BoardResource<'a>,
    /// Number of different boards, as written.
    pub quantity: &'a str,
    /// Whether the container asks for another one of our resources as well.
    pub others: OtherResources,
}

/// Whether a container asks for a second one of our resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherResources {
    /// The container asks for one of our resources only.
    None,
    /// The container asks for more than one of our resources.
    Some,
}

impl<'a> BoardResource<'a> {
    /// The resource of this name; `None` if the name is none of ours.
    #[must_use]
    pub fn named(name: &'a str) -> Option<Self> {
        match name {
            ACCELERATED_RESOURCE => Some(Self::OfAnyVendor),
            _ => name.strip_prefix(OWN_PREFIX).filter(|vendor| !vendor.is_empty()).map(Self::OfVendor),
        }
    }

    /// The name of the resource.
    #[must_use]
    pub fn name(self) -> Cow<'static, str> {
        match self {
            Self::OfAnyVendor => ACCELERATED_RESOURCE.into(),
            Self::OfVendor(vendor) => format!("{OWN_PREFIX}{vendor}").into(),
        }
    }

    /// The vendor of the boards, if the resource has one.
    #[must_use]
    pub const fn vendor(self) -> Option<&'a str> {
        match self {
            Self::OfAnyVendor => None,
            Self::OfVendor(vendor) => Some(vendor),
        }
    }
}

impl<'a> BoardRequest<'a> {
    /// A request for this quantity of [`ACCELERATED_RESOURCE`].
    #[must_use]
    pub const fn of_any_vendor(quantity: &'a str) -> Self {
        Self { resource: BoardResource::OfAnyVendor, quantity, others: OtherResources::None }
    }

    /// Whether the container asks for no board at all, in so many words.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.quantity.parse() == Ok(0_u32)
    }

    /// The request in a container's `limits` and `requests`, which are equal for such resources; `None` if none of them
    /// is ours. A resource with the quantity zero counts only where the container names no other one.
    pub fn among(resources: impl IntoIterator<Item = (&'a str, &'a str)>) -> Option<Self> {
        let mut found: Option<Self> = None;
        for (name, quantity) in resources {
            let Some(resource) = BoardResource::named(name) else { continue };
            let request = Self { resource, quantity, others: OtherResources::None };
            match &mut found {
                Some(first) if first.resource == resource || request.is_zero() => {}
                Some(first) if !first.is_zero() => first.others = OtherResources::Some,
                Some(_) | None => found = Some(request),
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_asks_by_one_of_our_resources_in_limits_or_requests() {
        assert_eq!(BoardRequest::among([("cpu", "1"), ("fpga-scheduling.io/", "1")]), None);
        let any =
            BoardRequest::among([("cpu", "1"), (ACCELERATED_RESOURCE, "2"), (ACCELERATED_RESOURCE, "2")]);
        assert_eq!(any, Some(BoardRequest::of_any_vendor("2")));
        let intel = BoardRequest::among([("fpga-scheduling.io/intel", "1")]).unwrap();
        assert_eq!((intel.resource.vendor(), intel.others), (Some("intel"), OtherResources::None));
        let both = BoardRequest::among([("fpga-scheduling.io/intel", "1"), (ACCELERATED_RESOURCE, "1")]);
        assert_eq!(both.unwrap().others, OtherResources::Some);
    }

    #[test]
    fn a_resource_with_the_quantity_zero_is_no_second_one() {
        const INTEL: &str = "fpga-scheduling.io/intel";
        let none = BoardRequest::among([(ACCELERATED_RESOURCE, "0"), (INTEL, "0")]).unwrap();
        assert!(none.is_zero());
        for quantities in
            [[(ACCELERATED_RESOURCE, "0"), (INTEL, "2")], [(INTEL, "2"), (ACCELERATED_RESOURCE, "0")]]
        {
            let intel = BoardRequest::among(quantities.into_iter().chain(quantities)).unwrap();
            assert_eq!((intel.resource.vendor(), intel.others), (Some("intel"), OtherResources::None));
            assert!(!intel.is_zero());
        }
    }
}
