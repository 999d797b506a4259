//! Demand for a function: requests per second and requests in flight, both averaged over the last minutes.
//!
//! The averages fade exponentially, so that they need no history. Demand in flight is what [`crate::replicas`] hands
//! replicas out by: arrivals times duration (Little's law), with what requests wait.

use fpga_core::units::{Millis, MonotonicTime};

/// Time in which a past second loses all but 1/e of its weight, for demand over minutes.
pub const MEMORY: Millis = Millis(300_000);

/// The same for demand of the moment, by which an autoscaler follows a load within its own period, mostly 15 s.
pub const SHORT_MEMORY: Millis = Millis(15_000);

/// A mean as one of several observers has it, each of which sees a part of the requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PartialMean {
    /// The mean over the time for which the observer has looked.
    pub mean: f64,
    /// Weight of that time in the average, from 0 to 1: near 1 for an observer that has looked for much longer than the
    /// average's memory.
    pub seen: f64,
}

/// The mean of what all observers see together.
///
/// A mean alone says nothing of the time that it is over: while an observer's requests go to a new one, the old one's mean
/// fades, the new one's is high at once, and their sum is up to twice the truth. So each part counts as long as it was
/// looked at, and the sum is over the time of the observer that has looked for the longest.
///
/// Requests of an observer that is gone are unknown: until they have faded from the others' memory, the mean is too low.
#[must_use]
pub fn mean_of_all(parts: &[PartialMean]) -> f64 {
    let longest = parts.iter().map(|part| part.seen).fold(0.0, f64::max);
    if longest <= 0.0 {
        return parts.iter().map(|part| part.mean).sum();
    }
    parts.iter().map(|part| part.mean * part.seen).sum::<f64>() / longest
}

/// Demand for one function.
#[derive(Debug, Clone, Copy)]
pub struct Demand {
    memory: Millis,
    in_flight: usize,
    at: MonotonicTime,
    /// Weight of the time since the beginning, which a long time brings near 1.
    weight: f64,
    /// Weighted requests in flight.
    mean_in_flight: f64,
    /// Weighted arrivals per second.
    rate: f64,
}

impl Demand {
    /// Demand over minutes, with no request until `now`.
    #[must_use]
    pub fn new(now: MonotonicTime) -> Self {
        Self::over(MEMORY, now)
    }

    /// Demand with another memory, at least a millisecond, and no request until `now`.
    #[must_use]
    pub fn over(memory: Millis, now: MonotonicTime) -> Self {
        Self {
            memory: memory.max(Millis(1)),
            in_flight: 0,
            at: now,
            weight: 0.0,
            mean_in_flight: 0.0,
            rate: 0.0,
        }
    }

    /// Records that a request has arrived.
    pub fn arrive(&mut self, now: MonotonicTime) {
        self.go_to(now);
        self.rate += 1e3 / self.memory.0 as f64;
    }

    /// Records how many requests are in flight from now on.
    pub fn set_in_flight(&mut self, in_flight: usize, now: MonotonicTime) {
        self.go_to(now);
        self.in_flight = in_flight;
    }

    /// Mean number of requests in flight.
    #[must_use]
    pub fn mean_in_flight(mut self, now: MonotonicTime) -> f64 {
        self.go_to(now);
        if self.weight > 0.0 { self.mean_in_flight / self.weight } else { self.in_flight as f64 }
    }

    /// Requests per second. In the first second after the beginning it is 0.
    #[must_use]
    pub fn per_second(mut self, now: MonotonicTime) -> f64 {
        self.go_to(now);
        let one_second = -libm::expm1(-1e3 / self.memory.0 as f64);
        if self.weight >= one_second { self.rate / self.weight } else { 0.0 }
    }

    /// Weight of the time since the beginning in both means, as [`PartialMean::seen`].
    #[must_use]
    pub fn seen(mut self, now: MonotonicTime) -> f64 {
        self.go_to(now);
        self.weight
    }

