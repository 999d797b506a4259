//! A trace file in the schema of 2021, sorted by the starts of its rows.
//!
//! Rows are in the order of their ends. A first pass finds how long before the end of an earlier row a row can start;
//! the second pass keeps only as many rows as that requires.

use super::azure_2021::{Invocation, Invocations, TraceError};
use super::bad_rows::{BadRow, BadRows};
use super::request::Request;
use crate::time::{Micros, SimTime};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek as _};
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};

/// Size of a piece that is unpacked ahead, in bytes, and number of such pieces.
const PIECE: usize = 256 * 1024;
const PIECES: usize = 4;

/// The requests of a file in the order of their starts.
pub struct Ordered {
    rows: Invocations<Box<dyn Read + Send>>,
    /// Longest time by which a row starts before the latest end of the rows up to it.
    horizon: Micros,
    /// End of the last row to end.
    end: SimTime,
    latest_end: SimTime,
    waiting: BinaryHeap<Reverse<Waiting>>,
    read: u64,
    ended: bool,
    names: Names,
}

/// Start, index of the row, duration, function, application.
type Waiting = (SimTime, u64, Micros, u32, u32);

/// Numbers of applications and functions by their names, in the order of first appearance.
#[derive(Debug, Default)]
pub struct Names {
    functions: HashMap<(u32, String), u32>,
    apps: HashMap<String, u32>,
}

impl Ordered {
    /// Opens a CSV file, or a zip archive with one in it.
    ///
    /// # Errors
    /// [`TraceError`] if it can't be opened, has another schema, or has no valid row.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let mut horizon = Micros::ZERO;
        let mut latest_end = SimTime::BEGIN;
        let (mut good, mut bad_rows) = (0_u64, BadRows::default());
        for row in Invocations::new(bytes_of(path)?) {
            match row {
                Ok(row) => {
                    good += 1;
                    let (start, duration) = times(&row);
                    latest_end = latest_end.max(start + duration);
                    horizon = horizon.max(latest_end - start);
                }
                // An error without a line concerns the whole file, not one row.
                Err(error) if line_of(&error).is_none() => {
                    return Err(TraceError::Open { path: path.to_owned(), source: io::Error::other(error) });
                }
                Err(error) => bad_rows.add(bad_row(&error)),
            }
        }
        if good == 0 {
            return Err(TraceError::Empty { path: path.to_owned(), bad_rows });
        }
        Ok(Self {
            rows: Invocations::new(bytes_of(path)?),
            horizon,
            end: latest_end,
            latest_end: SimTime::BEGIN,
            waiting: BinaryHeap::new(),
            read: 0,
            ended: false,
            names: Names::default(),
        })
    }

    /// The end of the last request to end.
    #[must_use]
    pub fn end(&self) -> SimTime {
        self.end
    }
}

impl Iterator for Ordered {
    type Item = Result<Request, BadRow>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let due = self
                .waiting
                .peek()
                .is_some_and(|Reverse((start, ..))| self.ended || *start + self.horizon < self.latest_end);
            if due {
                let Reverse((at, _, duration, function, app)) = self.waiting.pop()?;
                return Some(Ok(Request { at, duration, function, app }));
            }
            if self.ended {
                return None;
            }
            match self.rows.next() {
                None => self.ended = true,
                Some(Ok(row)) => {
                    let (start, duration) = times(&row);
                    self.latest_end = self.latest_end.max(start + duration);
                    let app = self.names.app(&row.app);
                    let function = self.names.function(app, &row.function);
                    self.read += 1;
                    self.waiting.push(Reverse((start, self.read, duration, function, app)));
                }
                Some(Err(error)) => return Some(Err(bad_row(&error))),
            }
        }
    }
}

impl Names {
    /// The number of an application.
    pub fn app(&mut self, name: &str) -> u32 {
        number(&mut self.apps, name)
    }

    /// The number of a function of an application.
    pub fn function(&mut self, app: u32, name: &str) -> u32 {
        let next = u32::try_from(self.functions.len()).unwrap_or(u32::MAX);
        *self.functions.entry((app, name.to_owned())).or_insert(next)
    }
}

fn number(known: &mut HashMap<String, u32>, name: &str) -> u32 {
    if let Some(number) = known.get(name) {
        return *number;
    }
    let next = u32::try_from(known.len()).unwrap_or(u32::MAX);
    known.insert(name.to_owned(), next);
    next
}

