//! Limits how many builds run at a time, in all and for one tenant. Waiting builds are taken from the tenants
//! in turn.
//!
//! A compiler takes a processor and hundreds of MiB, and a source can make it run for ever. One tenant gets
//! one place less than there are, so that its builds never take all places.

use fpga_board::dispatch::Tenant;
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::num::NonZeroUsize;
use std::sync::Arc;

/// Places that another process gives: a tenant process asks the manager, which counts the builds of all
/// tenants.
pub trait Above: std::fmt::Debug + Send + Sync {
    /// Waits for a place, on the calling thread. Dropping the value frees the place.
    fn enter(&self) -> Box<dyn PlaceAbove>;
}

/// A place in the other process, until the value is dropped.
pub trait PlaceAbove: std::fmt::Debug + Send {}

/// The places for builds. Clones share them.
#[derive(Debug, Clone)]
pub struct Builds(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    most: usize,
    most_of_tenant: usize,
    above: Option<Box<dyn Above>>,
    state: Mutex<State>,
    granted: Condvar,
}

#[derive(Debug, Default)]
struct State {
    running: HashMap<Tenant, usize>,
    all_running: usize,
    /// Waiting builds by tenant, and the order in which the tenants get places.
    waiting: HashMap<Tenant, VecDeque<Number>>,
    turns: VecDeque<Tenant>,
    /// Builds that may run and whose threads have not noticed yet.
    granted: BTreeSet<Number>,
    last: Number,
}

/// Number of a build.
type Number = u64;

/// A build's place; dropping it frees the place.
#[derive(Debug)]
pub struct BuildPermit {
    inner: Arc<Inner>,
    tenant: Tenant,
    above: Option<Box<dyn PlaceAbove>>,
}

impl Builds {
    /// At most `most` builds at a time, and one less, but at least one, of one tenant.
    #[must_use]
    pub fn at_most(most: NonZeroUsize) -> Self {
        let most_of_tenant = (most.get() - 1).max(1);
        Self::with(most.get(), most_of_tenant, None)
    }

    /// One build more than the process has processors.
    #[must_use]
    pub fn by_processors() -> Self {
        let processors = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        Self::at_most(processors.saturating_add(1))
    }

    /// At most `most` builds at a time, all of one tenant, and each only when `above` has a place too.
    #[must_use]
    pub fn below(above: Box<dyn Above>, most: usize) -> Self {
        Self::with(most.max(1), most.max(1), Some(above))
    }

    /// Most builds of one tenant at a time.
    #[must_use]
    pub fn most_of_tenant(&self) -> usize {
        self.0.most_of_tenant
    }

    /// Number of builds that run, and number of builds that wait for a place.
    #[must_use]
    pub fn count(&self) -> (usize, usize) {
        let state = self.0.state.lock();
        (state.all_running, state.waiting.values().map(VecDeque::len).sum())
    }

    /// Whether builds of other tenants wait for a place.
    #[must_use]
    pub fn are_wanted_by_others(&self, tenant: &Tenant) -> bool {
        self.0.state.lock().waiting.keys().any(|waits| waits != tenant)
    }

    fn with(most: usize, most_of_tenant: usize, above: Option<Box<dyn Above>>) -> Self {
        let (state, granted) = (Mutex::default(), Condvar::new());
        Self(Arc::new(Inner { most, most_of_tenant, above, state, granted }))
    }

    /// Waits for a place, on the calling thread.
    #[must_use]
    pub fn enter(&self, tenant: &Tenant) -> BuildPermit {
        let inner = &self.0;
        let mut state = inner.state.lock();
        state.last += 1;
        let number = state.last;
        let of_tenant = state.waiting.entry(tenant.clone()).or_default();
        of_tenant.push_back(number);
        if of_tenant.len() == 1 {
            state.turns.push_back(tenant.clone());
        }
        inner.grant(&mut state);
        while !state.granted.remove(&number) {
            inner.granted.wait(&mut state);
        }
        drop(state);
        let mut place = BuildPermit { inner: inner.clone(), tenant: tenant.clone(), above: None };
        place.above = inner.above.as_ref().map(|above| above.enter());
        place
    }
}

