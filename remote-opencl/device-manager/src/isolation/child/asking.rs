//! What a tenant process asks of the manager and reports to it: slots, memory, places for builds, the gate.

use super::super::packets::{Control, FromTenant, MAX_BITSTREAMS, Room, Wanted};
use fpga_board::dispatch::{Lanes, TaskId, TaskRequest};
use fpga_board::slots::SessionId;
use fpga_session::builds;
use fpga_session::dispatcher::Above;
use fpga_session::gate::{Gate, GateAnswer, Question, Verdict};
use fpga_session::governor;
use fpga_session::health::Health;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// The connection to the manager, the questions that are open there, and the health signs of tasks' kernels.
/// Clones share all three.
#[derive(Debug, Clone)]
pub(super) struct ToManager(pub(super) Arc<Control>, pub(super) AskManager, pub(super) Health);

/// The gate of a tenant process: it forwards each question to the manager.
#[derive(Debug, Clone)]
pub(super) struct AskManager {
    pub(super) control: Arc<Control>,
    pub(super) asked: Arc<Mutex<Asked>>,
}

#[derive(Debug, Default)]
pub(super) struct Asked {
    last: u64,
    open: HashMap<u64, Sender<Verdict>>,
}

/// Bytes or a build place that the manager has granted; dropping the value gives them back.
#[derive(Debug)]
struct FromManager {
    control: Arc<Control>,
    question: u64,
}

/// Sends a packet to the manager. If that fails, the process ends: the manager no longer knows what the process
/// waits for.
fn tell(control: &Control, packet: &FromTenant) {
    let Err(error) = control.send(packet, None, Room::Awaited) else { return };
    let manager_has_gone = matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::NotConnected
    );
    if !manager_has_gone {
        tracing::error!(%error, "A packet for the manager can't be sent: the tenant's process ends");
    }
    // The thread that receives finds the end of the socket. Later packets fail without a log line.
    control.hang_up();
}

impl Drop for FromManager {
    fn drop(&mut self) {
        tell(&self.control, &FromTenant::GiveBack { question: self.question });
    }
}

impl governor::HeldAbove for FromManager {}

impl builds::PlaceAbove for FromManager {}

impl governor::Above for AskManager {
    fn hold(&self, bytes: u64) -> Option<Box<dyn governor::HeldAbove>> {
        let (question, answer) = self.ask(|question| FromTenant::Hold { question, bytes });
        match answer.recv() {
            Ok(Verdict::Allowed) => Some(Box::new(FromManager { control: self.control.clone(), question })),
            _ => None,
        }
    }
}

impl builds::Above for AskManager {
    fn enter(&self) -> Box<dyn builds::PlaceAbove> {
        let (question, answer) = self.ask(|question| FromTenant::Build { question });
        // Without an answer the manager has gone, and this process ends too.
        let _ = answer.recv();
        Box::new(FromManager { control: self.control.clone(), question })
    }
}

impl Gate for AskManager {
    fn may_reconfigure(&self, question: &Question) -> GateAnswer {
        let (session, bitstream, origin) = (question.session.0, question.bitstream, question.origin);
        let (_, answer) = self.ask(|question| FromTenant::Ask { question, session, bitstream, origin });
        GateAnswer::Later(Box::new(move || {
            answer.recv().unwrap_or_else(|_| Verdict::Refused("the manager has gone".to_owned()))
        }))
    }
}

impl AskManager {
    /// Sends a question and returns its number and the channel for its answer.
    fn ask(&self, question: impl FnOnce(u64) -> FromTenant) -> (u64, Receiver<Verdict>) {
        let (sender, answer) = channel();
        let number = {
            let mut asked = self.asked.lock();
            asked.last += 1;
            let number = asked.last;
            asked.open.insert(number, sender);
            number
        };
        tell(&self.control, &question(number));
        (number, answer)
    }

    pub(super) fn answered(&self, question: u64, refused: Option<String>) {
        if let Some(sender) = self.asked.lock().open.remove(&question) {
            // The thread that asked may have gone.
            let _ = sender.send(refused.map_or(Verdict::Allowed, Verdict::Refused));
        }
    }
}

impl ToManager {
    pub(super) fn say(&self, packet: &FromTenant) {
        tell(&self.0, packet);
    }
}

impl Above for ToManager {
    fn max_bitstreams(&self) -> usize {
        MAX_BITSTREAMS
    }

    fn submit(&self, request: &TaskRequest) {
        let TaskRequest { session, task, demand, lanes, kind, bytes, .. } = request;
        let (session, task, kind) = (session.0, task.0, kind.map(|kind| kind.0));
        let lanes = match lanes {
            Lanes::Any => None,
            Lanes::Of(lanes) => Some(lanes.clone()),
        };
        let (demand, bytes) = (Wanted::from(demand), *bytes);
        self.say(&FromTenant::Submit { session, task, kind, demand, lanes, bytes });
    }

    fn finished(&self, task: TaskId) {
        self.say(&FromTenant::Finished { task: task.0, launches: self.2.outcome_of(task) });
    }

    fn load_failed(&self, task: TaskId) {
        self.say(&FromTenant::LoadFailed { task: task.0 });
    }

    fn cancelled(&self, session: SessionId) {
        self.say(&FromTenant::Cancelled { session: session.0 });
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::packets::{Received, ToTenant};
    use super::*;
    use fpga_core::bitstream::Digest;
    use std::time::Duration;

    #[test]
    fn a_packet_that_can_not_be_sent_ends_the_process_instead_of_leaving_a_session_to_wait() {
        let (manager, ours) = Control::pair().unwrap();
        let control = Control::of(ours);
        manager.set_timeout(Duration::from_secs(1)).unwrap();
        let demand = Wanted::Bitstreams(vec![Digest::from_bytes([1; 32]); 2 * MAX_BITSTREAMS]);
        tell(
            &control,
            &FromTenant::Submit { session: 1, task: 1, kind: None, demand, lanes: None, bytes: 0 },
        );
        assert!(matches!(manager.receive::<FromTenant>().unwrap(), Received::End));
        assert!(matches!(control.receive::<ToTenant>().unwrap(), Received::End));
    }
}
