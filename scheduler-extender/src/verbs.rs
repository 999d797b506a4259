//! The decisions for kube-scheduler: decode the request, ask core, encode the answer. Synchronous and from memory; a
//! decision reads the clock once.

mod found;

use crate::app::App;
use crate::clock::Moment;
use crate::explain::{Considered, Decided, Decision, Names, PodName};
use crate::free_time::free_time;
use crate::index::Source;
use crate::metrics::{ErrorKind, ModeLabel, Verb};
use crate::preempt;
use crate::record::{Item, Kept};
use crate::settings::Policy;
use crate::wire::{
    Candidate as Offered, Encode, Eviction, FilterResult, HostPriorities, Malformed, Nodes, Pod,
    PreemptionArgs, PreemptionResult, Rejected, Reply, Writer, read_args,
};
use found::{Found, otherwise};
use fpga_core::decide::{
    AntiHerd, DecisionRules, FilterDecision, ScoreDecision, filter_among, prioritize_expecting,
};
use fpga_core::expected_load::{Expected, MAX_ASSUMED_NODES};
use fpga_core::matching::Rejection;
use fpga_core::record::{Asked, RecordedAnswer, Verb as RecordedVerb};
use fpga_core::redistribution::FreeTime;
use fpga_core::requirement::{InvalidRequirement, Requirement};
use fpga_core::signals::AskedKind;
use hyper::body::Bytes;
use tracing::warn;

/// An answer with status 200.
#[derive(Debug)]
pub struct Answer {
    /// Form of the candidates in the request.
    pub mode: ModeLabel,
    /// JSON of the answer.
    pub body: Reply,
}

/// Why a request gets no answer. kube-scheduler reads only the status.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The body can't be decoded.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The body is longer than `--max-body-bytes`.
    #[error("the request is longer than --max-body-bytes allows")]
    TooLarge,
    /// The body did not arrive whole or in time.
    #[error("the request's body did not arrive whole and in time")]
    Interrupted,
    /// Other requests use the whole memory budget of requests.
    #[error(
        "requests in progress hold all the memory that they may have (--max-bytes-in-flight); try again later"
    )]
    Busy,
    /// The nodes or the Bitstreams of the cluster are not known yet.
    #[error("the nodes and Bitstreams of the cluster are not known yet; try again when /readyz says ok")]
    NotSynced,
    /// The answer can't be encoded.
    #[error("the answer can't be written: {0}")]
    Answer(#[source] serde_json::Error),
}

impl Refusal {
    /// The label under which the error is counted.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Malformed(_) => ErrorKind::Malformed,
            Self::TooLarge => ErrorKind::TooLarge,
            Self::Interrupted => ErrorKind::Interrupted,
            Self::Busy => ErrorKind::Busy,
            Self::NotSynced => ErrorKind::NotSynced,
            Self::Answer(_) => ErrorKind::Answer,
        }
    }
}

/// Answers the request for `verb` with this body.
///
/// # Errors
/// [`Refusal`] if there is no answer. An invalid requirement of the pod is not an error: filter rejects every node
/// for it.
pub fn answer(app: &App, verb: Verb, body: &Bytes) -> Result<Answer, Refusal> {
    match verb {
        Verb::Filter => {
            let (pod, nodes) = read_args(body)?;
            answer_filter(app, body, &pod, &nodes)
        }
        Verb::Prioritize => {
            let (pod, nodes) = read_args(body)?;
            answer_prioritize(app, body, &pod, &nodes)
        }
        Verb::Preempt => answer_preempt(app, PreemptionArgs::read(body)?),
    }
}

fn answer_filter(app: &App, request: &Bytes, pod: &Pod<'_>, nodes: &Nodes<'_>) -> Result<Answer, Refusal> {
    if nodes.len() == 1 {
        app.metrics.single_node_filters.inc();
    }
    let rejected = match pod.requirement() {
        Ok(None) => Vec::new(),
        Ok(Some(asked)) => decide_filter(app, request, pod, nodes, asked)?,
        Err(error) => {
            app.metrics.error(Verb::Filter, ErrorKind::Requirement);
            reject_all(app, request, pod, nodes, &error)
        }
    };
    encode(request, nodes, &FilterResult { nodes, rejected: &rejected })
}

/// Rejects every node for a pod whose requirement can't be understood. With `ignorable: true` in kube-scheduler's
/// configuration, an answer with `Error` would let the pod pass everywhere.
fn reject_all(
    app: &App,
    request: &Bytes,
    pod: &Pod<'_>,
    nodes: &Nodes<'_>,
    error: &InvalidRequirement,
) -> Vec<(usize, Rejected)> {
    const REASON: Rejection = Rejection::Misunderstood;
    warn!(namespace = pod.namespace(), pod = pod.name(), %error, "What a pod asks for can't be understood");
    let verdicts = vec![Err(REASON); nodes.len()];
    app.metrics.filtered(&verdicts);
    let policy = app.config.policy();
    let by = Considered { requirement: Requirement::default(), problem: Some(error.to_string()), policy };
    let (at, names) = (app.clock.read().wall, Names::of_request(request, nodes));
    let sources = vec![Source::None; nodes.len()];
    remember(app, pod, by, Decision::Filter(Decided { at, names, sources, decision: verdicts }));
    (0..nodes.len())
        .map(|place| (place, Rejected { reason: REASON, eviction: Eviction::IsUseless }))
        .collect()
}

