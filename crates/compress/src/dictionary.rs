//! Dictionaries from samples.

use crate::{CompressionKind, CompressionOptions};
use ironstone_base::{Error, Result};

/// Makes the dictionary for a table from `samples`, which is `sample_lens` samples laid end to end.
/// Empty means that the table gets none: there was nothing to sample, or the samples have too
/// little in common.
///
/// Only ZSTD dictionaries are trained. For the other codecs, and when training is off, the newest
/// `max_dict_bytes` of the samples are the dictionary.
pub fn train_dictionary(
    kind: CompressionKind,
    samples: &[u8],
    sample_lens: &[usize],
    options: &CompressionOptions,
) -> Result<Vec<u8>> {
    let total = sample_lens.iter().try_fold(0usize, |sum, &len| sum.checked_add(len));
    if total != Some(samples.len()) {
        return Err(Error::invalid_argument("dictionary: the sample lengths do not add up"));
    }
    let dict_len = options.max_dict_bytes as usize;
    let train =
        kind == CompressionKind::Zstd && options.zstd_max_train_bytes > 0 && options.use_zstd_dict_trainer;
    if !train {
        return Ok(samples[samples.len().saturating_sub(dict_len)..].to_vec());
    }
    if samples.is_empty() || dict_len == 0 {
        return Ok(Vec::new());
    }
    let mut dict = vec![0; dict_len];
    // The trainer fails on samples that are too few or too random. That is no error of ours: blocks
    // are compressed without a dictionary then.
    let len = zstd_safe::train_from_buffer(dict.as_mut_slice(), samples, sample_lens).unwrap_or(0);
    dict.truncate(len);
    Ok(dict)
}
