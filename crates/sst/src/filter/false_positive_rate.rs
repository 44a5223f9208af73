//! How often a filter lets a key through by mistake. The Ribbon filter's size follows from these numbers,
//! so they must agree with RocksDB's to the last bit: the order of operations matters.

/// Of a Bloom filter whose bits are all within reach of each probe.
fn standard_fp_rate(bits_per_key: f64, probes: u32) -> f64 {
    let probes = f64::from(probes);
    (1.0 - (-probes / bits_per_key).exp()).powf(probes)
}

/// Of a Bloom filter whose probes for one key all fall into one line of `line_bits`: lines fill unevenly,
/// so it is the mean of the rates one standard deviation above and below the mean fill.
pub(super) fn cache_local_fp_rate(bits_per_key: f64, probes: u32, line_bits: u32) -> f64 {
    if bits_per_key <= 0.0 {
        return 1.0;
    }
    let line_bits = f64::from(line_bits);
    let keys_per_line = line_bits / bits_per_key;
    let deviation = keys_per_line.sqrt();
    let crowded = standard_fp_rate(line_bits / (keys_per_line + deviation), probes);
    let uncrowded = standard_fp_rate(line_bits / (keys_per_line - deviation), probes);
    (crowded + uncrowded) / 2.0
}