fn times(row: &Invocation) -> (SimTime, Micros) {
    (SimTime::from_secs(row.start.as_secs_f64()), Micros::from_secs(row.duration.as_secs_f64()))
}

/// The last component of a path: documents show it instead of the whole path.
pub(crate) fn shown(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

pub(super) fn bad_row(error: &TraceError) -> BadRow {
    // [`BadRow`] has the line, so it is left out of the reason.
    let why = match error {
        TraceError::Range { column, value, .. } => format!("{column} is {value}"),
        TraceError::Csv(error) => match error.kind() {
            csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
                format!("{len} fields instead of {expected_len}")
            }
            csv::ErrorKind::Deserialize { err, .. } => err.to_string(),
            csv::ErrorKind::Utf8 { err, .. } => err.to_string(),
            _ => error.to_string(),
        },
        other => other.to_string(),
    };
    BadRow { line: line_of(error).unwrap_or(0), why }
}

fn line_of(error: &TraceError) -> Option<u64> {
    match error {
        TraceError::Csv(error) => error.position().map(csv::Position::line),
        TraceError::Range { line, .. } => Some(*line),
        _ => None,
    }
}

/// Magic numbers of packed files that must be unpacked first, and what to tell the user.
const PACKED: [(&[u8], &str); 4] = [
    (
        b"Rar!",
        "it is a RAR archive; unpack it with `unrar x` or `bsdtar -xf`, and write the path of the .txt that was in it",
    ),
    (b"\x1f\x8b", "it is packed with gzip; unpack it with `gunzip -k`"),
    (b"7z\xbc\xaf", "it is a 7z archive; unpack it with `7z x`"),
    (b"\xfd7zXZ", "it is packed with xz; unpack it with `unxz -k`"),
];

