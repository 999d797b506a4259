//! `libfpga_opencl_layer.so`: an OpenCL layer (`OPENCL_LAYERS`) that times what a *native* application does on a board and
//! reports it (S-5, S-6). The node is then under the scheduler with no change to the application or its runtime.
//!
//! Kernels, transfers and bitstreams are seen on their way through the loader; everything is passed on as it came. The
//! application gets the results, error codes, properties and reference counts that it would get without the layer.
//! Without `FPGA_COLLECTOR` in the environment nothing is even looked at.

mod bitstreams;
mod cl;
mod commands;
mod config;
mod contexts;
mod exports;
mod fork;
mod handles;
mod in_flight;
mod programs;
mod queues;
mod reports;
mod state;
mod table;
mod watch;
