use super::super::measures::{Estimate, Measures};
use super::*;
use crate::random::Random;
use fpga_cluster::pool::Bytes;
use fpga_cluster::pool::model::{Formula, ServerLoad};
use fpga_cluster::pool::policy::{
    Aging, Contention, Fit, NothingFits, Order, Patience, Preference, ResourceAwareRules,
};
use fpga_cluster::pool::sizes::Sizes;
use fpga_cluster::pool::thresholds::Thresholds;
use proptest::prelude::*;
use std::num::NonZeroU32;

fn cluster(slots: &[u32]) -> Cluster {
    Cluster {
        slots: slots.to_vec(),
        nic: 100.0,
        dma: 200.0,
        slot: f64::INFINITY,
        output_share: 1.0,
        transfer: Transfer::Pipelined,
    }
}

fn chunks(bytes: f64, engine: EngineOrder) -> Transfer {
    Transfer::Chunks { bytes, engine }
}

fn arrival(seconds: u64, home: u32, size: u64) -> Arrival {
    let tenant = TenantId::default();
    Arrival { at: seconds * 1_000_000_000, tenant, home: NodeIndex(home), size: Bytes(size) }
}

/// Start and end of each record in seconds, and its place.
fn times(records: &[Record]) -> Vec<(f64, f64, Place)> {
    records.iter().map(|one| (one.started as f64 / 1e9, one.ended as f64 / 1e9, one.place)).collect()
}

#[test]
fn a_tiny_cluster_worked_by_hand() {
    // Node 0 has a board with two slots. A local job of 500 B and a remote job of 300 B share its DMA engine of 200
    // B/s: 100 B/s each, which the network card allows too. The remote job ends at 3 s. The third job, which waited,
    // takes its slot and ends at 4 s. The local job then has 100 B left and all of the engine: it ends at 4.5 s.
    let jobs = [arrival(0, 0, 500), arrival(0, 1, 300), arrival(1, 1, 100)];
    let records = simulate(&cluster(&[2, 0]), PoolPolicy::fifo(), &jobs).unwrap();
    let expected = [(0.0, 4.5, Place::Local), (0.0, 3.0, Place::Remote), (3.0, 4.0, Place::Remote)];
    assert_eq!(times(&records), expected);
}

#[test]
fn chunks_go_there_are_processed_and_come_back_one_by_one() {
    let cluster = Cluster { transfer: chunks(100.0, EngineOrder::Shared), ..cluster(&[1, 0]) };
    // Each 100 B take 1 s to the board, 0.5 s in the engine and 1 s back. The last 50 B take half as long.
    let records = simulate(&cluster, PoolPolicy::fifo(), &[arrival(0, 1, 250)]).unwrap();
    assert_eq!(times(&records), [(0.0, 6.25, Place::Remote)]);
    let local = simulate(&cluster, PoolPolicy::fifo(), &[arrival(0, 0, 250)]).unwrap();
    assert_eq!(times(&local), [(0.0, 1.25, Place::Local)]);
}

#[test]
fn an_engine_that_serves_chunks_in_turn_ends_the_first_job_earlier_and_the_last_one_at_the_same_time() {
    // Two jobs of 200 B at the same engine of 200 B/s, in chunks of 100 B, 0.5 s each: in turn the first one has the
    // first and the third chunk, the second one the second and the fourth.
    let jobs = [arrival(0, 0, 200), arrival(0, 0, 200)];
    let ends = |engine| {
        let cluster = Cluster { transfer: chunks(100.0, engine), ..cluster(&[2]) };
        times(&simulate(&cluster, PoolPolicy::fifo(), &jobs).unwrap())
            .iter()
            .map(|time| time.1)
            .collect::<Vec<_>>()
    };
    assert_eq!(ends(EngineOrder::InTurn), [1.5, 2.0]);
    assert_eq!(ends(EngineOrder::Shared), [2.0, 2.0]);
    // A slot that takes 2 s for a chunk leaves the engine idle meanwhile.
    let slow = Cluster { transfer: chunks(100.0, EngineOrder::InTurn), slot: 50.0, ..cluster(&[2]) };
    let both = simulate(&slow, PoolPolicy::fifo(), &jobs).unwrap();
    assert_eq!(times(&both).iter().map(|time| time.1).collect::<Vec<_>>(), [4.0, 4.0]);
    // The network card is faster than the slot: 100 B take 1 s there, 2 s in the slot and 1 s back.
    let slow = Cluster { slots: vec![1, 0], ..slow };
    let remote = simulate(&slow, PoolPolicy::fifo(), &[arrival(0, 1, 100)]).unwrap();
    assert_eq!(times(&remote), [(0.0, 4.0, Place::Remote)]);
}

#[test]
fn a_job_that_can_never_run_is_told() {
    let error =
        simulate(&cluster(&[1, 0]), PoolPolicy::local_shortest_first(), &[arrival(0, 1, 1)]).unwrap_err();
    assert!(matches!(error, ScenarioError::Invalid(_)), "{error}");
}

