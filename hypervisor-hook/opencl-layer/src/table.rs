//! The loader's dispatch table and the one that it gets back, which differs in the functions that are watched.

use crate::cl;
use std::sync::OnceLock;

/// Number of functions in the table, as of OpenCL 3.0.
pub const ENTRIES: usize = size_of::<cl::cl_icd_dispatch>() / size_of::<usize>();

static TARGET: OnceLock<cl::cl_icd_dispatch> = OnceLock::new();

/// The table that the application's calls are passed on to.
pub fn target() -> &'static cl::cl_icd_dispatch {
    static NONE: OnceLock<cl::cl_icd_dispatch> = OnceLock::new();
    // No function of the layer is called before the table is set.
    TARGET.get().unwrap_or_else(|| NONE.get_or_init(empty))
}

/// Whether the layer watches the application.
#[derive(Debug, Clone, Copy)]
pub enum Watching {
    /// The layer watches with the functions that this one puts into the table.
    On(fn(&mut cl::cl_icd_dispatch)),
    /// Every call passes through unchanged.
    Off,
}

/// The table for the loader, made from its own table of `entries` functions. The layer watches at most once per
/// process: a second copy in the chain would count everything twice.
///
/// # Safety
/// `theirs` points to a table of `entries` functions.
pub unsafe fn layered(
    theirs: *const cl::cl_icd_dispatch,
    entries: usize,
    watching: Watching,
) -> &'static cl::cl_icd_dispatch {
    let mut table = empty();
    // SAFETY: both tables have at least this many functions, each of the size of a pointer, and `table` is a local
    // variable.
    unsafe {
        std::ptr::copy_nonoverlapping(
            theirs.cast::<usize>(),
            (&raw mut table).cast::<usize>(),
            entries.min(ENTRIES),
        );
    }
    if let Watching::On(insert) = watching
        && TARGET.set(table).is_ok()
    {
        insert(&mut table);
    }
    // The loader uses the table until the process ends.
    Box::leak(Box::new(table))
}

/// Puts the layer's functions into the table where the target has them.
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
        // SAFETY: the table has 10 entries.
        let table = unsafe { layered(theirs.as_ptr().cast(), theirs.len(), Watching::Off) };
        // SAFETY: both types consist of pointers only.
        let words = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(table).cast::<usize>(), ENTRIES) };
        assert!(words[..10].iter().all(|word| *word == 16) && words[10..].iter().all(|word| *word == 0));
    }
}