fn decide_filter(
    app: &App,
    request: &Bytes,
    pod: &Pod<'_>,
    nodes: &Nodes<'_>,
    mut asked: Requirement,
) -> Result<Vec<(usize, Rejected)>, Refusal> {
    ensure_synced(app)?;
    let (at, policy) = (app.clock.read(), app.config.policy());
    ask_library(app, pod, &mut asked, &policy);
    let known = app.index.read();
    let found = Found::of(nodes.names_as_bytes(), &known);
    let candidates = found.candidates();
    let node_at = |place| Some((nodes.name(place), found.node(place)?));
    let changed = preempt::for_filter(app, pod, &candidates, node_at);
    let (controller, all) = (controller(pod), || free_time(&known, &app.board_pods));
    let candidates = otherwise(candidates, &changed);
    let FilterDecision { verdicts, free_time } =
        filter_among(controller.as_deref(), &asked, &candidates, all, &policy.rules, at.now);
    let failed = verdicts.iter().enumerate().filter(|(_, verdict)| verdict.is_err());
    let rejected = failed.filter_map(|(place, verdict)| {
        let reason = verdict.err()?;
        let node = || found.with(&changed, place);
        let eviction = preempt::eviction(app, pod, &asked, nodes.name(place), node, reason);
        Some((place, Rejected { reason, eviction }))
    });
    let rejected = rejected.collect();
    let sources = found.sources();
    let kept = found.kept(app, &changed);
    drop(known);
    let decided = || Decisive { free_time, ..Decisive::of_verdicts(&verdicts) };
    record(app, Verb::Filter, at, pod, (&asked, &policy.rules, nodes.names()), kept, decided);
    app.metrics.filtered(&verdicts);
    let names = Names::of_request(request, nodes);
    let by = Considered { requirement: asked, problem: None, policy };
    remember(app, pod, by, Decision::Filter(Decided { at: at.wall, names, sources, decision: verdicts }));
    Ok(rejected)
}

fn answer_prioritize(
    app: &App,
    request: &Bytes,
    pod: &Pod<'_>,
    nodes: &Nodes<'_>,
) -> Result<Answer, Refusal> {
    let scores = match pod.requirement() {
        Ok(Some(asked)) => decide_prioritize(app, request, pod, nodes, asked)?,
        Ok(None) => vec![0; nodes.len()],
        Err(_) => {
            // The answer to prioritize has no place for an error; filter has reported it.
            app.metrics.error(Verb::Prioritize, ErrorKind::Requirement);
            vec![0; nodes.len()]
        }
    };
    encode(request, nodes, &HostPriorities { nodes, scores: &scores })
}

fn decide_prioritize(
    app: &App,
    request: &Bytes,
    pod: &Pod<'_>,
    nodes: &Nodes<'_>,
    mut asked: Requirement,
) -> Result<Vec<u32>, Refusal> {
    ensure_synced(app)?;
    let (at, policy) = (app.clock.read(), app.config.policy());
    ask_library(app, pod, &mut asked, &policy);
    let (rules, kind) = (&policy.rules, AskedKind::of(&asked));
    let known = app.index.read();
    let found = Found::of(nodes.names_as_bytes(), &known);
    let expected = match rules.anti_herd {
        AntiHerd::Off => Vec::new(),
        AntiHerd::On => app.expectations.on(pod.uid(), found.keyed(), &kind, at.now),
    };
    let decision = prioritize_expecting(&asked, &found.candidates(), &expected, rules, at.now);
    let sources = found.sources();
    let kept = found.kept(app, &[]);
    drop(known);
    if rules.anti_herd == AntiHerd::On {
        app.expectations.assume(pod.uid(), pod.owner(), kind, &best(nodes, &decision), at.now);
    }
    let scores = decision.scores().to_vec();
    let decided = || Decisive { expected, free_time: None, answer: RecordedAnswer::Scores(scores.clone()) };
    record(app, Verb::Prioritize, at, pod, (&asked, rules, nodes.names()), kept, decided);
    let names = Names::of_request(request, nodes);
    let by = Considered { requirement: asked, problem: None, policy };
    remember(app, pod, by, Decision::Prioritize(Decided { at: at.wall, names, sources, decision }));
    Ok(scores)
}

/// The nodes with fresh state and the greatest score. kube-scheduler chooses one of them, unless its own plugins
/// outvote the extender.
fn best<'n>(nodes: &'n Nodes<'_>, decision: &ScoreDecision) -> Vec<&'n str> {
    // `Expectations::assume` needs no more than one name above its limit to know that there are too many.
    decision.best().take(MAX_ASSUMED_NODES + 1).map(|index| nodes.name(index)).collect()
}