/// Poisson arrivals at one node with one slot and 200 B/s.
fn queue(seed: u64, load: f64, sizes: &Sizes, count: u32) -> Vec<Arrival> {
    let mut random = Random::new(seed, 0);
    let interval = sizes.mean() / 200.0 / load;
    let mut at = 0.0;
    let draw = |_| {
        at += random.exponential(interval);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive")]
        let (nanos, size) = ((at * 1e9) as u64, sizes.quantile(random.unit()) as u64);
        Arrival { at: nanos, tenant: TenantId::default(), home: NodeIndex(0), size: Bytes(size) }
    };
    (0..count).map(draw).collect()
}

/// The mean completion time over the seeds.
fn act(policy: &PoolPolicy, load: f64, sizes: &Sizes) -> Estimate {
    let one = |seed| {
        let jobs = queue(seed, load, sizes, 10_000);
        Measures::of(&simulate(&cluster(&[1]), policy.clone(), &jobs).unwrap()).act
    };
    Estimate::of(&(1..=8).map(one).collect::<Vec<_>>())
}

#[test]
fn one_slot_is_the_queue_of_the_textbooks() {
    // Sizes are in the millions, so that rounding to whole bytes doesn't matter.
    let exponential = Sizes::exponential(0.0, 4e6).unwrap();
    let power = Sizes::power_law(1e6, 1e8, 1.5).unwrap();
    let queues = Thresholds::new(vec![2_000_000, 5_000_000, 20_000_000]).unwrap();
    let bounds = [2e6, 5e6, 2e7];
    for (sizes, load) in [(exponential, 0.5), (exponential, 0.8), (power, 0.6)] {
        let model =
            ServerLoad { jobs_per_second: load * 200.0 / sizes.mean(), bytes_per_second: 200.0, sizes };
        for (policy, bounds) in
            [(PoolPolicy::fifo(), &bounds[..0]), (PoolPolicy::workload_aware(queues.clone()), &bounds)]
        {
            let expected = model.mean_completion(bounds, Formula::Exact).unwrap();
            let got = act(&policy, load, &sizes);
            // Accept twice the interval, so that the test's eight comparisons don't fail by chance.
            let half = 2.0 * got.half.unwrap();
            assert!((got.mean - expected).abs() < half, "{sizes:?} {load}: {got:?}, expected {expected}");
            assert!(half < 0.25 * expected, "too wide to say anything: {got:?}");
        }
    }
}

#[test]
fn slots_that_share_an_engine_share_its_processor() {
    // With more slots than jobs, the engine is an M/M/1 queue with processor sharing. Its mean is that of one slot: 1
    // / (1 - ρ) service times.
    let sizes = Sizes::exponential(0.0, 4e6).unwrap();
    let run = |seed| {
        let jobs = queue(seed, 0.6, &sizes, 10_000);
        Measures::of(&simulate(&cluster(&[64]), PoolPolicy::fifo(), &jobs).unwrap()).act
    };
    let got = Estimate::of(&(1..=8).map(run).collect::<Vec<_>>());
    let expected = 4e6 / 200.0 / 0.4;
    assert!((got.mean - expected).abs() < 2.0 * got.half.unwrap(), "{got:?} {expected}");
}

fn any_transfer() -> impl Strategy<Value = Transfer> {
    let [shared, in_turn] = [EngineOrder::Shared, EngineOrder::InTurn].map(|engine| chunks(128.0, engine));
    prop::sample::select(vec![Transfer::Pipelined, shared, in_turn])
}

proptest! {
    #[test]
    fn every_run_keeps_the_laws_and_is_the_same_again(
        slots in prop::collection::vec(0_u32..4, 4), output in 0_u32..3, transfer in any_transfer(),
        which in 0_u32..5, contention in 1_u32..4, jobs in prop::collection::vec((0_u64..20, 0_u32..4, 1_u64..3000), 1..60),
    ) {
        prop_assume!(slots.iter().any(|slots| *slots > 0));
        let cluster = Cluster { output_share: f64::from(output) / 2.0, transfer, ..cluster(&slots) };
        let rules = ResourceAwareRules {
            contention: Contention::Jobs(NonZeroU32::new(contention).unwrap()),
            skips: 3,
            patience: Patience(1_000_000_000_000_000),
            preference: Preference::Order,
            nothing_fits: NothingFits::KeepIdle,
        };
        let policy = match which {
            0 => PoolPolicy::fifo(),
            1 => PoolPolicy::shortest_first(),
            2 => PoolPolicy::resource_aware(rules),
            3 => PoolPolicy { order: Order::Size, fit: Fit::ResourceAware(rules), aging: Aging::Never },
            _ => PoolPolicy::workload_and_resource_aware(Thresholds::new(vec![500, 1500]).unwrap(), rules),
        };
        let mut jobs: Vec<Arrival> = jobs.into_iter().map(|(at, home, size)| arrival(at, home, size)).collect();
        jobs.sort_by_key(|job| job.at);
        let records = simulate(&cluster, policy.clone(), &jobs).unwrap();
        prop_assert_eq!(&records, &simulate(&cluster, policy, &jobs).unwrap());
        for record in &records {
            // No job is faster than with the whole engine.
            let least = record.job.size.0 as f64 / cluster.dma;
            prop_assert!((record.ended - record.started) as f64 / 1e9 >= least * (1.0 - 1e-6) - 1e-8);
        }
    }
}
