//! Forks, for tests.
#![allow(unsafe_code)]

/// Time after which a child that hangs is killed, in seconds.
const DEADLINE_S: u32 = 30;

/// Whether `body` answers true in a forked child. The other tests' threads don't exist there, so `body` must not take
/// locks that they might hold.
pub(crate) fn succeeds_in_child(body: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child runs only `body`, with a deadline by SIGALRM, and leaves by _exit, without other code of the
    // test harness.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above.
        unsafe {
            libc::alarm(DEADLINE_S);
            libc::_exit(if body() { 0 } else { 1 });
        }
    }
    let mut status = -1;
    // SAFETY: `status` outlives the call.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    waited == child && status == 0
}
