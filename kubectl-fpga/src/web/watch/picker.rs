//! The functions as the endpoint picker knows them, asked again and again.

use super::super::model::source::{Source, State};
use super::super::shared::Shared;
use super::RETRY;
use crate::connection::ConnectArgs;
use crate::part::Part;
use crate::problem::Problem;
use crate::replicas::{self, Replica};
use fpga_picker_api::FunctionView;
use std::sync::Arc;
use std::time::Duration;

/// Time between two questions.
const PERIOD: Duration = Duration::from_millis(700);

/// Asks until the future is dropped.
pub(super) async fn poll(connect: ConnectArgs, shared: Arc<Shared>) {
    let tell = |state: State| shared.change(|model, _| model.source(Source::Picker, &state));
    tell(State::Connecting);
    loop {
        let problem = match replicas::replicas(Part::Picker, &connect).await {
            Ok(pickers) => ask(&pickers, &shared).await,
            Err(problem) => problem,
        };
        tell(State::from(&problem));
        shared.change(|model, _| model.functions(Vec::new()));
        tokio::time::sleep(RETRY).await;
    }
}

/// Asks these pickers until none answers. Each of them counts the requests that pass it.
async fn ask(pickers: &[Replica], shared: &Shared) -> Problem {
    loop {
        let (mut functions, mut problem, mut answered) = (Vec::new(), None, false);
        for told in replicas::ask_all::<Vec<FunctionView>>(pickers, "/functions").await {
            match told.answer {
                Ok(views) => {
                    answered = true;
                    functions.extend(views.unwrap_or_default());
                }
                Err(silent) => problem = problem.or(Some(silent)),
            }
        }
        if let (false, Some(problem)) = (answered, problem) {
            return problem;
        }
        shared.change(|model, _| {
            model.functions(functions);
            model.source(Source::Picker, &State::live());
        });
        tokio::time::sleep(PERIOD).await;
    }
}
