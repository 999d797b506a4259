//! Calls every function of the table with zeros only, and compares the results with the document.

use crate::cl;
use crate::dispatch::{OFFSETS, probed};
use fpga_client::ClError;
use std::any::TypeId;
use std::ffi::c_void;
use std::fmt::Write as _;

const DOCUMENT: &str = include_str!("../../../../docs/entry-points.md");

/// A function that can be called with zeros.
pub trait Probe {
    /// The result of the call, as text.
    fn probe(&self) -> String;
}

/// A result of a call.
pub trait Given {
    /// The result as text, with the error code that the call may have written.
    fn tell(self, code: cl::cl_int) -> String;
}

impl Given for cl::cl_int {
    fn tell(self, _code: cl::cl_int) -> String {
        match self {
            cl::CL_SUCCESS => "success".to_owned(),
            error => name(error),
        }
    }
}

impl Given for *mut c_void {
    fn tell(self, code: cl::cl_int) -> String {
        assert!(self.is_null(), "something came of nothing");
        if code == UNTOUCHED { "NULL".to_owned() } else { name(code) }
    }
}

impl Given for () {
    fn tell(self, _code: cl::cl_int) -> String {
        "nothing".to_owned()
    }
}

const UNTOUCHED: cl::cl_int = 7;

fn name(error: cl::cl_int) -> String {
    let name = ClError(error).name();
    name.map_or_else(|| error.to_string(), |name| format!("CL_{name}"))
}

/// A zero argument, or `code` if the argument is a pointer to an int.
///
/// # Safety
/// All zeros are a valid value of `A`; `code` is writable while a pointer to an int is used.
unsafe fn argument<A: 'static>(code: *mut cl::cl_int) -> A {
    if TypeId::of::<A>() == TypeId::of::<*mut cl::cl_int>() {
        // SAFETY: both types are the same.
        return unsafe { std::mem::transmute_copy(&code) };
    }
    // SAFETY: all zeros are a valid value of `A` by this function's contract.
    unsafe { std::mem::zeroed() }
}

macro_rules! probes {
    ($(($($arg:ident)*))*) => { $(
        impl<$($arg: 'static,)* R: Given> Probe for Option<unsafe extern "C" fn($($arg),*) -> R> {
            #[allow(unused_mut, unused_variables, reason = "a function may have no arguments")]
            fn probe(&self) -> String {
                let function = self.expect("a null slot");
                let mut code = UNTOUCHED;
                let at = &raw mut code;
                // SAFETY: numbers and pointers may be zero, for which the standard defines errors; `code` is
                // writable.
                let given = unsafe { function($(argument::<$arg>(at)),*) };
                given.tell(code)
            }
        }
    )* };
}
probes! {
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
    (A B C D E F G H I J K L M N)
}

/// The lines of the document's tables: each function and its result for zeros.
fn documented() -> Vec<(String, String)> {
    let cells = |line: &str| {
        let mut cells =
            line.strip_prefix("| `")?.split('|').map(|cell| cell.trim().trim_matches('`').to_owned());
        Some((cells.next()?, cells.next_back().filter(|it| !it.is_empty()).or_else(|| cells.next_back())?))
    };
    DOCUMENT.lines().filter_map(cells).collect()
}

#[test]
fn every_entry_point_answers_zeros_as_the_document_says() {
    let probed = probed();
    // The table also has one function of OpenCL 3.1.
    assert_eq!(probed.len(), OFFSETS.len() + 1);
    let documented = documented();
    let mut wrong = String::new();
    for (function, gave) in &probed {
        let said: Vec<_> = documented.iter().filter(|(name, _)| name == function).collect();
        match said.as_slice() {
            [(_, said)] if said == gave => {}
            said => writeln!(wrong, "{function}\t{gave}\tdocumented: {said:?}").unwrap(),
        }
    }
    assert!(wrong.is_empty(), "docs/entry-points.md is not what happens:\n{wrong}");
    assert_eq!(documented.len(), probed.len(), "the document has a function that the table lacks");
}
