#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| fpga_fuzz::pool_messages(data));
