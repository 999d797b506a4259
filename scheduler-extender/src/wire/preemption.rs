//! Request and answer of preempt. Candidates come with whole victims or with their UIDs; the answer has UIDs always.

use super::{Malformed, Pod, Text};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::{Deserialize as DeriveDeserialize, Serialize, Serializer};
use std::fmt;

/// Body of preempt: one of the two maps is `null`.
#[derive(Debug, DeriveDeserialize)]
#[serde(rename_all = "PascalCase")]
pub struct PreemptionArgs<'a> {
    #[serde(borrow, default, alias = "pod")]
    pod: Option<Pod<'a>>,
    #[serde(borrow, default, alias = "nodeNameToVictims", alias = "nodenametovictims")]
    node_name_to_victims: Option<Entries<'a>>,
    #[serde(borrow, default, alias = "nodeNameToMetaVictims", alias = "nodenametometavictims")]
    node_name_to_meta_victims: Option<Entries<'a>>,
}

/// A node on which the pod would fit if its victims were evicted.
#[derive(Debug)]
pub struct Candidate<'a> {
    /// Its name.
    pub node: Text<'a>,
    /// Whom to evict, never nobody.
    pub victims: MetaVictims<'a>,
}

/// The victims on a node, by UID.
#[derive(Debug, Serialize)]
pub struct MetaVictims<'a> {
    #[serde(rename = "Pods")]
    pods: Vec<MetaPod<'a>>,
    #[serde(rename = "NumPDBViolations")]
    pdb_violations: i64,
}

#[derive(Debug, Serialize)]
struct MetaPod<'a> {
    #[serde(rename = "UID")]
    uid: Text<'a>,
}

/// Answer to preempt: the candidates that are left.
#[derive(Debug, Serialize)]
pub struct PreemptionResult<'s, 'a> {
    /// In the order of the request.
    #[serde(rename = "NodeNameToMetaVictims", serialize_with = "as_map")]
    pub candidates: Vec<&'s Candidate<'a>>,
}

/// A map in its order.
#[derive(Debug, Default)]
struct Entries<'a>(Vec<(Text<'a>, Option<Victims<'a>>)>);

#[derive(Debug, DeriveDeserialize)]
struct Victims<'a> {
    #[serde(borrow, default, rename = "Pods", alias = "pods")]
    pods: Option<Vec<Victim<'a>>>,
    #[serde(default, rename = "NumPDBViolations", alias = "numPDBViolations", alias = "numpdbviolations")]
    pdb_violations: Option<i64>,
}

/// A whole pod or one by UID.
#[derive(Debug, DeriveDeserialize)]
struct Victim<'a> {
    #[serde(borrow, default, rename = "UID", alias = "uid")]
    uid: Option<Text<'a>>,
    #[serde(borrow, default)]
    metadata: Option<VictimMetadata<'a>>,
}

#[derive(Debug, DeriveDeserialize)]
struct VictimMetadata<'a> {
    #[serde(borrow, default)]
    uid: Option<Text<'a>>,
}

impl<'a> PreemptionArgs<'a> {
    /// The request in `body`.
    ///
    /// # Errors
    /// [`Malformed::Json`] if it is none.
    pub fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        Ok(serde_json::from_str(std::str::from_utf8(body)?)?)
    }

    /// Pod and candidates. One without victims is left out: returned, it would fail the preemption as a whole.
    ///
    /// # Errors
    /// [`Malformed::NoPod`] if there is no pod.
    pub fn into_parts(self) -> Result<(Pod<'a>, Vec<Candidate<'a>>), Malformed> {
        let pod = self.pod.ok_or(Malformed::NoPod)?;
        let entries = self.node_name_to_meta_victims.or(self.node_name_to_victims).unwrap_or_default();
        let candidate = |(node, victims): (Text<'a>, Option<Victims<'a>>)| {
            let victims = victims?;
            let pods: Vec<_> = victims.pods?.into_iter().filter_map(Victim::into_meta).collect();
            let pdb_violations = victims.pdb_violations.unwrap_or_default();
            (!pods.is_empty()).then_some(Candidate { node, victims: MetaVictims { pods, pdb_violations } })
        };
        Ok((pod, entries.0.into_iter().filter_map(candidate).collect()))
    }
}

impl<'a> Victim<'a> {
    fn into_meta(self) -> Option<MetaPod<'a>> {
        let uid = self.uid.or(self.metadata.and_then(|metadata| metadata.uid))?;
        Some(MetaPod { uid })
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Entries<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from node names to victims")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

fn as_map<S: Serializer>(candidates: &[&Candidate<'_>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(candidates.iter().map(|candidate| (candidate.node.as_str(), &candidate.victims)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(body: &str) -> String {
        let (_, candidates) = PreemptionArgs::read(body.as_bytes()).unwrap().into_parts().unwrap();
        serde_json::to_string(&PreemptionResult { candidates: candidates.iter().collect() }).unwrap()
    }

    #[test]
    fn whole_victims_and_their_uids_give_the_same_answer() {
        let answer =
            r#"{"NodeNameToMetaVictims":{"n":{"Pods":[{"UID":"u1"},{"UID":"u2"}],"NumPDBViolations":3}}}"#;
        let whole = r#"{"Pod":{},"NodeNameToMetaVictims":null,"NodeNameToVictims":{"n":{"Pods":[{"metadata":{"uid":"u1"},"spec":{}},{"metadata":{"uid":"u2"}}],"NumPDBViolations":3}}}"#;
        let meta = r#"{"Pod":{},"NodeNameToVictims":null,"NodeNameToMetaVictims":{"n":{"Pods":[{"UID":"u1"},{"UID":"u2"}],"NumPDBViolations":3}}}"#;
        assert_eq!((kept(whole).as_str(), kept(meta).as_str()), (answer, answer));
    }

    #[test]
    fn a_candidate_without_victims_is_never_returned() {
        for victims in ["null", r#"{"Pods":null}"#, r#"{"Pods":[],"NumPDBViolations":0}"#, "{}"] {
            let body = format!(r#"{{"Pod":{{}},"NodeNameToMetaVictims":{{"n":{victims}}}}}"#);
            assert_eq!(kept(&body), r#"{"NodeNameToMetaVictims":{}}"#);
        }
        assert_eq!(kept(r#"{"Pod":{}}"#), r#"{"NodeNameToMetaVictims":{}}"#);
    }
}
