//! Execution of commands by the scripted manager, which moves bytes between vectors.

use super::session::State;
use fpga_protocol::v1::{self, command::Operation, data::Form};
use std::sync::atomic::Ordering;

impl State {
    pub(super) fn execute(&mut self, command: v1::Command) -> Option<v1::Data> {
        match command.operation.unwrap() {
            Operation::WriteBuffer(write) => {
                let bytes = self.data(write.data.unwrap());
                self.bytes(write.buffer, write.offset, bytes.len() as u64).copy_from_slice(&bytes);
                None
            }
            Operation::ReadBuffer(read) => {
                let bytes = self.bytes(read.buffer, read.offset, read.size).to_vec();
                let chunk_bytes = self.script.chunk_bytes.load(Ordering::SeqCst) as usize;
                let inline = bytes.len() <= fpga_protocol::limits::MAX_INLINE_BYTES && chunk_bytes == 0;
                let form = if inline {
                    Form::Inline(bytes.into())
                } else {
                    let chunk_bytes = if chunk_bytes == 0 { 256 * 1024 } else { chunk_bytes };
                    self.send_chunks(command.event, &bytes, chunk_bytes);
                    Form::Transfer(v1::Transfer { id: command.event, length: bytes.len() as u64 })
                };
                Some(v1::Data { form: Some(form) })
            }
            Operation::CopyBuffer(copy) => {
                let bytes = self.bytes(copy.source, copy.source_offset, copy.size).to_vec();
                self.bytes(copy.target, copy.target_offset, copy.size).copy_from_slice(&bytes);
                None
            }
            Operation::FillBuffer(fill) => {
                for part in self.bytes(fill.buffer, fill.offset, fill.size).chunks_mut(fill.pattern.len()) {
                    part.copy_from_slice(&fill.pattern);
                }
                None
            }
            Operation::WriteBufferRect(write) => {
                let bytes = self.data(write.data.unwrap());
                let rows = rows(&write.layout.unwrap(), &write.region);
                for (at, row) in rows.into_iter().zip(bytes.chunks(write.region[0] as usize)) {
                    self.bytes(write.buffer, at, write.region[0]).copy_from_slice(row);
                }
                None
            }
            Operation::ReadBufferRect(read) => {
                let mut bytes = Vec::new();
                for at in rows(&read.layout.unwrap(), &read.region) {
                    bytes.extend_from_slice(self.bytes(read.buffer, at, read.region[0]));
                }
                let form = if bytes.len() <= fpga_protocol::limits::MAX_INLINE_BYTES {
                    Form::Inline(bytes.into())
                } else {
                    self.send_chunks(command.event, &bytes, 256 * 1024);
                    Form::Transfer(v1::Transfer { id: command.event, length: bytes.len() as u64 })
                };
                Some(v1::Data { form: Some(form) })
            }
            Operation::CopyBufferRect(copy) => {
                let from = rows(&copy.source_layout.unwrap(), &copy.region);
                let to = rows(&copy.target_layout.unwrap(), &copy.region);
                for (from, to) in from.into_iter().zip(to) {
                    let row = self.bytes(copy.source, from, copy.region[0]).to_vec();
                    self.bytes(copy.target, to, copy.region[0]).copy_from_slice(&row);
                }
                None
            }
            Operation::NdRange(_) | Operation::Marker(_) | Operation::Barrier(_) => None,
            other => panic!("this manager has no images: {other:?}"),
        }
    }

    fn bytes(&mut self, buffer: u64, offset: u64, size: u64) -> &mut [u8] {
        let (buffer, origin) = self.subs.get(&buffer).copied().unwrap_or((buffer, 0));
        let begin = origin + offset as usize;
        &mut self.buffers.get_mut(&buffer).unwrap()[begin..begin + size as usize]
    }
}

/// Offsets at which the rows of a rectangle begin.
fn rows(layout: &v1::RectLayout, region: &[u64]) -> Vec<u64> {
    let v1::RectLayout { origin, row_pitch, slice_pitch } = layout;
    let start = origin[0] + origin[1] * row_pitch + origin[2] * slice_pitch;
    let slice = |slice: u64| (0..region[1]).map(move |row| start + slice * slice_pitch + row * row_pitch);
    (0..region[2]).flat_map(slice).collect()
}
