//! Request and answer of preempt. The request names victims as whole pods or by UID, the answer always by UID.

use super::limits::{MAX_NAME_BYTES, MAX_NODES, MAX_VICTIMS};
use super::malformed::{Malformed, check_length};
use super::{Pod, Text};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize as DeriveDeserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use std::fmt;

/// Body of preempt. One of the two maps is `null`.
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
    /// Name of the node.
    pub node: Text<'a>,
    /// The pods to evict. None if by kube-scheduler's own filters the pod fits as it is, and an extender rejected the
    /// node: from 1.38 on it asks for victims then.
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

/// Answer to preempt: the remaining candidates that have victims. One without victims would make kube-scheduler fail
/// the whole preemption.
#[derive(Debug, Serialize)]
pub struct PreemptionResult<'a> {
    /// The candidates, in the order of the request.
    #[serde(rename = "NodeNameToMetaVictims", serialize_with = "as_map")]
    pub candidates: Vec<Candidate<'a>>,
}

/// A map of at most [`MAX_NODES`] nodes in its order. The victims of each node are decoded later, one node after the
/// other.
#[derive(Debug, Default)]
struct Entries<'a>(Vec<(Text<'a>, &'a RawValue)>);

#[derive(Debug, Default, DeriveDeserialize)]
struct Victims<'a> {
    #[serde(borrow, default, rename = "Pods", alias = "pods")]
    pods: Option<Uids<'a>>,
    #[serde(default, rename = "NumPDBViolations", alias = "numPDBViolations", alias = "numpdbviolations")]
    pdb_violations: Option<i64>,
}

/// The UIDs of victims. A victim without UID is dropped while decoding, so that the memory stays in proportion to the
/// text.
#[derive(Debug, Default)]
struct Uids<'a>(Vec<MetaPod<'a>>);

/// A victim, as a whole pod or by UID.
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
    /// Decodes `body`.
    ///
    /// # Errors
    /// [`Malformed::Utf8`] or [`Malformed::Json`] if the body is not such a request.
    pub fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        Ok(serde_json::from_str(std::str::from_utf8(body)?)?)
    }

    /// The pod and the candidates.
    ///
    /// # Errors
    /// [`Malformed`] if there is no pod, a name is too long, or there are too many victims.
    pub fn into_parts(self) -> Result<(Pod<'a>, Vec<Candidate<'a>>), Malformed> {
        let pod = self.pod.ok_or(Malformed::NoPod)?;
        pod.check()?;
        let entries = self.node_name_to_meta_victims.or(self.node_name_to_victims).unwrap_or_default();
        let mut candidates = Vec::new();
        let mut victims_left = MAX_VICTIMS;
        for (node, victims) in entries.0 {
            check_length("node name", node.as_str(), MAX_NAME_BYTES)?;
            let victims = serde_json::from_str::<Option<Victims<'a>>>(victims.get())?.unwrap_or_default();
            let Uids(pods) = victims.pods.unwrap_or_default();
            victims_left = victims_left.checked_sub(pods.len()).ok_or(Malformed::TooManyVictims)?;
            let pdb_violations = victims.pdb_violations.unwrap_or_default();
            candidates.push(Candidate { node, victims: MetaVictims { pods, pdb_violations } });
        }
        Ok((pod, candidates))
    }
}

impl MetaVictims<'_> {
    /// The UIDs of the victims, the most important first.
    pub fn uids(&self) -> impl Iterator<Item = &str> {
        self.pods.iter().map(|pod| pod.uid.as_str())
    }

    /// Keeps the victims whose UIDs are kept.
    pub fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.pods.retain(|pod| is_kept(pod.uid.as_str()));
    }

    /// Adds a victim at this place. It counts as a violation of a PodDisruptionBudget, of which nothing is known here:
    /// so kube-scheduler prefers nodes where its own victims suffice.
    pub fn insert(&mut self, place: usize, uid: &str) {
        self.pods.insert(place, MetaPod { uid: uid.into() });
        self.pdb_violations = self.pdb_violations.saturating_add(1);
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
                    if entries.len() == MAX_NODES {
                        return Err(A::Error::custom(format_args!("more than {MAX_NODES} nodes")));
                    }
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Uids<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Victims;

        impl<'de> Visitor<'de> for Victims {
            type Value = Uids<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of pods")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut pods = Vec::new();
                while let Some(victim) = seq.next_element::<Victim<'de>>()? {
                    pods.extend(victim.into_meta());
                    if pods.len() > MAX_VICTIMS {
                        return Err(A::Error::custom(Malformed::TooManyVictims));
                    }
                }
                Ok(Uids(pods))
            }
        }

        deserializer.deserialize_seq(Victims)
    }
}

fn as_map<S: Serializer>(candidates: &[Candidate<'_>], serializer: S) -> Result<S::Ok, S::Error> {
    let with_victims = candidates.iter().filter(|candidate| !candidate.victims.pods.is_empty());
    serializer.collect_map(with_victims.map(|candidate| (candidate.node.as_str(), &candidate.victims)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(body: &str) -> String {
        let (_, candidates) = PreemptionArgs::read(body.as_bytes()).unwrap().into_parts().unwrap();
        serde_json::to_string(&PreemptionResult { candidates }).unwrap()
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
    fn nodes_and_victims_are_bounded_whatever_the_body_may_hold() {
        let victims = |count: usize| format!(r#"{{"Pods":[{}]}}"#, vec![r#"{"UID":""}"#; count].join(","));
        let of = |nodes: String| format!(r#"{{"Pod":{{}},"NodeNameToMetaVictims":{{{nodes}}}}}"#);
        let half = victims(MAX_VICTIMS / 2 + 1);
        for body in [
            of(format!(r#""a":{}"#, victims(MAX_VICTIMS + 1))),
            of(format!(r#""a":{half},"b":{half}"#)),
            of(vec![r#""":{}"#; MAX_NODES + 1].join(",")),
        ] {
            let parts = PreemptionArgs::read(body.as_bytes()).and_then(PreemptionArgs::into_parts);
            assert!(parts.is_err_and(|error| error.to_string().contains("more than")));
        }
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
