//! What a program is told of a job that waits.

use crate::real::RealBed;
use fpga_acc::{Request, Where};
use fpga_test_kit::until;

#[test]
fn a_job_is_told_which_manager_has_no_file_of_its_bitstream() {
    let mut bed = RealBed::new(&[], &[]);
    std::fs::remove_file(bed.library.path().join("sha-256.bitstream")).unwrap();
    bed.add_manager(1);
    let pool = super::pool(&bed);
    let opening = pool.open(Request::new("sha-256", 5));
    let status = opening.status();
    until("the reason names the node and the file", || {
        let text = "on node localhost has no file of the bitstream sha256:";
        matches!(&status.borrow().at, Where::Waiting(why) if why.contains(text))
    });
}
