//! The age of a state in a node's annotation, by the API server's date of the write.

use fpga_core::node_state::{ANNOTATION, FIELD_MANAGER};
use fpga_core::units::{Millis, WallTime};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};

/// Time since the state's annotation of `node` was written; `None` if the API server tells no date.
#[must_use]
pub fn annotation_age(node: &ObjectMeta, now: WallTime) -> Option<Millis> {
    let fields = node.managed_fields.as_deref().unwrap_or_default();
    let by_owner = || fields.iter().filter(|entry| owns_annotation(entry));
    let latest = |entries: &mut dyn Iterator<Item = &ManagedFieldsEntry>| {
        entries.filter_map(|entry| u64::try_from(entry.time.as_ref()?.0.as_millisecond()).ok()).max()
    };
    let by_author = latest(&mut by_owner().filter(|entry| entry.manager.as_deref() == Some(FIELD_MANAGER)));
    by_author.or_else(|| latest(&mut by_owner())).map(|time| now - WallTime(time))
}

fn owns_annotation(entry: &ManagedFieldsEntry) -> bool {
    let fields = entry.fields_v1.as_ref().and_then(|fields| fields.0.pointer("/f:metadata/f:annotations"));
    fields.and_then(|annotations| annotations.get(format!("f:{ANNOTATION}"))).is_some()
}
