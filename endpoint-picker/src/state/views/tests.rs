use crate::metrics::{MOST_FUNCTIONS, Metrics};
use crate::state::recent::MOST_PICKS;
use crate::state::tests::{T0, address, choose, function, name, two_nodes};
use crate::state::{Refusal, State};
use fpga_core::units::Millis;
use fpga_picker_api::OutcomeView;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

#[test]
fn a_function_shows_its_last_picks_with_what_they_were_based_on_and_its_replicas() {
    let mut state = two_nodes();
    assert!(state.picks(&name("nobody"), 4.0, T0).is_none());
    let (first, later) = (choose(&mut state, "sobel", T0).unwrap(), T0 + Millis(1_500));
    choose(&mut state, "sobel", later).unwrap();
    let mut limited = function("sobel", &[(1, "a"), (2, "b")]);
    limited.max_waiting = Some(0);
    state.set_function(&name("sobel"), &limited, later);
    assert_eq!(choose(&mut state, "sobel", later), Err(Refusal::TooManyWaiting));

    let view = state.picks(&name("sobel"), 4.0, later).unwrap();
    let function = &view.function;
    assert_eq!((function.bitstream.as_deref(), function.in_flight), (Some("sobel"), 2));
    let of_a = &function.replicas[0];
    assert_eq!(
        (of_a.address, of_a.node.as_deref(), of_a.board.as_deref()),
        (address(1), Some("a"), Some("board-0"))
    );
    assert_eq!((of_a.fresh, of_a.slots, of_a.idle, of_a.in_flight), (true, 1, 0, 1));
    assert_eq!(view.picks.len(), 3);
    assert_eq!(view.picks[0].outcome, OutcomeView::Refused { refused: "too_many_waiting".to_owned() });
    assert_eq!((view.picks[2].ago_ms, view.picks[2].candidates), (1_500, 2));
    let OutcomeView::Picked { basis, endpoints, node, in_flight, .. } = &view.picks[2].outcome else {
        panic!("{view:?}");
    };
    assert_eq!(
        (basis.as_str(), endpoints, node.as_deref(), *in_flight),
        ("resident", &first.endpoints, Some("a"), 0)
    );

    // A replica that is gone has no name any more, and all is forgotten with the function.
    state.set_function(&name("sobel"), &function_without_replicas(), later);
    let view = state.picks(&name("sobel"), 4.0, later).unwrap();
    assert!(matches!(&view.picks[2].outcome, OutcomeView::Picked { node: None, .. }), "{view:?}");
    state.remove_function(&name("sobel"), later);
    assert!(state.picks(&name("sobel"), 4.0, later).is_none());
}

fn function_without_replicas() -> crate::function::Function {
    function("sobel", &[])
}

#[test]
fn the_picks_that_are_remembered_are_bounded() {
    let mut state = two_nodes();
    for number in 0..100 {
        let now = T0 + Millis(number);
        let choice = choose(&mut state, "sobel", now).unwrap();
        state.end(choice.assignment, now);
    }
    let picks = state.picks(&name("sobel"), 4.0, T0 + Millis(99)).unwrap().picks;
    assert_eq!((picks.len(), picks[0].ago_ms, picks[MOST_PICKS - 1].ago_ms), (MOST_PICKS, 0, 31));
}

#[test]
fn replicas_are_recommended_by_demand_up_to_the_number_of_boards() {
    let mut state = two_nodes();
    let recommended = |state: &State, per_function, now| {
        let functions = state.functions(per_function, now);
        functions.iter().map(|it| (it.name.clone(), it.recommended_replicas)).collect::<Vec<_>>()
    };
    let pairs = |matmul, sobel| vec![("matmul".to_owned(), matmul), ("sobel".to_owned(), sobel)];
    assert_eq!(recommended(&state, 4.0, T0), pairs(1, 1), "nobody asks");
    choose(&mut state, "sobel", T0).unwrap();
    let later = T0 + Millis(10_000);
    assert_eq!(recommended(&state, 1.5, later), pairs(1, 2));
    assert_eq!(recommended(&state, 4.0, later), pairs(1, 2), "there are two boards");
    let sobel = &state.functions(4.0, later)[1];
    assert!((sobel.mean_in_flight - 1.0).abs() < 1e-9, "{sobel:?}");
    assert!((sobel.per_second - 0.1).abs() < 0.01, "{sobel:?}");
}

#[test]
fn metrics_have_the_functions_with_most_demand_only() {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let mut functions = two_nodes().functions(4.0, T0);
    let mut busy = functions.remove(0);
    busy.mean_in_flight = 7.0;
    let idle = functions.remove(0);
    let mut many = vec![idle; MOST_FUNCTIONS + 5];
    many.iter_mut().enumerate().for_each(|(number, function)| function.name = format!("idle-{number}"));
    many.push(busy);
    metrics.take_functions(many);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    let of_functions =
        text.lines().filter(|line| line.starts_with("fpga_picker_function_recommended_replicas{"));
    assert_eq!(of_functions.count(), MOST_FUNCTIONS);
    assert!(
        text.contains("function_requests_in_flight{namespace=\"default\",function=\"matmul\"} 7.0"),
        "{text}"
    );
    assert!(text.contains("fpga_picker_functions_left_out 6\n"), "{text}");
    metrics.take_functions(Vec::new());
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    assert!(!text.contains("namespace="), "those that are gone have no metrics: {text}");
}
