//! What happens when managers, slots, and brokers go away in the middle.

use crate::bed::{Bed, Way};
use crate::cipher::{aes, encrypted};
use crate::limit;
use crate::managers::bytes;
use fpga_acc::{Error, Pool, Where, wait};
use fpga_test_kit::until;
use futures::io::AsyncWrite;
use std::io;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll};
use std::time::Duration;

/// Several pieces of 4 MB.
const BYTES: usize = 12_000_003;

/// The reference takes seconds where it is not optimised.
static INPUT: LazyLock<Vec<u8>> = LazyLock::new(|| bytes(BYTES));
static OUTPUT: LazyLock<Vec<u8>> = LazyLock::new(|| encrypted(&INPUT));

/// A writer that does something once, after so many bytes.
struct Then<F: FnMut()> {
    output: Vec<u8>,
    after: usize,
    act: Option<F>,
}

impl<F: FnMut() + Unpin> AsyncWrite for Then<F> {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.output.extend_from_slice(bytes);
        if self.output.len() >= self.after
            && let Some(mut act) = self.act.take()
        {
            act();
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Encrypts, and does something after the first piece. Returns the number of slots that the job had.
fn encrypt_and(pool: &Pool, act: impl FnMut() + Unpin) -> u32 {
    let mut job = wait(pool.open(aes(BYTES)), limit()).unwrap();
    let status = job.status();
    let mut writer = Then { output: Vec::new(), after: 4_000_000, act: Some(act) };
    wait(job.stream(&INPUT[..], &mut writer), limit()).unwrap();
    assert!(writer.act.is_none() && writer.output == *OUTPUT, "the output is not that of the reference");
    status.borrow().slots
}

#[test]
fn a_manager_that_is_killed_in_the_middle_costs_only_the_pieces_under_way() {
    for way in [Way::Socket, Way::Tcp] {
        let mut bed = Bed::new(2);
        let pool = bed.pool(way);
        let mut managers = std::mem::take(&mut bed.managers);
        // Which of the two has the job is not known: one of them is killed first, and then the other one if it was that.
        let slots = encrypt_and(&pool, || {
            let first = managers.swap_remove(0);
            drop(first);
        });
        // Before that, the broker may grant the killed manager's slot to the next job.
        until("the broker to notice the killed manager", || bed.broker().seen().slots == 1);
        let other = encrypt_and(&pool, || {});
        assert!(slots <= 2 && other == 1);
        let wants = bed.broker().seen().wants;
        if slots == 2 {
            // The job comes back with the same id and its ticket, for what is left.
            assert_eq!((wants[0].job, wants[0].ticket), (wants[1].job, None));
            assert_eq!(wants[1].ticket.map(|sealed| sealed.code), Some([9; 32]));
        }
    }
}

#[test]
fn a_job_whose_only_manager_is_killed_waits_and_goes_on_with_another_one() {
    let mut bed = Bed::new(1);
    let pool = bed.pool(Way::Socket);
    let mut manager = bed.managers.pop().unwrap();
    let mut job = wait(pool.open(aes(BYTES)), limit()).unwrap();
    let status = job.status();
    let working = std::thread::spawn(move || {
        let mut writer = Then { output: Vec::new(), after: 4_000_000, act: Some(move || manager.kill()) };
        wait(job.stream(&INPUT[..], &mut writer), limit()).unwrap();
        writer.output
    });
    let is_lost = || matches!(&status.borrow().at, Where::Waiting(_)) && status.borrow().slots == 1;
    until("the job waits again", is_lost);
    bed.add_manager();
    assert!(working.join().unwrap() == *OUTPUT, "the output is not that of the reference");
    assert_eq!(status.borrow().slots, 2);
    let wants = bed.broker().seen().wants;
    assert_eq!(wants.len(), 2);
    assert_eq!((wants[0].job, wants[1].ticket.map(|sealed| sealed.code)), (wants[1].job, Some([9; 32])));
    assert_ne!(wants[0].wanted, wants[1].wanted, "only the rest is wanted");
}

#[test]
fn a_recalled_job_gives_its_slot_up_and_goes_on_with_the_next_one() {
    let bed = Bed::new(1);
    let pool = bed.pool(Way::Socket);
    let slots = encrypt_and(&pool, || bed.broker().recall());
    assert!(slots <= 2);
    // A recall that comes when nothing is under way.
    let input = bytes(4_000_000 + 5);
    let mut job = wait(pool.open(aes(input.len())), limit()).unwrap();
    let mut status = job.status();
    let first = wait(job.run(input[..4_000_000].to_vec()), limit()).unwrap();
    bed.broker().recall();
    let again =
        async { status.wait_for(|status| status.slots == 2).await.map(drop).map_err(|_| Error::Lost) };
    wait(again, limit()).unwrap();
    let second = wait(job.run(input[4_000_000..].to_vec()), limit()).unwrap();
    assert!([first, second].concat() == encrypted(&input), "the state went along");
}

#[test]
fn a_cancelled_call_returns_at_once_and_its_slot_becomes_free() {
    let bed = Bed::new(1);
    let pool = bed.pool(Way::Socket);
    let mut job = wait(pool.open(aes(1 << 40)), limit()).unwrap();
    let short = Some(Duration::from_millis(100));
    let cut = wait(job.stream(futures::io::repeat(7), futures::io::sink()), short);
    assert!(matches!(cut, Err(Error::TimedOut(_))), "{cut:?}");
    let after = wait(job.run(vec![1]), limit());
    assert!(matches!(after, Err(Error::Cancelled)), "{after:?}");
    until("the slot is free", || bed.broker().seen().leased == 0);
    // The slot takes the next job.
    encrypt_and(&pool, || {});
}

#[test]
fn a_job_that_waits_says_why_and_leaves_the_queue_when_it_is_given_up() {
    let bed = Bed::new(1);
    let pool = bed.pool(Way::Socket);
    let holder = wait(pool.open(aes(5)), limit()).unwrap();
    let waiting = pool.open(aes(5));
    let status = waiting.status();
    let why = || matches!(&status.borrow().at, Where::Waiting(why) if why.contains("all slots are taken"));
    until("the job says why it waits", why);
    let cut = wait(waiting, Some(Duration::from_millis(20)));
    assert!(matches!(cut, Err(Error::TimedOut(_))));
    until("the broker hears", || bed.broker().seen().cancelled.len() == 1);
    drop(holder);
    until("the slot is free", || bed.broker().seen().leased == 0);
}

#[test]
fn jobs_go_on_while_no_broker_is_there_and_wait_for_the_next_one() {
    let mut bed = Bed::new(1);
    let pool = bed.pool(Way::Socket);
    let input = bytes(4_000_000 + 5);
    let mut job = wait(pool.open(aes(input.len())), limit()).unwrap();
    let first = wait(job.run(input[..4_000_000].to_vec()), limit()).unwrap();
    bed.kill_broker();
    // A job that has a slot needs no broker.
    let second = wait(job.run(input[4_000_000..].to_vec()), limit()).unwrap();
    assert!([first, second].concat() == encrypted(&input));
    let waiting = pool.open(aes(5));
    let status = waiting.status();
    let why = || matches!(&status.borrow().at, Where::Waiting(why) if why.contains("no broker"));
    until("the job says that no broker answers", why);
    bed.start_broker();
    wait(waiting, limit()).unwrap();
}
