use super::Scenario;
use super::engine::Engine;
use super::served::SlotStart;
use crate::outcome::{Format, Outcome};
use crate::random::Random;
use crate::time::{Micros, SimTime};
use crate::trace::{Origin, Request, Trace};
use proptest::prelude::*;
use std::path::PathBuf;

fn scenario(text: &str) -> Scenario {
    toml::from_str(&format!("kind = \"placement\"\n{text}")).unwrap()
}

fn simulate(scenario: &Scenario, requests: Vec<Request>) -> Outcome {
    let mut trace = Trace::of("test", requests.into_iter());
    Engine::new(scenario).unwrap().run(&mut trace).unwrap()
}

fn get(outcome: &Outcome, name: &str) -> f64 {
    outcome.metric(name).unwrap_or_else(|| panic!("no metric {name}"))
}

fn request(at: f64, duration: f64, function: u32) -> Request {
    Request { at: SimTime::from_secs(at), duration: Micros::from_secs(duration), function, app: function }
}

#[test]
fn a_tiny_scenario_comes_out_as_worked_by_hand() {
    let scenario =
        scenario("[cluster]\nnodes = 1\nslots = 2\nreconfiguration_ms = 1000\n[workload]\np = 1\nr = 1\n");
    // Slot A: function 0 loads from 0 to 1 and runs from 1 to 3. Slot B: function 1 loads from 0.5 to 1.5 and runs
    // until 4.5. Function 2 arrives at 1 and waits for A until 3, loads, and runs from 4 to 5. Function 0 arrives at
    // 6; function 2 has taken A. B (last used at 4.5) is evicted before A (last used at 5): loads, and runs from 7 to
    // 8. Function 2 at 9 is still in A and loads nothing.
    let requests = vec![
        request(0.0, 2.0, 0),
        request(0.5, 3.0, 1),
        request(1.0, 1.0, 2),
        request(6.0, 1.0, 0),
        request(9.0, 1.0, 2),
    ];
    let outcome = simulate(&scenario, requests);
    assert_eq!(get(&outcome, "cold_starts"), 4.0);
    assert_eq!(get(&outcome, "cold_share_of_all"), 0.8);
    assert_eq!(get(&outcome, "wait_most_ms"), 2_000.0);
    assert_eq!(get(&outcome, "wait_mean_ms"), 400.0);
    let used = 3.0 + 4.0 + 2.0 + 2.0 + 1.0;
    assert!((get(&outcome, "utilisation") - used / 20.0).abs() < 1e-9);
}

#[test]
fn the_first_rows_of_the_shipped_sample_come_out_as_worked_by_hand() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/traces/azure-functions-2021-sample-200.csv");
    let all: Vec<Request> = Trace::open(&Origin::Azure2021(PathBuf::from(path))).unwrap().collect();
    // With all functions on one node and one slot per function, only the first request of a function is cold.
    let functions = all.iter().map(|request| request.function).max().unwrap() + 1;
    let text = format!(
        "[cluster]\nnodes = 1\nslots = {functions}\n[workload]\np = 1\nm_ms = 0\nr = 0.5\n[slots]\nrequests = \"serial\"\n"
    );
    let outcome = simulate(&scenario(&text), all.clone());
    assert_eq!(get(&outcome, "requests"), 199.0);
    assert_eq!(get(&outcome, "cold_starts"), f64::from(functions));
    // With one slot, each change from one function to another is a cold start.
    let changes = 1 + all.windows(2).filter(|pair| pair[0].function != pair[1].function).count();
    let one = scenario(
        "[cluster]\nnodes = 1\nslots = 1\n[workload]\np = 1\nm_ms = 0\nr = 0.5\n[slots]\nrequests = \"serial\"\n",
    );
    assert_eq!(get(&simulate(&one, all), "cold_starts"), changes as f64);
}

#[test]
fn the_first_seven_requests_of_the_sample_on_two_slots_come_out_as_worked_by_hand() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/traces/azure-functions-2021-sample-200.csv");
    let requests = Trace::open(&Origin::Azure2021(PathBuf::from(path))).unwrap().take(7).collect();
    let scenario = scenario(
        "[cluster]\nnodes = 1\nslots = 2\nreconfiguration_ms = 1000\n[workload]\np = 1\nm_ms = 0\nr = 1\n",
    );
    // Seven functions, each loads for 1 s. Start and duration in the file, in seconds; then slot, begin, end, wait:
    //   0.001491   0.078   A   0.001491   1.079491    0
    //   0.003860  57.154   B   0.003860  58.157860    0
    //   0.005478  59.125   A   1.079491  61.204491    1.074013
    //   0.016541   6.236   B  58.157860  65.393860   58.141319
    //   0.016824   0.050   A  61.204491  62.254491   61.187667
    //   0.021991   0.078   A  62.254491  63.332491   62.232500
    //   0.022979   2.229   A  63.332491  66.561491   63.309512
    let outcome = simulate(&scenario, requests);
    let about = |name: &str, value: f64| {
        let is = get(&outcome, name);
        assert!((is - value).abs() < 1e-5 * value, "{name}: {is}, by hand {value}");
    };
    about("board_requests", 7.0);
    about("cold_starts", 7.0);
    about("wait_most_ms", 63_309.512);
    about("wait_mean_ms", 245_945.011 / 7.0);
    about("utilisation", 131.95 / (2.0 * 66.561_491));
}

