//! The gRPC service of the streams.

use super::authenticator::NodeScope;
use super::connection::Connection;
use super::receiver::StreamRefusal;
use super::session::Session;
use super::streams::Streams;
use crate::limits::ANSWER_TIMEOUT;
use crate::v1::node_stream_server::NodeStream;
use crate::v1::{Answer, Update};
use futures::Stream;
use std::pin::Pin;
use std::sync::Arc;
use tonic::{Request, Response, Status, Streaming};

/// The gRPC service over [`Streams`].
#[derive(Debug, Clone)]
pub struct Service(pub Arc<Streams>);

#[tonic::async_trait]
impl NodeStream for Service {
    type ReportStream = Pin<Box<dyn Stream<Item = Result<Answer, Status>> + Send>>;

    async fn report(
        &self,
        request: Request<Streaming<Update>>,
    ) -> Result<Response<Self::ReportStream>, Status> {
        let streams = &self.0;
        // A service that runs without the listener of this module has no `Connection`.
        let connection = request.extensions().get::<Connection>().cloned();
        let call = connection.as_ref().map(Connection::begin);
        let shown = streams.authenticator.check(request.metadata()).await;
        let shown = shown.map_err(|refusal| streams.refuse(refusal))?;
        let certified = connection.map_or(NodeScope::Any, |connection| connection.nodes);
        let mut updates = request.into_inner();
        let first = match tokio::time::timeout(ANSWER_TIMEOUT, updates.message()).await {
            Ok(first) => first?,
            Err(_) => return Err(streams.refuse(StreamRefusal::Silent)),
        };
        let introduction = first.and_then(|update| update.introduction);
        let introduction = introduction.ok_or_else(|| streams.refuse(StreamRefusal::Introduction))?;
        streams.check_node(&introduction, &[shown, certified])?;
        let session = Session::begin(Arc::clone(streams), introduction, updates, call);
        let answers = futures::stream::unfold(Some(session), |session| async move {
            let mut session = session?;
            match session.next().await? {
                Ok(answer) => Some((Ok(answer), Some(session))),
                // An error ends the stream.
                Err(status) => Some((Err(status), None)),
            }
        });
        Ok(Response::new(Box::pin(answers)))
    }
}
