//! What a program is told of a job that waits.

use crate::common::eventually;
use crate::common::real::RealBed;
use fpga_acc::{Request, Where};

#[test]
fn a_job_is_told_which_manager_has_no_file_of_its_bitstream() {
    let mut bed = RealBed::new(&[], &[]);
    bed.lose_file("sha-256");
    bed.add_manager(1);
    let pool = crate::pool(&bed);
    let opening = pool.open(Request::new("sha-256", 5));
    let status = opening.status();
    eventually("the reason names the node and the file", || {
        let text = "on node localhost has no file of the bitstream sha256:";
        matches!(&status.borrow().at, Where::Waiting(why) if why.contains(text))
    });
}
