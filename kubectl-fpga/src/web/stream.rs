//! The stream of changes to a page, as server-sent events.
//!
//! A batch is made when the page has taken the one before, so that nothing is kept for slow pages: they get fewer
//! batches, each with the latest rows.

use super::model::tables::Position;
use super::shared::{Shared, now_ms};
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, watch};

/// Least time between two batches: changes that come together are drawn together.
const PERIOD: Duration = Duration::from_millis(200);
/// A stream says something at least this often, so that the page notices a lost connection.
const HEARTBEAT: Duration = Duration::from_secs(3);
/// Size of a batch. A browser parses it and draws it within a frame or two.
const BATCH_BYTES: usize = 128 * 1024;

struct Reader {
    shared: Arc<Shared>,
    versions: watch::Receiver<u64>,
    position: Position,
    /// Whether another batch is there already.
    more: bool,
    /// One of the places that streams may take.
    _place: OwnedSemaphorePermit,
}

/// An endless answer with the changes of the model.
pub fn respond(shared: Arc<Shared>, place: OwnedSemaphorePermit) -> Response {
    let versions = shared.versions();
    let reader = Reader { shared, versions, position: Position::Beginning, more: true, _place: place };
    let events = futures::stream::unfold(reader, |mut reader| async {
        let event = reader.next().await;
        Some((Ok::<_, Infallible>(event), reader))
    });
    let kind = HeaderValue::from_static("text/event-stream");
    ([(header::CONTENT_TYPE, kind)], Body::from_stream(events)).into_response()
}

impl Reader {
    /// The next event: a batch, or the time if nothing changes.
    async fn next(&mut self) -> String {
        if !std::mem::take(&mut self.more) {
            tokio::time::sleep(PERIOD).await;
            // The sender lives as long as `shared` does.
            let _ = tokio::time::timeout(HEARTBEAT, self.versions.changed()).await;
        }
        self.versions.mark_unchanged();
        match self.shared.after(self.position, BATCH_BYTES) {
            Some(batch) => {
                self.position = batch.position;
                self.more = batch.more;
                format!("data: {}\n\n", batch.text)
            }
            None => format!("event: time\ndata: {}\n\n", now_ms()),
        }
    }
}
