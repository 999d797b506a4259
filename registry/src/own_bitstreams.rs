//! Which Bitstreams of tenants count (P-2): those outside of the library namespace, as far as the quota of their namespace
//! goes. The verdict is the condition `Accepted` of each Bitstream, which its readers go by
//! ([`fpga_registry_api::OwnBitstreams`]).

use fpga_net::size;
use fpga_registry_api::{Bitstream, OwnBitstreams};
use kube::ResourceExt as _;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// What namespaces other than the library's may have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OwnRule {
    /// Anything; nothing is said about it.
    #[default]
    Any,
    /// Nothing.
    Off,
    /// So much, each of them.
    UpTo(OwnQuota),
}

/// The quota of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnQuota {
    /// Most Bitstreams.
    pub bitstreams: usize,
    /// Most bytes of all their variants.
    pub bytes: u64,
}

/// The text is no [`OwnRule`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no rule; write any, off, or most Bitstreams and bytes of a namespace, for example 16,4GiB")]
pub struct InvalidOwnRule(String);

/// Whether a Bitstream counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The Bitstream lies in the library's namespace, where no quota holds.
    OfLibrary,
    /// Its namespace has room for it.
    WithinQuota,
    /// Namespaces have no Bitstreams of their own.
    Off,
    /// Its namespace has as many older ones as it may have.
    TooMany(OwnQuota),
    /// With the older ones its namespace would have more bytes than it may have.
    TooManyBytes {
        /// The quota.
        quota: OwnQuota,
        /// Bytes of the older ones.
        used: u64,
    },
}

impl FromStr for OwnRule {
    type Err = InvalidOwnRule;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidOwnRule(text.to_owned());
        match text {
            "any" => Ok(Self::Any),
            "off" => Ok(Self::Off),
            _ => {
                let (bitstreams, bytes) = text.split_once(',').ok_or_else(invalid)?;
                let bitstreams = bitstreams.parse().map_err(|_| invalid())?;
                Ok(Self::UpTo(OwnQuota { bitstreams, bytes: size::parse(bytes).map_err(|_| invalid())? }))
            }
        }
    }
}

impl OwnRule {
    /// The effect of the rule on readers of Bitstreams.
    #[must_use]
    pub const fn for_readers(self) -> OwnBitstreams {
        match self {
            Self::Any => OwnBitstreams::Any,
            Self::Off | Self::UpTo(_) => OwnBitstreams::Accepted,
        }
    }
}

impl Verdict {
    /// Whether the Bitstream counts.
    #[must_use]
    pub const fn is_accepted(self) -> bool {
        matches!(self, Self::OfLibrary | Self::WithinQuota)
    }

    /// The reason of the condition.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::OfLibrary => "Library",
            Self::WithinQuota => "WithinQuota",
            Self::Off => "OwnBitstreamsOff",
            Self::TooMany(_) => "TooManyBitstreams",
            Self::TooManyBytes { .. } => "TooManyBytes",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OfLibrary => f.write_str("a Bitstream of the library"),
            Self::WithinQuota => f.write_str("within the quota of the namespace"),
            Self::Off => f.write_str(
                "Bitstreams count in the library namespace only; ask the administrator to put it there",
            ),
            Self::TooMany(OwnQuota { bitstreams, .. }) => write!(
                f,
                "the namespace has the {bitstreams} Bitstreams that it may have, which are older; delete one of them"
            ),
            Self::TooManyBytes { quota, used } => write!(
                f,
                "the namespace's older Bitstreams have {used} of the {} bytes that it may have; delete one of them, or \
                 variants of this one",
                quota.bytes
            ),
        }
    }
}

/// The verdict on each Bitstream, by namespace and name; none where anything goes. Of a namespace the oldest come first; one
/// that is too large keeps no smaller one out.
#[must_use]
pub fn verdicts(
    bitstreams: &[Arc<Bitstream>],
    shared: Option<&str>,
    rule: OwnRule,
) -> BTreeMap<(String, String), Verdict> {
    let mut order: Vec<&Arc<Bitstream>> = match rule {
        OwnRule::Any => Vec::new(),
        OwnRule::Off | OwnRule::UpTo(_) => bitstreams.iter().collect(),
    };
    order.sort_by_key(|object| (object.creation_timestamp(), object.name_any()));
    let mut used: BTreeMap<String, OwnQuota> = BTreeMap::new();
    let verdict = |object: &Arc<Bitstream>| {
        let namespace = object.namespace().unwrap_or_default();
        let verdict = match rule {
            _ if shared == Some(namespace.as_str()) => Verdict::OfLibrary,
            OwnRule::Any | OwnRule::Off => Verdict::Off,
            OwnRule::UpTo(quota) => {
                let of_namespace =
                    used.entry(namespace.clone()).or_insert(OwnQuota { bitstreams: 0, bytes: 0 });
                quota.admit(of_namespace, bytes(object))
            }
        };
        ((namespace, object.name_any()), verdict)
    };
    order.into_iter().map(verdict).collect()
}

