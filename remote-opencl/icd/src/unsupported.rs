//! Stand-ins for functions that are not there: the standard's error, whatever the signature.
//!
//! A slot of the dispatch table takes its stand-in from its own type, so that the compiler writes each with the right
//! arguments and result.

use crate::cl;
use std::ffi::c_void;

/// A function pointer type that has a stand-in.
pub trait Stub: Sized {
    /// Does nothing but refuse.
    const STUB: Self;
}

/// What a refused call returns.
trait Refusal {
    fn refusal() -> Self;
}

impl Refusal for cl::cl_int {
    fn refusal() -> Self {
        cl::CL_INVALID_OPERATION
    }
}

impl Refusal for *mut c_void {
    fn refusal() -> Self {
        std::ptr::null_mut()
    }
}

impl Refusal for () {
    fn refusal() {}
}

/// What a refused call does with its last argument: fill it where it is `errcode_ret`.
trait LastArgument {
    /// # Safety
    /// The caller keeps the standard: `errcode_ret` is NULL or writable.
    unsafe fn refuse(self);
}

impl LastArgument for *mut cl::cl_int {
    unsafe fn refuse(self) {
        // SAFETY: NULL or writable by this function's contract.
        unsafe { crate::memory::write(self, cl::CL_INVALID_OPERATION) };
    }
}

macro_rules! ignored_as_last_argument {
    ($($type:ty),*) => { $(impl LastArgument for $type { unsafe fn refuse(self) {} })* };
}
ignored_as_last_argument!(
    *mut c_void,
    *const c_void,
    *mut cl::cl_uint,
    *mut usize,
    *mut cl::cl_ulong,
    *mut *mut c_void,
    *mut cl::cl_image_format,
    usize,
    cl::cl_uint
);

macro_rules! stubs {
    ($(($($arg:ident)*))*) => { $(
        impl<$($arg,)* Last: LastArgument, R: Refusal> Stub
            for Option<unsafe extern "C" fn($($arg,)* Last) -> R>
        {
            const STUB: Self = {
                #[allow(non_snake_case, reason = "named like its type")]
                unsafe extern "C" fn stub<$($arg,)* Last: LastArgument, R: Refusal>($(_: $arg,)* last: Last) -> R {
                    // SAFETY: the last argument is the caller's, who keeps the standard.
                    unsafe { last.refuse() };
                    R::refusal()
                }
                Some(stub::<$($arg,)* Last, R>)
            };
        }
    )* };
}
stubs! {
    ()
    (A)
    (A B)
    (A B C)
    (A B C D)
    (A B C D E)
    (A B C D E F)
    (A B C D E F G)
    (A B C D E F G H)
    (A B C D E F G H I)
    (A B C D E F G H I J)
    (A B C D E F G H I J K)
    (A B C D E F G H I J K L)
    (A B C D E F G H I J K L M)
}
