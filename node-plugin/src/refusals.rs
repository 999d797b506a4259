//! Which pods could not be served for a cause that does not pass, and whose pods are therefore kept off the node.
//!
//! Such a cause is one of a closed list ([`PrepareError::is_permanent`](crate::plugin::PrepareError::is_permanent)). The
//! kubelet goes on trying on this node; another node may do better, so the extender is told to place no further pods of
//! the same controller here for a while.

use fpga_core::node_state::MAX_CONTROLLER_BYTES;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Time for which a pod is refused before the pods of its controller are kept off.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time for which pods of a controller are kept off.
const KEPT_OFF: Duration = Duration::from_secs(600);
/// Time after which a refusal that was not repeated is forgotten: the kubelet tries every 15 s or so.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(120);

/// The refusals of the last minutes.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    /// By the UID of the pod.
    pods: BTreeMap<String, Refused>,
    /// By the controller, the time of the last refusal.
    controllers: BTreeMap<String, Instant>,
}

#[derive(Debug)]
struct Refused {
    first: Instant,
    last: Instant,
}

impl Refusals {
    /// The pod was refused for a cause that does not pass. A pod without a controller is never replaced, so nothing
    /// follows.
    pub(crate) fn refuse(&mut self, pod: &str, controller: Option<&str>, now: Instant) {
        self.forget(now);
        let refused = self.pods.entry(pod.to_owned()).or_insert(Refused { first: now, last: now });
        refused.last = now;
        // A longer name would make the whole report invalid.
        if let Some(controller) = controller.filter(|controller| controller.len() <= MAX_CONTROLLER_BYTES)
            && now.saturating_duration_since(refused.first) >= PATIENCE
        {
            self.controllers.insert(controller.to_owned(), now);
        }
    }

    /// The pod was served.
    pub(crate) fn serve(&mut self, pod: &str) {
        self.pods.remove(pod);
    }

    /// The controllers whose pods are kept off, at most `most`, the last refused ones.
    pub(crate) fn kept_off(&mut self, now: Instant, most: usize) -> BTreeSet<String> {
        self.forget(now);
        let mut controllers: Vec<_> = self.controllers.iter().collect();
        controllers.sort_by_key(|(_, last)| std::cmp::Reverse(**last));
        controllers.into_iter().take(most).map(|(controller, _)| controller.clone()).collect()
    }

    fn forget(&mut self, now: Instant) {
        self.pods.retain(|_, refused| now.saturating_duration_since(refused.last) < FORGOTTEN_AFTER);
        self.controllers.retain(|_, last| now.saturating_duration_since(*last) < KEPT_OFF);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_of_a_controller_are_kept_off_for_a_while_after_one_was_refused_for_a_minute() {
        let (mut refusals, start) = (Refusals::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for seconds in [0, 16, 31, 46] {
            refusals.refuse("p1", Some("rs"), at(seconds));
            assert_eq!(refusals.kept_off(at(seconds), 8), BTreeSet::new());
        }
        refusals.refuse("p1", Some("rs"), at(61));
        assert_eq!(refusals.kept_off(at(61), 8), ["rs".to_owned()].into());
        assert_eq!(refusals.kept_off(at(660), 8), ["rs".to_owned()].into());
        assert_eq!(refusals.kept_off(at(661), 8), BTreeSet::new());
    }

    #[test]
    fn a_pod_that_was_served_or_not_tried_for_long_begins_anew_and_a_bare_pod_keeps_nobody_off() {
        let (mut refusals, start) = (Refusals::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        refusals.refuse("served", Some("rs"), at(0));
        refusals.serve("served");
        refusals.refuse("served", Some("rs"), at(61));
        refusals.refuse("silent", Some("rs"), at(0));
        refusals.refuse("silent", Some("rs"), at(200));
        let long = "x".repeat(MAX_CONTROLLER_BYTES + 1);
        for seconds in [0, 30, 61] {
            refusals.refuse("bare", None, at(200 + seconds));
            refusals.refuse("long", Some(&long), at(200 + seconds));
        }
        assert_eq!(refusals.kept_off(at(261), 8), BTreeSet::new());
    }

    #[test]
    fn the_last_refused_controllers_are_told_where_there_are_too_many() {
        let (mut refusals, start) = (Refusals::default(), Instant::now());
        for number in 0..3_u32 {
            let (pod, controller) = (format!("p{number}"), format!("c{number}"));
            let first = start + Duration::from_secs(number.into());
            refusals.refuse(&pod, Some(&controller), first);
            refusals.refuse(&pod, Some(&controller), first + PATIENCE);
        }
        let told = refusals.kept_off(start + PATIENCE + Duration::from_secs(3), 2);
        assert_eq!(told, ["c1".to_owned(), "c2".to_owned()].into());
    }
}