impl OwnQuota {
    /// Whether a Bitstream of so many bytes fits beside what is `used`, which it is part of then.
    fn admit(self, used: &mut Self, bytes: u64) -> Verdict {
        let with_it = used.bytes.saturating_add(bytes);
        if used.bitstreams >= self.bitstreams {
            return Verdict::TooMany(self);
        }
        if with_it > self.bytes {
            return Verdict::TooManyBytes { quota: self, used: used.bytes };
        }
        *used = Self { bitstreams: used.bitstreams + 1, bytes: with_it };
        Verdict::WithinQuota
    }
}

/// Bytes of all variants. A size that is none, which no API server with our definition has, fits nowhere.
fn bytes(object: &Bitstream) -> u64 {
    let sizes = object.spec.variants.iter().map(|variant| u64::try_from(variant.bytes).unwrap_or(u64::MAX));
    sizes.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const QUOTA: OwnQuota = OwnQuota { bitstreams: 2, bytes: 100 };

    fn object(namespace: &str, name: &str, second: u32, sizes: &[i64]) -> Arc<Bitstream> {
        let variant = |bytes: &i64| {
            json!({
                "vendor": "intel", "board": format!("b{bytes}"), "shell": "1", "bytes": bytes,
                "digest": format!("sha256:{}", "0a".repeat(32)), "source": {"https": "https://files.example/x"},
            })
        };
        let object = json!({
            "apiVersion": "fpga-scheduling.io/v1alpha1", "kind": "Bitstream",
            "metadata": {"namespace": namespace, "name": name,
                         "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")},
            "spec": {"variants": sizes.iter().map(variant).collect::<Vec<_>>()},
        });
        Arc::new(serde_json::from_value(object).unwrap())
    }

    fn told(objects: &[Arc<Bitstream>], rule: OwnRule) -> Vec<String> {
        let verdicts = verdicts(objects, Some("library"), rule);
        verdicts
            .into_iter()
            .map(|((of, name), verdict)| format!("{of}/{name} {}", verdict.reason()))
            .collect()
    }

    #[test]
    fn each_namespace_has_its_oldest_bitstreams_up_to_number_and_bytes() {
        let objects = [
            object("shop", "third", 3, &[1]),
            object("shop", "first", 1, &[40, 30]),
            object("shop", "large", 2, &[31]),
            object("shop", "late", 9, &[1]),
            object("mill", "own", 5, &[100]),
            object("library", "sobel", 9, &[4_000]),
        ];
        assert_eq!(
            told(&objects, OwnRule::UpTo(QUOTA)),
            [
                "library/sobel Library",
                "mill/own WithinQuota",
                "shop/first WithinQuota",
                "shop/large TooManyBytes",
                "shop/late TooManyBitstreams",
                "shop/third WithinQuota",
            ]
        );
        let off = told(&objects[4..], OwnRule::Off);
        assert_eq!(off, ["library/sobel Library", "mill/own OwnBitstreamsOff"]);
        assert!(told(&objects, OwnRule::Any).is_empty());
    }

    #[test]
    fn of_the_same_second_the_first_name_comes_first_and_sizes_do_not_overflow() {
        let objects = [object("shop", "b", 1, &[60]), object("shop", "a", 1, &[60])];
        let rule = OwnRule::UpTo(QUOTA);
        assert_eq!(told(&objects, rule), ["shop/a WithinQuota", "shop/b TooManyBytes"]);
        let absurd = [object("shop", "a", 1, &[-1, i64::MAX])];
        assert_eq!(told(&absurd, rule), ["shop/a TooManyBytes"]);
        let text = Verdict::TooManyBytes { quota: QUOTA, used: 60 }.to_string();
        assert!(text.contains("60 of the 100 bytes") && text.contains("delete one"), "{text}");
    }

    #[test]
    fn a_rule_is_a_word_or_a_quota() {
        assert_eq!("any".parse(), Ok(OwnRule::Any));
        assert_eq!("off".parse(), Ok(OwnRule::Off));
        let quota = OwnQuota { bitstreams: 16, bytes: 4 << 30 };
        assert_eq!("16,4GiB".parse(), Ok(OwnRule::UpTo(quota)));
        for text in ["", "16", "16,", "-1,4GiB", "16,4GB", "on"] {
            let error = text.parse::<OwnRule>().unwrap_err().to_string();
            assert!(error.contains("for example 16,4GiB"), "{error}");
        }
    }
}
