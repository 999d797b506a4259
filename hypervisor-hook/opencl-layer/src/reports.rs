//! Reports to the collector: ended commands, reconfigurations, progress, and the device's status if it is to be
//! announced.

use crate::bitstreams::Bitstream;
use crate::config::{Announce, Config};
use crate::in_flight::{Command, InFlight};
use fpga_core::bitstream::BitstreamId;
use fpga_core::device::{DeviceStatus, LoadedBitstream};
use fpga_core::event::{Event, Phase};
use fpga_core::units::{Millis, WallTime};
use fpga_hook::{Reporter, StartError, WholeMillis};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Maximum number of loaded bitstreams that a collector accepts for one device.
const MAX_LOADED: usize = 48;

/// Reports for the device that the environment describes.
#[derive(Debug)]
pub struct Reports {
    reporter: Reporter,
    announce: Announce,
    device: Mutex<DeviceStatus>,
    id: String,
    reconfigured: WholeMillis,
    /// Whether the collector acknowledged in time at the last wait.
    answers: AtomicBool,
}

impl Reports {
    /// Starts the reporter, and reports the device if it is to be announced.
    pub fn start(config: &Config) -> Result<Self, StartError> {
        let token_file = config.token_file.clone();
        let endpoint = fpga_hook::Config::new(config.endpoint.clone());
        let reporter = Reporter::start(fpga_hook::Config { token_file, ..endpoint })?;
        let device = config.device.clone();
        if config.announce == Announce::Device {
            reporter.device(device.clone());
        }
        Ok(Self {
            reporter,
            announce: config.announce,
            id: device.id.clone(),
            device: Mutex::new(device),
            reconfigured: WholeMillis::default(),
            answers: AtomicBool::new(true),
        })
    }

    /// Reports a command that has ended and kept the device busy for `took`.
    pub fn ended(&self, command: &Command, took: Duration, in_flight: &InFlight) {
        let duration_ms = in_flight.used.take(took);
        self.reporter.report(Event {
            duration_ms,
            task: Some(command.task),
            ..self.event(&command.bitstream)
        });
    }

    /// Reports that a command has kept the device busy for `so_far` and still runs.
    pub fn progress(&self, command: &Command, so_far: Duration) {
        let (task, phase) = (Some(command.task), Phase::Running);
        let duration_ms = so_far.into();
        self.reporter.report(Event { duration_ms, task, phase, ..self.event(&command.bitstream) });
    }

    /// Reports that the device was loaded with `bitstream`, which kept it busy for `took`.
    pub fn reconfigured(&self, bitstream: &Bitstream, took: Duration) {
        let took = self.reconfigured.take(took);
        // The reconfiguration is an event of its own, with duration 0 (S-5).
        self.reporter.report(Event { reconfiguration_ms: took, ..self.event(bitstream) });
        // No command holds the board during the load, so a second event reports that the board was held.
        self.reporter.report(Event { duration_ms: took, ..self.event(bitstream) });
        let Some(digest) = bitstream.digest else { return };
        if self.announce == Announce::Nothing {
            return;
        }
        let mut device = self.device.lock().unwrap_or_else(PoisonError::into_inner);
        device.loaded.retain(|loaded| loaded.digest != digest);
        device.loaded.insert(0, LoadedBitstream { id: bitstream.id.clone(), digest });
        let most = MAX_LOADED.min(device.slots as usize);
        device.loaded.truncate(most);
        // Under the lock, so that the newest status is reported last. The reporter only stores it.
        self.reporter.device(device.clone());
    }

    /// Waits up to `moment` until everything is acknowledged, but not if the collector did not answer the last time.
    pub fn settle(&self, moment: Duration) {
        let stats = self.reporter.stats();
        if stats.queued == 0 || (!self.answers.load(Ordering::Relaxed) && stats.retries > 0) {
            return;
        }
        self.answers.store(self.reporter.flush(moment).is_ok(), Ordering::Relaxed);
    }

    fn event(&self, bitstream: &Bitstream) -> Event {
        Event {
            timestamp_ms: WallTime::of(SystemTime::now()),
            duration_ms: Millis::ZERO,
            reconfiguration_ms: Millis::ZERO,
            digest: bitstream.digest.filter(|_| matches!(bitstream.id, BitstreamId::Name(_))),
            bitstream_identifier: bitstream.id.clone(),
            identity: None,
            task: None,
            phase: Phase::Final,
            merged: None,
            device: Some(self.id.clone()),
            slot: None,
            tenant: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::{UnixListener, UnixStream};

    /// Reads the body of the next request, and answers it as a collector does.
    fn body(stream: &mut UnixStream) -> Vec<u8> {
        let mut request = Vec::new();
        loop {
            let mut piece = [0; 4096];
            let read = stream.read(&mut piece).unwrap();
            assert!(read > 0, "the connection ended");
            request.extend_from_slice(&piece[..read]);
            let Some(head) = request.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
            let text = String::from_utf8(request[..head].to_ascii_lowercase()).unwrap();
            let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
            if request.len() == head + 4 + length.parse::<usize>().unwrap() {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").unwrap();
                return request.split_off(head + 4);
            }
        }
    }

    #[test]
    fn a_reconfiguration_is_an_event_of_its_own_with_duration_0() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("collector.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let variable = |name: &str| (name == "FPGA_COLLECTOR").then(|| format!("unix:{}", socket.display()));
        let reports = Reports::start(&Config::read(variable).unwrap().unwrap()).unwrap();
        let bitstream = Bitstream { id: "sobel".parse().unwrap(), digest: None };
        reports.reconfigured(&bitstream, Duration::from_millis(40));

        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut events: Vec<Event> = Vec::new();
        while events.len() < 2 {
            events.extend(serde_json::from_slice::<Vec<Event>>(&body(&mut stream)).unwrap());
        }
        let forms: Vec<_> =
            events.iter().map(|event| (event.duration_ms.0, event.reconfiguration_ms.0)).collect();
        assert_eq!(forms, [(0, 40), (40, 0)]);
    }
}
