//! The gate of a leased session: one bitstream, which the slot has already.

use fpga_core::bitstream::Digest;
use fpga_session::gate::{Gate, GateAnswer, Question, Verdict};

/// Allows the bitstream of a lease and no other.
#[derive(Debug)]
pub(super) struct LeaseGate(pub(super) Digest);

impl Gate for LeaseGate {
    fn may_reconfigure(&self, question: &Question) -> GateAnswer {
        GateAnswer::Now(if question.bitstream == self.0 {
            Verdict::Allowed
        } else {
            Verdict::Refused(format!(
                "its lease is for the bitstream {} alone; end it, and open another job",
                self.0
            ))
        })
    }
}
