//! Steps of the node's wall clock while devices report. A preloaded library adds an offset to the clock that the
//! collector reads; everything else is real.

use crate::common::{PROGRAM, library, now_ms};
use fpga_test_kit::{Collector, until};
use std::path::{Path, PathBuf};
use std::process::Command;

const HOUR: i64 = 3600;

const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t id, struct timespec *time) {
    int (*kernels)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int result = kernels(id, time);
    FILE *file = id == CLOCK_REALTIME ? fopen(getenv("SECONDS_AHEAD"), "r") : NULL;
    if (file) {
        long seconds = 0;
        if (fscanf(file, "%ld", &seconds) == 1) time->tv_sec += seconds;
        fclose(file);
    }
    return result;
}
"#;

/// A collector whose wall clock can be stepped.
struct Bed {
    folder: tempfile::TempDir,
    library: PathBuf,
    collector: Collector,
}

impl Bed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let library = library(folder.path(), CLOCK);
        let collector = start(folder.path(), &library);
        Self { folder, library, collector }
    }

    /// Sets the collector's wall clock `seconds` ahead of this process's.
    fn set_ahead(&self, seconds: i64) {
        // By a rename, so that a reader sees the old text or the new one.
        let new = self.folder.path().join("ahead.new");
        std::fs::write(&new, seconds.to_string()).unwrap();
        std::fs::rename(new, self.folder.path().join("ahead")).unwrap();
    }

    fn steps(&self) -> f64 {
        self.collector.metric("fpga_collector_anomalies_total{kind=\"clock_jump\"}")
    }

    /// Reports a task of 10 s that ended at `end`.
    fn work(&self, seq: u64, end: u64) {
        let body = format!(
            r#"{{"timestamp_ms":{end},"duration_ms":10000,"reconfiguration_ms":0,"bitstream_identifier":"sobel","reporter":1,"seq":{seq},"device":"dm0"}}"#
        );
        assert_eq!(self.collector.post(&body).status, 200);
    }

    /// Asserts that the board is known and healthy, and that `tasks` tasks are counted.
    fn assert_in_service(&self, tasks: u64) {
        let state = self.collector.state();
        assert_eq!(state["devices"][0]["healthy"], true, "{state}");
        let usage = state["usageMs"].as_u64().unwrap();
        assert!(usage.abs_diff(10_000 * tasks) <= 1_000, "{usage} ms of {tasks} tasks: {state}");
    }
}

/// The time of a clock that is `seconds_ahead` of this process's.
fn clock(seconds_ahead: i64) -> u64 {
    now_ms().checked_add_signed(seconds_ahead * 1000).unwrap()
}

fn start(folder: &Path, library: &Path) -> Collector {
    let mut command = Command::new(PROGRAM);
    command.env("LD_PRELOAD", library).env("SECONDS_AHEAD", folder.join("ahead"));
    Collector::start(command, folder, &["--no-publish"])
}

#[test]
fn steps_of_the_clock_take_no_board_out_of_service_and_no_task_out_of_the_window() {
    let mut bed = Bed::new();
    bed.collector.put_board();
    bed.work(1, clock(0));
    for (number, (ahead, before)) in (1_u32..).zip([(HOUR, 0), (-HOUR, HOUR), (24 * HOUR, -HOUR)]) {
        let before_the_step = clock(before);
        bed.set_ahead(ahead);
        // After this, devices have been checked by the new time as well.
        until("the step is noticed", || bed.steps() >= f64::from(number));
        let tasks = u64::from(number) * 2;
        bed.assert_in_service(tasks - 1);
        // One event stamped before the step, and one after it.
        bed.work(tasks, before_the_step);
        bed.work(tasks + 1, clock(ahead));
        bed.assert_in_service(tasks + 1);
    }

    let Bed { folder, library, collector } = bed;
    collector.kill();
    let collector = start(folder.path(), &library);
    bed = Bed { folder, library, collector };
    bed.assert_in_service(7);
    assert!(bed.steps() >= 3.0);
}
