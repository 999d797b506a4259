//! Events on objects of Kubernetes.

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event as Written;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::runtime::events::{Event, EventType};
use kube::{Api, Client};

/// Longest note of an event that the API server takes.
const MAX_NOTE_BYTES: usize = 1024;
/// The label with the program that has written an event. Policies find events by it.
const WRITER_LABEL: &str = "app.kubernetes.io/managed-by";

/// Writes the events of a program.
#[derive(Clone)]
pub struct EventWriter {
    client: Client,
    controller: String,
    instance: String,
}

impl EventWriter {
    /// Events of one `instance` of the controller, which has a name like `fpga-scheduling.io/registry`.
    #[must_use]
    pub fn new(client: Client, controller: &str, instance: String) -> Self {
        Self { client, controller: controller.to_owned(), instance }
    }

    /// Writes an event on an object. The end of a note that is too long for the API server is missing there.
    ///
    /// # Errors
    /// The API server does not take the event.
    pub async fn publish(&self, event: Event, object: &ObjectReference) -> kube::Result<()> {
        let namespace = object.namespace.as_deref().unwrap_or("default");
        let events: Api<Written> = Api::namespaced(self.client.clone(), namespace);
        let event = self.written(event, object, Timestamp::now());
        events.create(&PostParams::default(), &event).await.map(drop)
    }

    fn written(&self, event: Event, object: &ObjectReference, now: Timestamp) -> Written {
        let program = self.controller.rsplit('/').next().unwrap_or_default();
        let name = object.name.as_deref().unwrap_or(program);
        Written {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{:x}", now.as_nanosecond())),
                labels: Some([(WRITER_LABEL.to_owned(), format!("fpga-{program}"))].into()),
                ..ObjectMeta::default()
            },
            action: Some(event.action),
            reason: Some(event.reason),
            note: event.note.map(cut),
            type_: Some(match event.type_ {
                EventType::Normal => "Normal".to_owned(),
                EventType::Warning => "Warning".to_owned(),
            }),
            event_time: Some(MicroTime(now)),
            regarding: Some(object.clone()),
            related: event.secondary,
            reporting_controller: Some(self.controller.clone()),
            reporting_instance: Some(self.instance.clone()),
            ..Written::default()
        }
    }
}

/// The part of a note that the API server takes.
fn cut(mut note: String) -> String {
    let fits = (0..=note.len().min(MAX_NOTE_BYTES)).rev().find(|end| note.is_char_boundary(*end));
    note.truncate(fits.unwrap_or(0));
    note
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_cut_between_characters_where_the_api_server_takes_no_more() {
        assert_eq!(cut("short".to_owned()), "short");
        assert_eq!(cut("a".repeat(2000)).len(), 1024);
        assert_eq!(cut(format!("a{}", "\u{1f980}".repeat(500))).len(), 1021);
    }
}
