//! Events on objects of Kubernetes.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, Recorder, Reporter};

/// Longest note of an event that the API server takes.
const MAX_NOTE_BYTES: usize = 1024;

/// Writes the events of a program.
#[derive(Clone)]
pub struct EventWriter {
    client: Client,
    reporter: Reporter,
}

impl EventWriter {
    /// Events of one `instance` of the controller, which has a name like `fpga-scheduling.io/registry`.
    #[must_use]
    pub fn new(client: Client, controller: &str, instance: String) -> Self {
        Self { client, reporter: Reporter { controller: controller.to_owned(), instance: Some(instance) } }
    }

    /// Writes an event on an object. The end of a note that is too long for the API server is missing there.
    ///
    /// # Errors
    /// The API server does not take the event.
    pub async fn publish(&self, mut event: Event, object: &ObjectReference) -> kube::Result<()> {
        event.note = event.note.map(cut);
        // A recorder counts further events with the same reason on the first one, with its note.
        Recorder::new(self.client.clone(), self.reporter.clone()).publish(&event, object).await
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