/// Opens a file; a zip archive is unpacked.
fn bytes_of(path: &Path) -> Result<Box<dyn Read + Send>, TraceError> {
    let open = |source| TraceError::Open { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(open)?;
    let mut begin = Vec::new();
    (&mut file).take(8).read_to_end(&mut begin).map_err(open)?;
    if let Some((_, what)) = PACKED.iter().find(|(magic, _)| begin.starts_with(magic)) {
        return Err(open(io::Error::other(*what)));
    }
    file.rewind().map_err(open)?;
    if begin.starts_with(b"PK\x03\x04") || begin.starts_with(b"PK\x05\x06") {
        let archive = zip::ZipArchive::new(BufReader::new(file)).map_err(|error| open(error.into()))?;
        let csv = (0..archive.len()).find(|&index| {
            let name =
                archive.name_for_index(index).and_then(Result::ok).map(|name| name.to_ascii_lowercase());
            name.is_some_and(|name| name.ends_with(".csv") || name.ends_with(".txt"))
        });
        let index = csv.ok_or_else(|| open(io::Error::other("the archive has no .csv or .txt file")))?;
        return Ok(Box::new(unpack(archive, index)));
    }
    Ok(Box::new(BufReader::with_capacity(PIECE, file)))
}

/// Unpacks one file of an archive in its own thread, a few pieces ahead.
fn unpack(mut archive: zip::ZipArchive<BufReader<File>>, index: usize) -> Unpacked {
    let (sender, pieces) = sync_channel(PIECES);
    std::thread::spawn(move || {
        let mut file = match archive.by_index(index) {
            Ok(file) => file,
            Err(error) => return drop(sender.send(Err(error.into()))),
        };
        loop {
            let mut piece = Vec::with_capacity(PIECE);
            let read = (&mut file).take(PIECE as u64).read_to_end(&mut piece);
            let last = !matches!(read, Ok(1..));
            // Sending fails when the reader was dropped.
            if sender.send(read.map(|_| piece)).is_err() || last {
                return;
            }
        }
    });
    Unpacked { pieces, piece: Vec::new(), at: 0 }
}

struct Unpacked {
    pieces: Receiver<io::Result<Vec<u8>>>,
    piece: Vec<u8>,
    at: usize,
}

impl Read for Unpacked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.at == self.piece.len() {
            let Ok(piece) = self.pieces.recv() else { return Ok(0) };
            (self.piece, self.at) = (piece?, 0);
        }
        let count = buffer.len().min(self.piece.len() - self.at);
        buffer[..count].copy_from_slice(&self.piece[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Origin, Trace};
    use std::io::Write as _;

    const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/traces/azure-functions-2021-sample-200.csv");

    fn requests(path: &Path) -> (Vec<Request>, Trace) {
        let mut trace = Trace::open(&Origin::Azure2021(path.to_owned())).unwrap();
        (trace.by_ref().collect(), trace)
    }

    #[test]
    fn the_sample_streams_in_the_order_in_which_it_is_read_whole() {
        let (streamed, trace) = requests(Path::new(SAMPLE));
        let whole = crate::trace::azure_2021::read(File::open(SAMPLE).unwrap()).unwrap();
        assert_eq!(trace.bad_rows.count, 0);
        assert_eq!(streamed.len(), whole.len());
        assert!(streamed.iter().all(|request| request.at + request.duration <= trace.end));
        assert!(streamed.is_sorted_by_key(|request| request.at));
        for (request, invocation) in streamed.iter().zip(&whole) {
            assert_eq!(request.at, times(invocation).0);
        }
    }

    #[test]
    fn bad_rows_are_counted_with_their_lines_and_the_rest_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.csv");
        std::fs::write(&path, "app,func,end_timestamp,duration\na,f,9,1\na,f,-1,1\na,f\na,f,3,1\n").unwrap();
        let (requests, trace) = requests(&path);
        assert_eq!(requests.iter().map(|request| request.at.secs()).collect::<Vec<_>>(), [2.0, 8.0]);
        assert_eq!(trace.bad_rows.first.iter().map(|row| row.line).collect::<Vec<_>>(), [3, 4]);
        let remarks = trace.remarks().join("\n");
        assert!(remarks.contains("Bad rows, left out: 2") && remarks.contains("line 3"), "{remarks}");
    }

    #[test]
    fn a_zip_archive_reads_like_the_file_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.zip");
        let mut archive = zip::ZipWriter::new(File::create(&path).unwrap());
        let options = zip::write::SimpleFileOptions::default();
        archive.start_file("readme.md", options).unwrap();
        archive.start_file("AzureFunctionsInvocationTraceForTwoWeeksJan2021.txt", options).unwrap();
        archive.write_all(&std::fs::read(SAMPLE).unwrap()).unwrap();
        archive.finish().unwrap();
        assert_eq!(requests(&path).0, requests(Path::new(SAMPLE)).0);
    }

    #[test]
    fn what_is_no_trace_is_refused_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.csv");
        let refused = |content: &[u8]| {
            std::fs::write(&path, content).unwrap();
            Ordered::open(&path).err().unwrap().to_string()
        };
        assert!(refused(b"x,y\n1,2\n").contains("its first line is \"x,y\""));
        assert!(refused(b"").contains("columns app, func, end_timestamp, duration"));
        assert!(refused(b"app,func,end_timestamp,duration\n").contains("write one row per invocation"));
        let all_bad = refused(b"app,func,end_timestamp,duration\na,f,-1,1\na,f,1\n");
        assert!(all_bad.contains("no row can be used of 2; line 2: end_timestamp is -1"), "{all_bad}");
        for (content, what) in [(&b"Rar!\x1a\x07"[..], "unrar x"), (b"\x1f\x8b\x08\0", "gunzip")] {
            let error = Ordered::open(&{
                std::fs::write(&path, content).unwrap();
                path.clone()
            });
            let TraceError::Open { source, .. } = error.err().unwrap() else { panic!("it can't be opened") };
            assert!(source.to_string().contains(what), "{source}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(Ordered::open(&path).is_err());
    }

    #[test]
    fn bad_rows_say_what_is_wrong_without_the_line_twice() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.csv");
        std::fs::write(&path, "app,func,end_timestamp,duration\na,f,9,1\na,f,-1,1\na,f\na,f,x,1\n").unwrap();
        let told = requests(&path).1.bad_rows.first.iter().map(BadRow::to_string).collect::<Vec<_>>();
        let wrong =
            ["line 3: end_timestamp is -1", "line 4: 2 fields instead of 4", "line 5: end_timestamp is x"];
        assert_eq!(told, wrong);
    }
}
