use super::*;
use crate::reporting::Reports;
use fpga_board::dispatch::policy::DispatchRules;
use fpga_board::dispatch::{Lanes, TaskRequest};
use fpga_board::slots::{Demand, OtherKernels};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A registry that allows bitstreams whose digest begins with an even byte, decides late, and counts its
/// questions.
#[derive(Debug, Default)]
struct Registry {
    asked: AtomicUsize,
}

impl Gate for Registry {
    fn may_reconfigure(&self, question: &Question) -> GateAnswer {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let even = question.bitstream.as_bytes()[0].is_multiple_of(2);
        GateAnswer::Later(Box::new(
            move || {
                if even { Verdict::Allowed } else { Verdict::Refused("odd".to_owned()) }
            },
        ))
    }
}

fn digest(n: u8) -> Digest {
    Digest::from_bytes([n; 32])
}

fn asker(gate: Arc<dyn Gate>) -> Asker {
    let dispatcher = Arc::new(Dispatcher::new(NonZeroU32::MIN, DispatchRules::default(), Reports::off()));
    let session = dispatcher.new_session();
    Asker {
        gate,
        dispatcher,
        catalogue: Arc::default(),
        metrics: Metrics::default(),
        device: "dm0".to_owned(),
        session,
        tenant: Tenant::new("one"),
        token: None,
        allowed: Arc::default(),
    }
}

fn task(asker: &Asker, session: SessionId, bitstream: u8) -> TaskRequest {
    TaskRequest {
        session,
        task: asker.dispatcher.new_task(),
        tenant: Tenant::new("two"),
        lanes: Lanes::Any,
        kind: None,
        bytes: 0,
        demand: Demand::of([digest(bitstream)], OtherKernels::None),
    }
}

#[test]
fn what_is_resident_is_free_to_all_and_the_rest_is_refused_by_never() {
    let asker = asker(Arc::new(MayReconfigure::Never));
    asker.dispatcher.preload([digest(1)]).unwrap();
    asker.ask_for_source(&[digest(1)]).unwrap();
    let refusal = asker.ask_for_source(&[digest(1), digest(2)]).unwrap_err().to_string();
    assert!(refusal.contains("dm0") && refusal.contains("--may-reconfigure=never"), "{refusal}");
    assert_eq!(asker.metrics.reconfiguration_refusals.get(), 1);
}

#[test]
fn when_idle_goes_by_what_others_run_and_not_by_the_sessions_own_kernels() {
    let asker = asker(Arc::new(MayReconfigure::WhenIdle));
    let own = asker.dispatcher.submit(task(&asker, asker.session, 1)).unwrap().unwrap();
    asker.ask_for_source(&[digest(2)]).unwrap();
    asker.dispatcher.finished(own.task);
    let other = asker.dispatcher.new_session();
    let running = asker.dispatcher.submit(task(&asker, other, 3)).unwrap().unwrap();
    asker.ask_for_source(&[digest(4)]).unwrap_err();
    asker.ask_for_source(&[digest(2)]).unwrap();
    asker.dispatcher.finished(running.task);
    asker.ask_for_source(&[digest(4)]).unwrap();
}

#[test]
fn a_registry_is_asked_once_per_bitstream_and_may_take_its_time() {
    let registry = Arc::new(Registry::default());
    let asker = asker(registry.clone());
    let Asked::Later(later) = asker.ask(&[digest(2), digest(4)]) else { panic!("it knew at once") };
    std::thread::spawn(later).join().unwrap().unwrap();
    assert!(matches!(asker.ask(&[digest(4), digest(2)]), Asked::Decided(Ok(()))));
    assert_eq!(registry.asked.load(Ordering::Relaxed), 2);
    let refusal = asker.ask_for_source(&[digest(3)]).unwrap_err().to_string();
    assert!(refusal.ends_with("odd"), "{refusal}");
}
