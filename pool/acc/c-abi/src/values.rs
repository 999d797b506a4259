//! Structures in the caller's memory.

use crate::code::{failure, invalid, unusable};
use acc::{Forecast, Goal, Statistics, Status, Where};
use fpga_foreign_process::c_boundary::{Failure, optional_text, required_text};
use std::ffi::{c_char, c_int, c_void};
use std::time::Duration;

/// Size of a reason, in bytes, with the final NUL.
pub const ACC_REASON_BYTES: usize = 256;

/// Maximum length of an accelerator's or an argument's name, in bytes.
const MAX_NAME_BYTES: usize = 256;
/// Maximum number of arguments.
const MAX_ARGUMENTS: usize = 64;
/// Maximum size of an argument's value, in bytes.
const MAX_VALUE_BYTES: usize = 65_536;
/// Maximum length of a path, or of a list of brokers, in bytes.
const MAX_PATH_BYTES: usize = 4096;

/// An argument of an accelerator, such as "key". The library copies the value.
#[repr(C)]
#[derive(Debug)]
pub struct AccArgument {
    /// Name of the argument.
    pub name: *const c_char,
    /// The value's bytes.
    pub value: *const c_void,
    /// Number of bytes.
    pub bytes: usize,
}

/// Where the pool is. NULL stands for what the environment says.
#[repr(C)]
#[derive(Debug)]
pub struct AccConfig {
    /// Addresses of the brokers, HOST:PORT, several by commas.
    pub brokers: *const c_char,
    /// File of the token that proves to the broker who asks; read for each connection.
    pub token_file: *const c_char,
    /// File of the authorities (PEM) of brokers behind https://; read for each connection.
    pub authorities: *const c_char,
    /// Name of the node of this process.
    pub node: *const c_char,
}

/// Where a job is.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccState {
    /// The job has no slot; the reason says why.
    ACC_WAITING = 0,
    /// The job takes a slot.
    ACC_ATTACHING = 1,
    /// The job has a slot.
    ACC_RUNNING = 2,
    /// The job has ended.
    ACC_ENDED = 3,
    /// No slot came in time: the processor of this machine does the job (acc_open_or_else()).
    ACC_ON_PROCESSOR = 4,
}

/// How far a job is.
#[repr(C)]
#[derive(Debug)]
pub struct AccStatus {
    /// Where the job is.
    pub state: AccState,
    /// Number of slots that the job has had so far.
    pub slots: u32,
    /// Bytes of the input that are done.
    pub input_bytes: u64,
    /// Bytes of output that are there.
    pub output_bytes: u64,
    /// Bytes of the input that the processor of this machine did; 0 unless no slot came in time.
    pub processor_bytes: u64,
    /// Why the job waits, for people; empty if it does not.
    pub reason: [c_char; ACC_REASON_BYTES],
}

/// What a group is to reach: a deadline, if actions is not 0, or else a throughput.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AccGoal {
    /// Deadline: number of actions that are to be done; else 0.
    pub actions: u64,
    /// Deadline: time for these actions, in milliseconds from the moment at which the broker first hears of the group.
    pub within_ms: u64,
    /// Throughput: actions per hour.
    pub actions_per_hour: u64,
}

/// An action that has ended.
#[repr(C)]
#[derive(Debug)]
pub struct AccDone {
    /// What acc_group_submit() was given.
    pub tag: u64,
    /// 0, or the ACC_E_... of the action; acc_last_error() then has the reason.
    pub code: c_int,
    /// The output; it stays valid until the next acc_group_next() of the group.
    pub output: *const c_void,
    /// Number of bytes of output.
    pub bytes: usize,
}

/// How far a group is, and whether it will reach its goal.
#[repr(C)]
#[derive(Debug)]
pub struct AccStatistics {
    /// Milliseconds since the broker first heard of the group.
    pub elapsed_ms: u64,
    /// Actions that wait for a slot.
    pub waiting: u64,
    /// Actions that were sent to a slot and have not ended.
    pub under_way: u64,
    /// Actions whose output is there.
    pub done: u64,
    /// Actions that ended with an error, or were given up.
    pub failed: u64,
    /// How often an action was sent again.
    pub repeated: u64,
    /// Slots that were lost without being asked.
    pub lost_slots: u64,
    /// Bytes of the input of actions that are done.
    pub input_bytes: u64,
    /// Bytes of their output.
    pub output_bytes: u64,
    /// Slots that the group has.
    pub slots: u32,
    /// 1 if there is a forecast; else the next three are 0.
    pub has_forecast: c_int,
    /// 1 if the group reaches its goal by the forecast.
    pub reaches_goal: c_int,
    /// Deadline: milliseconds from the group's start after which its actions are done.
    pub forecast_ms: u64,
    /// Throughput: actions per hour if actions always wait.
    pub forecast_actions_per_hour: u64,
    /// Why the group has no more slots, for people.
    pub reason: [c_char; ACC_REASON_BYTES],
}

/// The name of an accelerator.
///
/// # Safety
/// `name` is NULL or a string.
pub unsafe fn accelerator<'a>(name: *const c_char) -> Result<&'a str, Failure> {
    // SAFETY: this function's contract.
    unsafe { required_text(name, MAX_NAME_BYTES) }.map_err(|error| unusable("accelerator", error))
}

