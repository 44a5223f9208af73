#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ironstone_fuzz::run("trace", bytes));