fn answer_preempt(app: &App, args: PreemptionArgs<'_>) -> Result<Answer, Refusal> {
    let (pod, offered) = args.into_parts()?;
    let candidates = match pod.requirement() {
        Ok(None) => offered,
        Ok(Some(asked)) => decide_preempt(app, &pod, offered, asked)?,
        Err(_) => {
            app.metrics.error(Verb::Preempt, ErrorKind::Requirement);
            Vec::new()
        }
    };
    let body = serde_json::to_vec(&PreemptionResult { candidates }).map_err(Refusal::Answer)?;
    Ok(Answer { mode: ModeLabel::Unknown, body: body.into() })
}

/// The candidates that pass the filter without their victims.
fn decide_preempt<'a>(
    app: &App,
    pod: &Pod<'_>,
    mut offered: Vec<Offered<'a>>,
    mut asked: Requirement,
) -> Result<Vec<Offered<'a>>, Refusal> {
    ensure_synced(app)?;
    let (at, policy) = (app.clock.read(), app.config.policy());
    ask_library(app, pod, &mut asked, &policy);
    let known = app.index.read();
    let found = Found::of(offered.iter().map(|candidate| candidate.node.as_str().as_bytes()), &known);
    let without = |(place, candidate): (usize, &mut Offered<'a>)| {
        Some((place, preempt::choose_victims(app, pod, &asked, candidate, found.node(place)?)?))
    };
    let changed: Vec<_> = offered.iter_mut().enumerate().filter_map(without).collect();
    let (controller, all) = (controller(pod), || free_time(&known, &app.board_pods));
    let candidates = otherwise(found.candidates(), &changed);
    let FilterDecision { verdicts, free_time } =
        filter_among(controller.as_deref(), &asked, &candidates, all, &policy.rules, at.now);
    let kept = found.kept(app, &changed);
    drop(known);
    let names = offered.iter().map(|candidate| candidate.node.as_str());
    let decided = || Decisive { free_time, ..Decisive::of_verdicts(&verdicts) };
    record(app, Verb::Preempt, at, pod, (&asked, &policy.rules, names), kept, decided);
    let passed = offered.into_iter().zip(verdicts).filter(|(_, verdict)| verdict.is_ok());
    Ok(passed.map(|(candidate, _)| candidate).collect())
}

/// The pod's controller, as node plugins name it.
fn controller(pod: &Pod<'_>) -> Option<String> {
    pod.owner().map(|uid| fpga_core::node_state::controller(pod.namespace(), uid))
}

/// Adds to the requirement what the pod's namespace sees in the library: where its bitstreams are valid, and by which
/// other identifiers a node may have them.
fn ask_library(app: &App, pod: &Pod<'_>, asked: &mut Requirement, policy: &Policy) {
    asked.valid_on = app.library.valid_boards(pod.namespace(), asked.all_bitstreams(), &policy.bitstreams);
    asked.synonyms = app.library.synonyms(pod.namespace(), asked);
}

fn ensure_synced(app: &App) -> Result<(), Refusal> {
    if app.knows_cluster() { Ok(()) } else { Err(Refusal::NotSynced) }
}

/// The answer, and what it followed from beside the candidates.
struct Decisive {
    expected: Vec<Expected>,
    free_time: Option<FreeTime>,
    answer: RecordedAnswer,
}

impl Decisive {
    fn of_verdicts(verdicts: &[Result<(), Rejection>]) -> Self {
        Self { expected: Vec::new(), free_time: None, answer: RecordedAnswer::of_verdicts(verdicts) }
    }
}

/// Records the decision if `kept` has nodes.
fn record<'n>(
    app: &App,
    verb: Verb,
    at: Moment,
    pod: &Pod<'_>,
    (asked, rules, names): (&Requirement, &DecisionRules, impl Iterator<Item = &'n str>),
    kept: Option<Vec<Option<Kept>>>,
    decided: impl FnOnce() -> Decisive,
) {
    let (Some(recorder), Some(nodes)) = (&app.recorder, kept) else { return };
    let Decisive { expected, free_time, answer } = decided();
    let asked = Asked {
        verb: match verb {
            Verb::Filter => RecordedVerb::Filter,
            Verb::Prioritize => RecordedVerb::Prioritize,
            Verb::Preempt => RecordedVerb::Preempt,
        },
        at: at.wall,
        now: at.now,
        namespace: pod.namespace().to_owned(),
        pod: pod.name().to_owned(),
        uid: pod.uid().to_owned(),
        owner: pod.owner().map(str::to_owned),
        requirement: asked.clone(),
    };
    recorder.record(Item {
        asked,
        rules: *rules,
        names: names.collect(),
        nodes,
        expected,
        free_time,
        answer,
    });
}

fn remember(app: &App, pod: &Pod<'_>, by: Considered, decision: Decision) {
    let name = PodName { namespace: pod.namespace().to_owned(), name: pod.name().to_owned() };
    app.explanations.remember(name, pod.uid(), by, decision);
}

fn encode(request: &Bytes, nodes: &Nodes<'_>, answer: &impl Encode) -> Result<Answer, Refusal> {
    let mut out = Writer::new(request);
    answer.encode(&mut out).map_err(Refusal::Answer)?;
    Ok(Answer { mode: ModeLabel::Of(nodes.mode()), body: out.finish() })
}