#[test]
fn requests_that_come_out_of_order_stop_the_run() {
    let scenario = scenario("");
    let mut trace = Trace::of("test", vec![request(2.0, 1.0, 0), request(1.0, 1.0, 0)].into_iter());
    let error = Engine::new(&scenario).unwrap().run(&mut trace).unwrap_err().to_string();
    assert!(error.contains("comes after"), "{error}");
}

/// The mean wait over runs with these service times, and half the width of its 99 % confidence interval.
fn waits(rate: f64, service: impl Fn(&mut Random) -> f64) -> (f64, f64) {
    let single = scenario(
        "[cluster]\nnodes = 1\nslots = 1\nreconfiguration_ms = 0\n[workload]\np = 1\nm_ms = 0\nr = 1\n",
    );
    let runs: Vec<f64> = (0..12)
        .map(|seed| {
            let mut random = Random::new(seed, 0);
            let mut at = 0.0;
            let requests = (0..20_000)
                .map(|_| {
                    at += random.exponential(1.0 / rate);
                    request(at, service(&mut random), 0)
                })
                .collect();
            get(&simulate(&single, requests), "wait_mean_ms") / 1e3
        })
        .collect();
    let mean = runs.iter().sum::<f64>() / runs.len() as f64;
    let variance = runs.iter().map(|run| (run - mean).powi(2)).sum::<f64>() / (runs.len() - 1) as f64;
    // Student's t for 11 degrees of freedom.
    (mean, 3.106 * (variance / runs.len() as f64).sqrt())
}

#[test]
fn one_slot_with_random_arrivals_and_exponential_times_is_the_closed_form_of_m_m_1() {
    let (mean, half) = waits(0.6, |random| random.exponential(1.0));
    let wait = 0.6 / (1.0 - 0.6);
    assert!((mean - wait).abs() <= half && half < 0.2, "{mean} ± {half}, closed form {wait}");
}

#[test]
fn one_slot_with_random_arrivals_and_any_times_is_the_closed_form_of_m_g_1() {
    // Service times are uniform from 0 to 2: mean 1, second moment 4/3.
    let (mean, half) = waits(0.7, |random| 2.0 * random.unit());
    let wait = 0.7 * (4.0 / 3.0) / (2.0 * (1.0 - 0.7));
    assert!((mean - wait).abs() <= half && half < 0.2, "{mean} ± {half}, closed form {wait}");
}

#[test]
fn the_same_seed_gives_the_same_outcome_byte_for_byte() {
    let text = "[trace]\nrequests = 30000\n[placement]\nreplicas = 2\nanti_herd = \"on\"\n[freshness]\ninterval_s = 10\ndelay_ms = 300\n";
    let run = || super::run(&scenario(text)).unwrap().render(Format::Json).unwrap();
    assert_eq!(run(), run());
}

#[test]
fn the_numbers_are_those_of_every_machine() {
    let outcome = super::run(&scenario("[trace]\nrequests = 30000\n")).unwrap();
    let cold = get(&outcome, "cold_starts");
    // Changes of decisions or of the synthetic trace change this number on purpose.
    assert_eq!(cold, COLD_STARTS_OF_30000);
}

const COLD_STARTS_OF_30000: f64 = 5314.0;

#[test]
fn nobody_beats_the_clairvoyant_bound() {
    let cold = |text: &str| {
        let text = format!("[trace]\nrequests = 60000\n{text}");
        get(&super::run(&scenario(&text)).unwrap(), "cold_starts")
    };
    let placed = cold("");
    let any = "[routing]\nreach = \"any\"\npolicy = \"loaded\"\n";
    let routed = cold(any);
    let oracle = cold(&format!("{any}[slots]\neviction = \"clairvoyant\"\n"));
    assert!(oracle < routed && oracle < placed, "{oracle} {routed} {placed}");
}

