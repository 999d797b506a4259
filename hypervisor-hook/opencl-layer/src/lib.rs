//! `libfpga_opencl_layer.so`: an OpenCL layer (`OPENCL_LAYERS`) that times what a *native* application does on a
//! board and reports it (S-5, S-6). So the scheduler knows the node's usage without any change to the application or
//! its runtime.
//!
//! The layer sees kernels, transfers and bitstreams on their way through the loader and passes every call on. The
//! application gets the same results, error codes, properties and reference counts as without the layer. Without
//! `FPGA_COLLECTOR` in the environment the layer watches nothing.

mod bitstreams;
mod cl;
mod commands;
mod config;
mod contexts;
mod exports;
mod handles;
mod in_flight;
mod info;
mod programs;
mod property_list;
mod queues;
mod reports;
mod state;
mod table;
mod watch;
