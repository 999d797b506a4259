//! What kernels print, with `printf`: it goes to the standard output of the program, as if its own runtime had printed.
#![allow(unsafe_code)]

use memchr::memmem::find;
use std::fs::File;
use std::io::Write as _;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd as _, RawFd};

/// The standard output, which is also the C library's.
const STANDARD_OUTPUT: RawFd = 1;

/// Whether the kernels of a program of this source may print. A file that it includes may do so, too.
pub fn may_print_source(source: &[u8]) -> bool {
    may_print(source) || find(source, b"include").is_some()
}

/// Whether the kernels of a program of this binary or intermediate language may print.
pub fn may_print(binary: &[u8]) -> bool {
    find(binary, b"printf").is_some()
}

/// Writes the text. A program without a standard output misses it.
pub fn write(text: &[u8]) {
    // SAFETY: the descriptor is not closed here. If the program has closed it, the write fails, or goes to the file that has its number
    // now, as that of a native runtime.
    let mut output = ManuallyDrop::new(unsafe { File::from_raw_fd(STANDARD_OUTPUT) });
    let _ = output.write_all(text);
}
