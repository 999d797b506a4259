//! Stubs for functions that are not supported. Each returns the standard's error, whatever its signature.
//!
//! A slot of the dispatch table gets its stub by its type, so that the compiler generates each stub with the right
//! parameters and result.

use crate::cl;
use std::ffi::c_void;

/// A function pointer type for which there is a stub.
pub trait Stub: Sized {
    /// A function that does nothing and returns an error.
    const STUB: Self;
}

/// The result of a refused call.
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

/// The last argument of a refused call, which gets the error code if it is `errcode_ret`.
trait LastArgument {
    /// # Safety
    /// If the argument is `errcode_ret`, it is NULL or writable, as the standard requires.
    unsafe fn refuse(self);
}

impl LastArgument for *mut cl::cl_int {
    unsafe fn refuse(self) {
        // SAFETY: the pointer is NULL or writable by this function's contract.
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
                    // SAFETY: the caller passes an `errcode_ret` that is NULL or writable, as the standard requires.
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