impl Inner {
    /// Gives free places to waiting builds, one of each tenant in turn.
    fn grant(&self, state: &mut State) {
        while state.all_running < self.most {
            let may = |tenant: &Tenant| {
                state.running.get(tenant).is_none_or(|running| *running < self.most_of_tenant)
            };
            let Some(at) = state.turns.iter().position(may) else { break };
            let Some(tenant) = state.turns.remove(at) else { break };
            let Some(waiting) = state.waiting.get_mut(&tenant) else { continue };
            if let Some(number) = waiting.pop_front() {
                state.granted.insert(number);
                state.all_running += 1;
                *state.running.entry(tenant.clone()).or_default() += 1;
            }
            if waiting.is_empty() {
                state.waiting.remove(&tenant);
            } else {
                state.turns.push_back(tenant);
            }
        }
        self.granted.notify_all();
    }
}

impl Drop for BuildPermit {
    fn drop(&mut self) {
        drop(self.above.take());
        let mut state = self.inner.state.lock();
        state.all_running -= 1;
        if let Some(running) = state.running.get_mut(&self.tenant) {
            *running -= 1;
            if *running == 0 {
                state.running.remove(&self.tenant);
            }
        }
        self.inner.grant(&mut state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread;
    use std::time::Duration;

    const DEADLINE: Duration = Duration::from_secs(30);

    /// Waits for a place on a thread of its own, sends the tenant's name when it has it, and keeps it until
    /// the returned sender is used or dropped.
    fn build(builds: &Builds, tenant: &'static str, begun: &Sender<&'static str>) -> Sender<()> {
        let (end, ended) = channel::<()>();
        let (waiting, builds, begun) = (builds.waiting(), builds.clone(), begun.clone());
        let of_thread = builds.clone();
        thread::spawn(move || {
            let place = of_thread.enter(&Tenant::new(tenant));
            begun.send(tenant).unwrap();
            let _ = ended.recv();
            drop(place);
        });
        // The build waits or has its place; later builds come behind it.
        while builds.waiting() == waiting {
            thread::yield_now();
        }
        end
    }

    impl Builds {
        /// Number of builds that have asked for a place.
        fn waiting(&self) -> u64 {
            self.0.state.lock().last
        }
    }

    fn next(begun: &Receiver<&'static str>) -> &'static str {
        begun.recv_timeout(DEADLINE).unwrap()
    }

    #[test]
    fn builds_of_one_tenant_leave_a_place_to_the_others_and_those_that_wait_take_turns() {
        let builds = Builds::at_most(NonZeroUsize::new(3).unwrap());
        let (begun, begins) = channel();
        // Two run and two wait, and none ends by itself.
        let mut hostile: Vec<_> = (0..4).map(|_| build(&builds, "hostile", &begun)).collect();
        assert_eq!([next(&begins), next(&begins)], ["hostile"; 2]);
        let alice: Vec<_> = (0..2).map(|_| build(&builds, "alice", &begun)).collect();
        let _bob = build(&builds, "bob", &begun);
        assert_eq!(next(&begins), "alice");
        assert!(begins.try_recv().is_err(), "three run");
        drop(hostile.remove(0));
        assert_eq!(next(&begins), "hostile", "the turn of who waited longest");
        drop(alice);
        let mut last = [next(&begins), next(&begins)];
        last.sort_unstable();
        assert_eq!(last, ["alice", "bob"]);
        drop(hostile);
    }

    /// A process above that has as many places as messages arrive, and the count of those in use.
    #[derive(Debug)]
    struct Scarce(Mutex<Receiver<()>>, Arc<()>);

    impl Above for Scarce {
        fn enter(&self) -> Box<dyn PlaceAbove> {
            self.0.lock().recv().unwrap();
            Box::new(self.1.clone())
        }
    }

    impl PlaceAbove for Arc<()> {}

    #[test]
    fn a_process_of_one_tenant_builds_where_it_has_a_place_and_the_one_above_has_one_for_it() {
        let (places, above) = channel();
        let in_use = Arc::new(());
        let builds = Builds::below(Box::new(Scarce(Mutex::new(above), in_use.clone())), 2);
        let (begun, begins) = channel();
        let mut all: Vec<_> = (0..3).map(|_| build(&builds, "alice", &begun)).collect();
        assert!(begins.try_recv().is_err(), "the one above has given nothing");
        places.send(()).unwrap();
        next(&begins);
        places.send(()).unwrap();
        places.send(()).unwrap();
        next(&begins);
        assert!(begins.try_recv().is_err(), "two run, however many places there are above");
        drop(all.drain(..2));
        next(&begins);
        drop(all);
        while Arc::strong_count(&in_use) > 2 {
            thread::yield_now();
        }
    }
}