#[test]
fn scenarios_without_sense_are_refused_with_what_to_write() {
    for (text, part) in [
        ("[cluster]\nnodes = 0\n", "write 1 to 100000"),
        ("[workload]\np = 1.5\n", "write a share"),
        ("[placement]\nweights = \"1-2\"\n", "placement.weights"),
        ("[freshness]\nwindow_s = 0.1\n", "freshness.window_s"),
        ("[trace]\nsource = \"azure-2021\"\n", "trace.path"),
        ("[routing]\npickers = 0\n", "write 1 to 100"),
        ("[cluster]\nreconfigures = \"board\"\n", "write slots = 1"),
    ] {
        let error = super::run(&scenario(text)).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn a_router_that_hears_of_an_end_late_loads_another_board_meanwhile() {
    let cold = |routing: &str| {
        let scenario = scenario(&format!(
            "[cluster]\nnodes = 2\nslots = 1\nreconfiguration_ms = 100\n[placement]\nreplicas = 2\n\
             [workload]\np = 1\nm_ms = 0\nr = 1\n[routing]\n{routing}\n"
        ));
        // The second request comes 50 ms after the end of the first, which ends at 1.1 s.
        let requests = vec![request(0.0, 1.0, 0), request(1.15, 1.0, 0)];
        get(&simulate(&scenario, requests), "cold_starts")
    };
    assert_eq!(cold("policy = \"loaded\""), 1.0);
    assert_eq!(cold("policy = \"tracked\""), 1.0, "it hears of the end at once");
    assert_eq!(cold("policy = \"tracked\"\nway_ms = 49"), 1.0);
    assert_eq!(cold("policy = \"tracked\"\nway_ms = 51"), 2.0);
}

#[test]
fn a_picker_hears_of_anothers_requests_by_states_only() {
    let waits = |pickers: &str| {
        let scenario = scenario(&format!(
            "[cluster]\nnodes = 2\nslots = 1\n[placement]\nreplicas = 2\n[workload]\np = 1\nm_ms = 0\nr = 1\n\
             [freshness]\ninterval_s = 60\n[routing]\npolicy = \"tracked\"\n{pickers}\n"
        ));
        // Pairs of requests, for which two boards suffice. Two pickers meet on one board where each gets one of a pair.
        let pair = |number: u32| [0.0, 0.1].map(|later| request(f64::from(number) * 10.0 + later, 1.0, 0));
        let outcome = simulate(&scenario, (0..40).flat_map(pair).collect());
        get(&outcome, "wait_mean_ms") * get(&outcome, "board_requests") / 900.0
    };
    assert!(waits("pickers = 1") < 1e-9, "one picker counts its first request of a pair at once");
    assert!(waits("pickers = 2\npicker_of = \"function\"") < 1e-9, "as does the only one of the function");
    let met = waits("pickers = 2");
    assert!((5.0..=35.0).contains(&met), "about half of 40 pairs: {met}");
}

#[test]
fn a_whole_board_is_taken_from_others_only_when_their_load_is_gone_or_fits_elsewhere() {
    let outcome = |reconfigures: &str, replicas: u32, requests: &[Request]| {
        let scenario = scenario(&format!(
            "[cluster]\nnodes = 2\nslots = 1\nreconfiguration_ms = 1000\nreconfigures = \"{reconfigures}\"\n\
             [placement]\nreplicas = {replicas}\nothers = \"nothing\"\nties = \"first\"\n\
             [workload]\np = 1\nm_ms = 0\nr = 1\n"
        ));
        let outcome = simulate(&scenario, requests.to_vec());
        ["refused_requests", "cold_starts", "placements"].map(|name| get(&outcome, name))
    };
    // Two boards for three functions: the third one's first request finds both used by others. At 400 s the window of
    // 300 s has passed.
    let three = [request(0.0, 2.0, 0), request(10.0, 2.0, 1), request(20.0, 2.0, 2), request(400.0, 2.0, 2)];
    assert_eq!(outcome("board", 1, &three), [1.0, 3.0, 3.0]);
    assert_eq!(outcome("slot", 1, &three), [0.0, 3.0, 3.0]);
    // The first function has both boards. One of them may go, since the other has time for its load; not both.
    let two = [request(0.0, 2.0, 0), request(10.0, 2.0, 0), request(20.0, 2.0, 1)];
    let [refused, _, placements] = outcome("board", 2, &two);
    assert_eq!((refused, placements), (0.0, 3.0));
    assert_eq!(outcome("slot", 2, &two)[2], 4.0);
}

prop_compose! {
    fn any_scenario()(
        nodes in 1_u32..6, slots in 1_u32..4, replicas in 1_u32..3, reconfiguration in 0_u32..2000,
        lifetime in prop::sample::select(vec!["forever", "idle", "request"]),
        route in prop::sample::select(vec!["random", "round-robin", "least-busy", "loaded", "tracked"]),
        reach in prop::sample::select(vec!["replicas", "any"]),
        requests in prop::sample::select(vec!["concurrent", "serial"]),
        after in prop::sample::select(vec!["stays", "goes"]),
        eviction in prop::sample::select(vec!["lru", "predicted", "random"]),
        queue in prop::sample::select(vec!["fifo", "same-bitstream"]),
        others in prop::sample::select(vec!["cpu-usage", "cpu-usage-in-ties", "placed", "nothing"]),
        weights in prop::sample::select(vec!["0-0-0", "1-2-2", "4-1-1", "1-2-2-1-1-1"]),
        herd in prop::sample::select(vec!["on", "off"]),
        times in (0_u32..20, 0_u32..500, 0_u32..300, 0_u32..200),
        (moving, budget, pickers) in (0_u32..3, 0_u32..4, 1_u32..4),
        picker_of in prop::sample::select(vec!["request", "function"]),
        remembers in prop::sample::select(vec!["board", "cluster"]),
        whole in any::<bool>(),
    ) -> String {
        let (interval, delay, network, start) = times;
        let (slots, reconfigures) = if whole { (1, "board") } else { (slots, "slot") };
        format!(
            "[cluster]\nnodes = {nodes}\nslots = {slots}\nreconfiguration_ms = {reconfiguration}\nnetwork_ms = {network}\nreconfigures = \"{reconfigures}\"\n\
             [placement]\nreplicas = {replicas}\nlifetime = \"{lifetime}\"\nidle_s = 30\nothers = \"{others}\"\n\
             weights = \"{weights}\"\nanti_herd = \"{herd}\"\nstart_ms = {start}\nmove_minutes = {moving}\n\
             replica_budget = {budget}\n\
             [routing]\npolicy = \"{route}\"\nreach = \"{reach}\"\npickers = {pickers}\npicker_of = \"{picker_of}\"\n\
             [slots]\nrequests = \"{requests}\"\nafter_use = \"{after}\"\neviction = \"{eviction}\"\nremembers = \"{remembers}\"\nqueue = \"{queue}\"\n\
             [freshness]\ninterval_s = {interval}\ndelay_ms = {delay}\n[workload]\nm_ms = 0\n"
        )
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn the_laws_hold_in_every_scenario(
        text in any_scenario(),
        gaps in prop::collection::vec((0_u32..60_000, 0_u32..120_000, 0_u32..12), 1..150),
    ) {
        let mut at = 0.0;
        let requests: Vec<Request> = gaps
            .iter()
            .map(|(gap, duration, function)| {
                at += f64::from(*gap) / 1e3;
                request(at, f64::from(*duration) / 1e3, *function)
            })
            .collect();
        let count = requests.len();
        // The run itself checks the invariants; here it must end without an error.
        let outcome = simulate(&scenario(&text), requests);
        prop_assert_eq!(get(&outcome, "requests"), count as f64);
        prop_assert!(get(&outcome, "cold_starts") <= get(&outcome, "board_requests"));
    }
}

#[test]
fn placed_units_get_requests_in_turn_and_each_request_is_told_of() {
    let scenario = scenario(
        "[cluster]\nnodes = 2\nslots = 1\nreconfiguration_ms = 1000\n[workload]\np = 1\nr = 1\n[routing]\npolicy = \"round-robin\"\n",
    );
    let requests = [request(0.0, 2.0, 0), request(0.5, 2.0, 0), request(1.0, 1.0, 0), request(9.0, 1.0, 1)];
    let mut trace = Trace::of("test", requests.into_iter());
    let engine = Engine::new(&scenario).unwrap().placed(vec![vec![1, 0], vec![1]]).unwrap();
    let (outcome, served) = engine.run_recorded(&mut trace).unwrap();
    let served: Vec<_> = served
        .iter()
        .map(|served| (served.unit, served.node, served.wait.secs(), served.start == SlotStart::Cold))
        .collect();
    // The third request waits for the first one, which loads for a second and runs for two.
    assert_eq!(served, [(0, 1, 0.0, true), (0, 0, 0.0, true), (0, 1, 2.0, false), (1, 1, 0.0, true)]);
    assert_eq!(get(&outcome, "cold_starts"), 3.0);
    assert!(Engine::new(&scenario).unwrap().placed(vec![vec![2]]).is_err(), "there is no such node");
}
