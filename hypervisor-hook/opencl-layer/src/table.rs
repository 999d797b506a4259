//! The dispatch table that the loader gives us, and the one that it gets: the same but for what is watched.

use crate::cl;
use crate::{commands, contexts, programs, queues};
use std::sync::OnceLock;

/// Functions in the table as we know it.
pub const ENTRIES: usize = size_of::<cl::cl_icd_dispatch>() / size_of::<usize>();

static TARGET: OnceLock<cl::cl_icd_dispatch> = OnceLock::new();

/// What the application's calls go on to.
pub fn target() -> &'static cl::cl_icd_dispatch {
    static NONE: OnceLock<cl::cl_icd_dispatch> = OnceLock::new();
    // No function of ours is called before the table is there.
    TARGET.get().unwrap_or_else(|| NONE.get_or_init(empty))
}

/// Whether a layer watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watching {
    /// It does.
    On,
    /// Everything goes through untouched.
    Off,
}

/// The table for the loader, made of its own of `entries` functions. Watches at most once in a process: a second layer of
/// ours in the chain would count everything twice.
///
/// # Safety
/// `theirs` points to a table of `entries` functions.
pub unsafe fn layered(
    theirs: *const cl::cl_icd_dispatch,
    entries: usize,
    watching: Watching,
) -> &'static cl::cl_icd_dispatch {
    let mut table = empty();
    // SAFETY: both tables have at least so many functions, each the size of a pointer; ours is nobody else's.
    unsafe {
        std::ptr::copy_nonoverlapping(
            theirs.cast::<usize>(),
            (&raw mut table).cast::<usize>(),
            entries.min(ENTRIES),
        );
    }
    if watching == Watching::On && TARGET.set(table).is_ok() {
        commands::insert(&mut table);
        contexts::insert(&mut table);
        programs::insert(&mut table);
        queues::insert(&mut table);
    }
    // The loader keeps it for the life of the process.
    Box::leak(Box::new(table))
}

/// Puts functions of ours where the target has one.
macro_rules! replace {
    ($table:ident: $($function:ident)*) => {
        $(if $table.$function.is_some() {
            $table.$function = Some($function);
        })*
    };
}
pub(crate) use replace;

fn empty() -> cl::cl_icd_dispatch {
    // SAFETY: a table of nullable pointers, for which zero is null.
    unsafe { std::mem::zeroed() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_that_of_opencl_3_0() {
        assert_eq!(ENTRIES, 149);
        for (offset, slot) in [
            (std::mem::offset_of!(cl::cl_icd_dispatch, clCreateContext), 4),
            (std::mem::offset_of!(cl::cl_icd_dispatch, clEnqueueNDRangeKernel), 59),
            (std::mem::offset_of!(cl::cl_icd_dispatch, clSetEventCallback), 81),
            (std::mem::offset_of!(cl::cl_icd_dispatch, clCreateCommandQueueWithProperties), 123),
            (std::mem::offset_of!(cl::cl_icd_dispatch, clSetContextDestructorCallback), 148),
        ] {
            assert_eq!(offset, slot * size_of::<usize>());
        }
    }

    #[test]
    fn a_short_table_is_taken_and_an_untouched_one_is_the_same() {
        let theirs = [16_usize; 10];
        // SAFETY: a table of 10.
        let table = unsafe { layered(theirs.as_ptr().cast(), theirs.len(), Watching::Off) };
        // SAFETY: both are of pointers.
        let words = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(table).cast::<usize>(), ENTRIES) };
        assert!(words[..10].iter().all(|word| *word == 16) && words[10..].iter().all(|word| *word == 0));
    }
}