    fn go_to(&mut self, now: MonotonicTime) {
        let share = -((now - self.at).0 as f64) / self.memory.0 as f64;
        self.at = self.at.max(now);
        // Past times keep `kept` of their weight, and the time since then gets the rest.
        let (kept, new) = (libm::exp(share), -libm::expm1(share));
        self.weight = self.weight * kept + new;
        self.mean_in_flight = self.mean_in_flight * kept + self.in_flight as f64 * new;
        self.rate *= kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const T0: MonotonicTime = MonotonicTime(1_000_000);

    /// `per_second` requests a second for `seconds`, each of which takes `takes`.
    fn steady(per_second: u64, seconds: u64, takes: Millis) -> (Demand, MonotonicTime) {
        let mut demand = Demand::new(T0);
        let mut events: Vec<(MonotonicTime, bool)> = (0..per_second * seconds)
            .flat_map(|number| {
                let begin = T0 + Millis(number * 1_000 / per_second);
                [(begin, true), (begin + takes, false)]
            })
            .collect();
        events.sort_unstable();
        let last = T0 + Millis::from_secs(seconds);
        let mut in_flight = 0;
        for (at, begins) in events.into_iter().filter(|(at, _)| *at <= last) {
            if begins {
                demand.arrive(at);
                in_flight += 1;
            } else {
                in_flight -= 1;
            }
            demand.set_in_flight(in_flight, at);
        }
        (demand, last)
    }

    #[test]
    fn a_steady_demand_is_told_as_it_is_after_seconds_and_after_hours() {
        for seconds in [20, 7_200] {
            let (demand, now) = steady(10, seconds, Millis(500));
            assert!(
                (demand.per_second(now) - 10.0).abs() < 0.6,
                "{} after {seconds}",
                demand.per_second(now)
            );
            let in_flight = demand.mean_in_flight(now);
            assert!((in_flight - 5.0).abs() < 0.3, "Little's law: {in_flight} after {seconds}");
        }
    }

    #[test]
    fn demand_fades_when_no_request_comes() {
        let (mut demand, now) = steady(10, 3_600, Millis(500));
        demand.set_in_flight(0, now);
        let later = now + MEMORY;
        assert!((demand.per_second(later) / demand.per_second(now) - 0.368).abs() < 0.01);
        assert!((demand.mean_in_flight(later) / demand.mean_in_flight(now) - 0.368).abs() < 0.01);
        assert!(demand.mean_in_flight(now + Millis::from_secs(86_400)) < 1e-9);
    }

    #[test]
    fn a_short_memory_follows_a_burst_that_a_long_one_hardly_sees() {
        let burst = T0 + Millis::from_secs(3_600);
        let after = |memory| {
            let mut demand = Demand::over(memory, T0);
            demand.set_in_flight(10, burst);
            demand.mean_in_flight(burst + Millis::from_secs(30))
        };
        assert!(after(SHORT_MEMORY) > 8.0 && after(MEMORY) < 2.0);
    }

    #[test]
    fn what_is_in_flight_counts_at_once_and_a_burst_is_no_rate() {
        let mut demand = Demand::new(T0);
        (0..5).for_each(|_| demand.arrive(T0));
        demand.set_in_flight(5, T0);
        assert_eq!((demand.mean_in_flight(T0), demand.per_second(T0)), (5.0, 0.0));
    }

    /// Requests per second and in flight as two observers have them together, of which the second takes over from the
    /// first at `handover`, and has looked since `second_begins`.
    fn of_two(second_begins: MonotonicTime, handover: MonotonicTime, now: MonotonicTime) -> (f64, f64) {
        let (mut first, mut second) =
            (Demand::over(SHORT_MEMORY, T0), Demand::over(SHORT_MEMORY, second_begins));
        let mut at = T0;
        while at < now {
            let who = if at < handover { &mut first } else { &mut second };
            who.arrive(at);
            who.set_in_flight(4, at);
            if at >= handover {
                first.set_in_flight(0, at);
            }
            at += Millis(100);
        }
        let of = |mean: fn(Demand, MonotonicTime) -> f64| {
            mean_of_all(&[first, second].map(|one| PartialMean { mean: mean(one, now), seen: one.seen(now) }))
        };
        (of(Demand::per_second), of(Demand::mean_in_flight))
    }

    #[test]
    fn requests_that_go_to_another_observer_count_once() {
        let handover = T0 + Millis::from_secs(300);
        for (begins, what) in [(handover, "a new one"), (T0, "one that stood by")] {
            for seconds in [1, 5, 15, 60] {
                let (rate, in_flight) = of_two(begins, handover, handover + Millis::from_secs(seconds));
                assert!((rate - 10.0).abs() < 0.6, "{what} after {seconds} s: {rate} per second");
                assert!((in_flight - 4.0).abs() < 0.1, "{what} after {seconds} s: {in_flight} in flight");
            }
        }
        let just_begun = PartialMean { mean: 3.0, seen: 0.0 };
        assert_eq!((mean_of_all(&[just_begun, just_begun]), mean_of_all(&[])), (6.0, 0.0));
    }

    proptest! {
        #[test]
        fn demand_is_never_negative_nor_more_than_there_was(
            steps in prop::collection::vec((0_usize..9, 0_u64..100_000), 0..100),
        ) {
            let (mut demand, mut now, mut most) = (Demand::new(T0), T0, 0);
            for (in_flight, later) in steps {
                now += Millis(later);
                demand.arrive(now);
                demand.set_in_flight(in_flight, now);
                most = most.max(in_flight);
                let mean = demand.mean_in_flight(now);
                prop_assert!((-1e-9..=most as f64 + 1e-9).contains(&mean), "{mean} of {most}");
                prop_assert!(demand.per_second(now) >= 0.0);
            }
        }
    }
}
