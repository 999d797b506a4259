//! Answers device managers that ask whether a container may have a bitstream. [`fpga_core::gate`] decides, by the
//! allocations, the library, and the last state of the boards.

use crate::library::LibraryError;
use crate::plugin::Plugin;
use fpga_core::gate::{GateAnswer, GateRefusal, GateRequest, GateVerdict, Origin};
use fpga_core::library::Library;
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, info};

/// Age up to which the library counts as that of now.
const FRESH: Duration = Duration::from_secs(10);
/// Age up to which a library without the bitstream counts: it may have been applied a moment ago.
const JUST_READ: Duration = Duration::from_secs(1);

impl Plugin {
    /// Asks the API server what the gate will need for containers of a namespace, so that the gate knows it also if the API
    /// server is away when it is needed.
    pub(crate) async fn learn_library(&self, namespace: &str) {
        if let Some(library) = &self.bitstreams.library {
            // The gate asks again, and tells the reason.
            let _ = library.listed.of_namespace(namespace, FRESH).await;
        }
    }

    /// Whether the container with the request's token may have the bitstream.
    pub(crate) async fn may_have(&self, request: &GateRequest) -> GateAnswer {
        let verdict = match self.library_for(request, FRESH).await {
            Ok(library) => match self.decide_gate(request, library.as_deref()) {
                GateVerdict::Refused(GateRefusal::Unlisted { .. }) => {
                    let library = self.library_for(request, JUST_READ).await;
                    library.map(|library| self.decide_gate(request, library.as_deref()))
                }
                verdict => Ok(verdict),
            },
            Err(error) => Err(error),
        };
        let GateRequest { board, bitstream, .. } = request;
        match verdict {
            Ok(verdict) => {
                match &verdict {
                    GateVerdict::Refused(reason) => {
                        info!(board, %bitstream, %reason, "The gate refuses");
                        if let Some(container) = self.allocated().0.get(&request.token) {
                            self.refusal_events.tell(container, request, reason);
                        }
                    }
                    verdict => debug!(board, %bitstream, ?verdict, "The gate decides"),
                }
                verdict.answer()
            }
            Err(error) => GateAnswer::Wait(error.to_string()),
        }
    }

    /// The library by which the request is judged; `None` where there is none, or the request needs none.
    async fn library_for(
        &self,
        request: &GateRequest,
        age: Duration,
    ) -> Result<Option<Arc<Library>>, LibraryError> {
        let asking = self.allocated().0.remove(&request.token);
        match (&self.bitstreams.library, asking) {
            (Some(library), Some(asking)) if request.origin != Origin::Source => {
                library.listed.of_namespace(&asking.namespace, age).await
            }
            _ => Ok(None),
        }
    }

    fn decide_gate(&self, request: &GateRequest, library: Option<&Library>) -> GateVerdict {
        let boards = self.boards.borrow();
        self.turns.decide(&self.allocated(), library, boards.state.as_ref(), request)
    }
}
