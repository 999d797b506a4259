//! PoCL below the board: its library, its platforms, and the function table to which all of its objects point.

use crate::cl;
use std::ffi::{CString, c_char, c_void};
use std::sync::OnceLock;

/// The ICD file of PoCL's package.
const ICD_FILE: &str = "/etc/OpenCL/vendors/pocl.icd";
const LIBRARY: &str = "libpocl.so.2";

pub type GetPlatforms = unsafe extern "C" fn(
    num: cl::cl_uint,
    platforms: *mut cl::cl_platform_id,
    num_ret: *mut cl::cl_uint,
) -> cl::cl_int;
pub type GetFunction = unsafe extern "C" fn(name: *const c_char) -> *mut c_void;

/// The functions of PoCL that an ICD loader calls.
pub struct Pocl {
    pub platforms: GetPlatforms,
    pub function: GetFunction,
}

/// The beginning of every object of an ICD.
#[repr(C)]
struct Object {
    table: *mut cl::cl_icd_dispatch,
}

static POCL: OnceLock<Option<Pocl>> = OnceLock::new();
static THEIRS: OnceLock<cl::cl_icd_dispatch> = OnceLock::new();

/// PoCL, if it is installed.
pub fn pocl() -> Option<&'static Pocl> {
    POCL.get_or_init(open).as_ref()
}

/// PoCL's original functions; `None` before [`take_over`].
pub fn theirs() -> Option<&'static cl::cl_icd_dispatch> {
    THEIRS.get()
}

fn open() -> Option<Pocl> {
    let text = std::fs::read_to_string(ICD_FILE).unwrap_or_default();
    let name = text.lines().next().map(str::trim).filter(|name| !name.is_empty()).unwrap_or(LIBRARY);
    let name = CString::new(name).ok()?;
    // SAFETY: the name ends in NUL; the library's initialisers run, as with any library.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return None;
    }
    // SAFETY: the library is live, and the name ends in NUL.
    let function = unsafe { libc::dlsym(library, c"clGetExtensionFunctionAddress".as_ptr()) };
    if function.is_null() {
        return None;
    }
    // SAFETY: the standard defines the type of the function with this name.
    let function = unsafe { std::mem::transmute::<*mut c_void, GetFunction>(function) };
    // SAFETY: the name ends in NUL.
    let platforms = unsafe { function(c"clIcdGetPlatformIDsKHR".as_ptr()) };
    if platforms.is_null() {
        return None;
    }
    // SAFETY: the extension defines the type of the function with this name.
    let platforms = unsafe { std::mem::transmute::<*mut c_void, GetPlatforms>(platforms) };
    Some(Pocl { platforms, function })
}

/// Lets `insert` put functions of the board into the table of `platform`, to which all of PoCL's objects point. Only
/// the first call has an effect.
///
/// # Safety
/// `platform` is one of PoCL's.
pub unsafe fn take_over(platform: cl::cl_platform_id, insert: impl FnOnce(&mut cl::cl_icd_dispatch)) {
    // SAFETY: each object of an ICD begins with the address of its table.
    let table = unsafe { (*platform.cast::<Object>()).table };
    if table.is_null() {
        return;
    }
    // SAFETY: in every PoCL since 3.0 the table is as long as OpenCL 3.0's, and it lives as long as the library.
    let own = unsafe { table.read() };
    if THEIRS.set(own).is_err() {
        return;
    }
    let page = 4096;
    let (start, end) = (table as usize / page * page, table as usize + size_of::<cl::cl_icd_dispatch>());
    // SAFETY: the pages are data of the library, and only become writable.
    unsafe { libc::mprotect(start as *mut c_void, end - start, libc::PROT_READ | libc::PROT_WRITE) };
    // SAFETY: the loader has not used the platform yet, so nobody reads the table now.
    insert(unsafe { &mut *table });
}