/// The arguments of an accelerator.
///
/// # Safety
/// `arguments` is NULL or an array of `count` arguments with valid names and values.
pub unsafe fn arguments<'a>(
    arguments: *const AccArgument,
    count: usize,
) -> Result<Vec<(&'a str, &'a [u8])>, Failure> {
    if count > MAX_ARGUMENTS {
        return Err(invalid(format!("{count} arguments; write at most {MAX_ARGUMENTS}")));
    }
    if arguments.is_null() && count > 0 {
        return Err(invalid("arguments is NULL, and argument_count is not 0"));
    }
    let mut all = Vec::with_capacity(count);
    for index in 0..count {
        // SAFETY: an array of `count` entries by this function's contract.
        let AccArgument { name, value, bytes } = unsafe { &*arguments.add(index) };
        // SAFETY: a string by this function's contract.
        let name = unsafe { required_text(*name, MAX_NAME_BYTES) }
            .map_err(|error| unusable("the name of an argument", error))?;
        if *bytes > MAX_VALUE_BYTES {
            return Err(invalid(format!(
                "the argument {name} has {bytes} bytes; write at most {MAX_VALUE_BYTES}"
            )));
        }
        // SAFETY: readable by this function's contract.
        all.push((name, unsafe { readable(*value, *bytes, "the value of an argument") }?));
    }
    Ok(all)
}

/// Bytes of the caller.
///
/// # Safety
/// `bytes` is NULL or points to `count` bytes that are readable, and not changed, for `'a`.
pub unsafe fn readable<'a>(bytes: *const c_void, count: usize, what: &str) -> Result<&'a [u8], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if bytes.is_null() || isize::try_from(count).is_err() {
        return Err(invalid(format!("{what} is NULL")));
    }
    // SAFETY: this function's contract.
    Ok(unsafe { std::slice::from_raw_parts(bytes.cast(), count) })
}

impl AccConfig {
    /// The configuration, over that of the environment.
    ///
    /// # Safety
    /// Each pointer is NULL or a string.
    pub unsafe fn read(&self) -> Result<acc::Config, Failure> {
        // SAFETY: this function's contract.
        let text = |pointer, what| unsafe {
            optional_text(pointer, MAX_PATH_BYTES).map_err(|error| unusable(what, error))
        };
        let text =
            |pointer, what| text(pointer, what).map(|text| (!text.is_empty()).then(|| text.to_owned()));
        let given = acc::Given {
            brokers: text(self.brokers, "brokers")?,
            token_file: text(self.token_file, "token_file")?.map(Into::into),
            ca: text(self.authorities, "authorities")?.map(Into::into),
            node: text(self.node, "node")?,
        };
        given.or_environment().map_err(|error| failure(&error))
    }
}

impl AccStatus {
    /// What a status of the client says.
    pub fn of(status: &Status) -> Self {
        let (state, why) = match &status.at {
            Where::Waiting(why) => (AccState::ACC_WAITING, why.as_str()),
            Where::Attaching => (AccState::ACC_ATTACHING, ""),
            Where::Running => (AccState::ACC_RUNNING, ""),
            Where::OnProcessor => (AccState::ACC_ON_PROCESSOR, ""),
            Where::Ended => (AccState::ACC_ENDED, ""),
        };
        let Status { input_bytes, output_bytes, slots, .. } = *status;
        let processor_bytes = status.processor_bytes.unwrap_or(0);
        Self { state, slots, input_bytes, output_bytes, processor_bytes, reason: reason(why) }
    }
}

impl AccGoal {
    /// The goal of the client.
    pub fn goal(self) -> Goal {
        match self.actions {
            0 => Goal::Throughput { actions_per_hour: self.actions_per_hour },
            actions => Goal::Deadline { actions, within: Duration::from_millis(self.within_ms) },
        }
    }
}

impl AccStatistics {
    /// What the statistics of the client say.
    pub fn of(statistics: &Statistics) -> Self {
        let (forecast_ms, forecast_actions_per_hour) = match statistics.forecast {
            Some(Forecast::Done { after, .. }) => (millis(after), 0),
            Some(Forecast::Throughput { actions_per_hour, .. }) => (0, actions_per_hour),
            None => (0, 0),
        };
        Self {
            elapsed_ms: millis(statistics.elapsed),
            waiting: statistics.waiting,
            under_way: statistics.under_way,
            done: statistics.done,
            failed: statistics.failed,
            repeated: statistics.repeated,
            lost_slots: statistics.lost_slots,
            input_bytes: statistics.input_bytes,
            output_bytes: statistics.output_bytes,
            slots: statistics.slots,
            has_forecast: statistics.forecast.is_some().into(),
            reaches_goal: statistics.forecast.is_some_and(|forecast| forecast.reaches_goal()).into(),
            forecast_ms,
            forecast_actions_per_hour,
            reason: reason(&statistics.waits),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A text as a string of C, cut between characters.
fn reason(text: &str) -> [c_char; ACC_REASON_BYTES] {
    let mut cut = text.len().min(ACC_REASON_BYTES - 1);
    while !text.is_char_boundary(cut) {
        cut -= 1;
    }
    let mut reason = [0; ACC_REASON_BYTES];
    for (to, from) in reason.iter_mut().zip(&text.as_bytes()[..cut]) {
        *to = c_char::from_ne_bytes([*from]);
    }
    reason
}
