//! Jobs that get all of their slots at the same time or none.

use crate::limit;
use crate::real::RealBed;
use fpga_acc::{Error, Request, Where, wait};
use fpga_pool_leases::messages::CancelCause;
use fpga_test_kit::until;
use ring::digest::{SHA256, digest};
use std::time::Duration;

fn hash(bytes: usize) -> Request {
    Request::new("sha-256", bytes as u64)
}

#[test]
fn two_programs_that_want_all_slots_of_two_boards_get_them_one_after_the_other() {
    let bed = RealBed::new(&[], &[2, 1]);
    let (one, other) = (super::pool(&bed), super::pool(&bed));
    let mut first = wait(one.open_many(&hash(64), 3), limit()).unwrap();
    let second = other.open_many(&hash(5), 3);
    let status = second.status().unwrap();
    until(
        "the second program waits for all slots",
        || matches!(&status.borrow().at, Where::Waiting(why) if why.contains("its bundle takes 3 slots at once")),
    );
    // Two slots become free, which is not enough, and a third one.
    for (index, mut job) in first.drain(1..).enumerate() {
        let input = vec![u8::try_from(index).unwrap(); 64];
        assert_eq!(wait(job.run(input.clone()), limit()).unwrap(), digest(&SHA256, &input).as_ref());
        wait(job.close(), limit()).unwrap();
    }
    until("two slots are free", || bed.slots("free") == 2.0);
    assert!(matches!(status.borrow().at, Where::Waiting(_)));
    drop(first);
    for mut job in wait(second, limit()).unwrap() {
        assert_eq!(wait(job.run(vec![7; 5]), limit()).unwrap(), digest(&SHA256, &[7; 5]).as_ref());
    }
    until("the slots are free", || bed.slots("free") == 3.0);
}

#[test]
fn jobs_that_are_not_opened_together_hold_nothing() {
    let bed = RealBed::new(&[], &[2]);
    let pool = super::pool(&bed);
    for count in [0, 257] {
        let refused = wait(pool.open_many(&hash(5), count), limit()).err();
        assert!(matches!(refused, Some(Error::Many { most: 256, .. })), "{refused:?}");
    }
    // One job of three is given up: all are.
    let mut three = pool.open_each(&hash(5), 3).unwrap();
    drop(three.pop());
    for opening in three {
        assert!(matches!(wait(opening, limit()), Err(Error::Cancelled)));
    }
    let unknown = wait(pool.open_many(&Request::new("sobel", 5), 2), limit()).err();
    assert!(matches!(unknown, Some(Error::UnknownAccelerator(_))), "{unknown:?}");
    let late = wait(pool.open_many(&hash(5), 3), Some(Duration::from_millis(200))).err();
    assert!(matches!(late, Some(Error::TimedOut(_))), "{late:?}");
    assert_eq!(wait(pool.open_many(&hash(5), 2), limit()).unwrap().len(), 2);
    assert_eq!(wait(pool.open_many(&hash(5), 1), limit()).unwrap().len(), 1);
}

#[test]
fn a_quota_refuses_all_jobs_at_once() {
    let tenants = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&tenants, "[default]\nheld-slots = 1\n").unwrap();
    let bed = RealBed::new(&["--tenants", tenants.path().to_str().unwrap()], &[2]);
    let refused = wait(super::pool(&bed).open_many(&hash(5), 2), limit()).err().unwrap();
    assert!(matches!(refused, Error::Refused { why: CancelCause::Quota, .. }), "{refused}");
    assert!(refused.to_string().contains("may hold 1 slots, and this needs 2"), "{refused}");
}
