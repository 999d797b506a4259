use crate::cl;
use crate::controls::Controls;
use crate::icd::clIcdGetPlatformIDsKHR;
use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};

/// The board as a program sees it without a device manager: a context with the board's device, and a queue.
struct Board {
    table: &'static cl::cl_icd_dispatch,
    device: cl::cl_device_id,
    context: cl::cl_context,
    queue: cl::cl_command_queue,
}

impl Board {
    fn open() -> Self {
        let (mut platform, mut device, mut status) = (null_mut(), null_mut(), 0);
        // SAFETY: there is room for one platform.
        assert_eq!(unsafe { clIcdGetPlatformIDsKHR(1, &raw mut platform, null_mut()) }, 0, "install PoCL");
        // SAFETY: each object of an ICD begins with the address of its table, which lives as long as the library.
        let table: &cl::cl_icd_dispatch = unsafe { &**platform.cast::<*const cl::cl_icd_dispatch>() };
        // SAFETY: there is room for one device.
        let found = unsafe {
            table.clGetDeviceIDs.unwrap()(platform, cl::CL_DEVICE_TYPE_ALL, 1, &raw mut device, null_mut())
        };
        assert_eq!(found, 0);
        // SAFETY: the array has one device.
        let context = unsafe {
            table.clCreateContext.unwrap()(null(), 1, &raw const device, None, null_mut(), &raw mut status)
        };
        assert_eq!(status, 0);
        // SAFETY: context and device are live.
        let queue = unsafe { table.clCreateCommandQueue.unwrap()(context, device, 0, &raw mut status) };
        assert_eq!(status, 0);
        Self { table, device, context, queue }
    }

    fn build(&self, program: cl::cl_program) {
        // SAFETY: the program is live, and the array has one device.
        let built = unsafe {
            let device = &raw const self.device;
            self.table.clBuildProgram.unwrap()(program, 1, device, c"".as_ptr(), None, null_mut())
        };
        assert_eq!(built, 0);
    }

    /// An image with a kernel of this name that does nothing.
    fn image(&self, kernel: &str) -> Vec<u8> {
        let source = std::ffi::CString::new(format!("kernel void {kernel}() {{}}")).unwrap();
        let (mut text, mut status, mut size) = (source.as_ptr(), 0, 0_usize);
        // SAFETY: there is one text, which ends in NUL.
        let program = unsafe {
            let create = self.table.clCreateProgramWithSource.unwrap();
            create(self.context, 1, &raw mut text, null(), &raw mut status)
        };
        assert_eq!(status, 0);
        self.build(program);
        let info = |name, length, value: *mut c_void| {
            // SAFETY: the value has room for this length.
            let told =
                unsafe { self.table.clGetProgramInfo.unwrap()(program, name, length, value, null_mut()) };
            assert_eq!(told, 0);
        };
        info(cl::CL_PROGRAM_BINARY_SIZES, size_of::<usize>(), (&raw mut size).cast());
        let mut image = vec![0_u8; size];
        let mut bytes = image.as_mut_ptr();
        info(cl::CL_PROGRAM_BINARIES, size_of::<*mut u8>(), (&raw mut bytes).cast());
        image
    }

    /// The kernel of an image, which is loaded for it.
    fn load(&self, image: &[u8], kernel: &CStr) -> cl::cl_kernel {
        let (length, mut bytes, mut status) = (image.len(), image.as_ptr(), 0);
        // SAFETY: the arrays have one entry.
        let program = unsafe {
            let create = self.table.clCreateProgramWithBinary.unwrap();
            let device = &raw const self.device;
            create(self.context, 1, device, &raw const length, &raw mut bytes, null_mut(), &raw mut status)
        };
        assert_eq!(status, 0);
        self.build(program);
        // SAFETY: the program is live, and the name ends in NUL.
        let kernel = unsafe { self.table.clCreateKernel.unwrap()(program, kernel.as_ptr(), &raw mut status) };
        assert_eq!(status, 0);
        kernel
    }

    /// Launches the kernel, and waits for its end.
    fn launch(&self, kernel: cl::cl_kernel) -> cl::cl_int {
        let size = 1_usize;
        // SAFETY: queue and kernel are live, and the range has one dimension.
        unsafe {
            let launch = self.table.clEnqueueNDRangeKernel.unwrap();
            let status =
                launch(self.queue, kernel, 1, null(), &raw const size, null(), 0, null(), null_mut());
            assert_eq!(self.table.clFinish.unwrap()(self.queue), 0);
            status
        }
    }
}

// The only test of this program that loads images: the board is the process's.
#[test]
fn a_kernel_whose_image_another_one_replaced_is_refused_and_counted() {
    let board = Board::open();
    let controls = Controls::of_this_process();
    let images = [board.image("first"), board.image("second")];
    assert_eq!(controls.loads(), 0, "a program of source loads nothing");
    let first = board.load(&images[0], c"first");
    assert_eq!((board.launch(first), controls.refused()), (0, 0));
    let second = board.load(&images[1], c"second");
    assert_eq!(controls.loads(), 2);
    assert_eq!(board.launch(first), cl::CL_INVALID_PROGRAM_EXECUTABLE);
    assert_eq!(controls.refused(), 1);
    assert_eq!((board.launch(second), controls.refused()), (0, 1), "its image is on the board");
    let again = board.load(&images[0], c"first");
    assert_eq!((board.launch(again), controls.loads()), (0, 3));
    assert_eq!(board.launch(second), cl::CL_INVALID_PROGRAM_EXECUTABLE);
    assert_eq!(controls.refused(), 2);
}
