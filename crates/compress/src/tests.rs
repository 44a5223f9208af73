use super::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;

const KINDS: [CompressionKind; 6] = [
    CompressionKind::Snappy,
    CompressionKind::Zlib,
    CompressionKind::Bzip2,
    CompressionKind::Lz4,
    CompressionKind::Lz4hc,
    CompressionKind::Zstd,
];

/// `len` bytes that look like sorted rows with some noise.
fn rows(len: usize, seed: u64) -> Vec<u8> {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut bytes = Vec::new();
    let mut key = 0;
    while bytes.len() < len {
        key += random.random_range(1..9);
        let city = ["Wien", "Berlin", "Lagos", "Lima"][random.random_range(0..4)];
        bytes.extend_from_slice(format!("user{key:08}|{}|{city}|", random.random::<u16>()).as_bytes());
        if random.random_ratio(1, 8) {
            bytes.resize(bytes.len() + random.random_range(0..300), b'-');
        }
    }
    bytes.truncate(len);
    bytes
}

fn noise(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    SmallRng::seed_from_u64(7).fill(bytes.as_mut_slice());
    bytes
}

/// Options under which everything that fits its own size is kept.
fn keep_all() -> CompressionOptions {
    CompressionOptions { max_compressed_bytes_per_kb: 1023, ..Default::default() }
}

fn dictionaries() -> Vec<Option<Arc<[u8]>>> {
    let trained = train_dictionary(
        CompressionKind::Zstd,
        &rows(200_000, 1),
        &[2000; 100],
        &CompressionOptions { max_dict_bytes: 4096, zstd_max_train_bytes: 1 << 18, ..Default::default() },
    )
    .unwrap();
    assert!(trained.len() > 100, "the samples have much in common");
    let raw = [&b"user0000"[..], &rows(3, 2), &rows(5000, 2), &rows(100_000, 2)];
    let raw = raw.into_iter().map(|bytes| Some(Arc::from(bytes)));
    raw.chain([None, Some(Arc::from([])), Some(Arc::from(trained))]).collect()
}

fn decompress(decompressor: &Decompressor, kind: CompressionKind, payload: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    decompressor.decompress(kind, payload, 5, 1 << 20, &mut out).ok().map(|()| out)
}

#[test]
fn every_codec_gives_back_what_it_got() {
    for kind in KINDS {
        for dict in dictionaries() {
            let decompressor = Decompressor::new(dict.clone());
            for level in [CompressionOptions::DEFAULT_LEVEL, -3, 0, 1, 4, 7, 9, 12, 40] {
                if level == 40 && kind == CompressionKind::Zstd {
                    continue; // Takes its time, and is 22.
                }
                if level == 0 && kind == CompressionKind::Zlib {
                    continue; // Zlib's word for storing.
                }
                let options = CompressionOptions { level, checksum: level == 4, ..keep_all() };
                let mut compressor = Compressor::new(kind, &options, dict.clone()).unwrap();
                let mut kept = 0;
                for len in [0, 1, 4, 11, 12, 13, 14, 64, 500, 4096, 16_384, 70_000] {
                    let mut payload = b"before".to_vec();
                    let raw = rows(len, 3);
                    if compressor.compress(&raw, &mut payload, 5).unwrap() {
                        kept += 1;
                        let payload = &payload[b"before".len()..];
                        assert!(payload.len() < raw.len());
                        assert_eq!(decompressed_len(kind, payload, 5), Ok(Some(len)));
                        let back = decompress(&decompressor, kind, payload);
                        assert!(back.as_ref() == Some(&raw), "{kind:?} level {level}, {len} bytes");
                    } else {
                        assert_eq!(payload, b"before");
                    }
                }
                assert!(kept >= 4, "{kind:?} level {level} kept {kept}");
            }
        }
    }
}

#[test]
fn what_does_not_get_smaller_is_refused() {
    for kind in KINDS {
        let mut compressor = Compressor::new(kind, &CompressionOptions::default(), None).unwrap();
        let mut out = Vec::new();
        for len in [0, 1, 100, 5000] {
            assert!(!compressor.compress(&noise(len), &mut out, 5).unwrap(), "{kind:?}, {len} bytes");
            assert_eq!(out, b"");
        }
        // The refusal leaves nothing behind in the codec.
        let raw = rows(5000, 4);
        assert!(compressor.compress(&raw, &mut out, 5).unwrap(), "{kind:?}");
        assert!(decompress(&Decompressor::new(None), kind, &out) == Some(raw));
    }
}

#[test]
fn the_limit_counts_the_framing() {
    let raw = rows(4096, 5);
    for kind in KINDS {
        let mut out = Vec::new();
        Compressor::new(kind, &keep_all(), None).unwrap().compress(&raw, &mut out, 5).unwrap();
        // The block has 4 KiB. ZSTD wants some bytes of room beyond what it uses in the end.
        let slack = if kind == CompressionKind::Zstd { 8 } else { 0 };
        let enough = out.len().div_ceil(4) as i32;
        for (per_kb, kept) in [(enough + slack, true), (enough - 1, false), (0, false), (-5, false)] {
            let options = CompressionOptions { max_compressed_bytes_per_kb: per_kb, ..Default::default() };
            let mut compressor = Compressor::new(kind, &options, None).unwrap();
            assert_eq!(compressor.compress(&raw, &mut Vec::new(), 5), Ok(kept), "{kind:?} {per_kb}");
        }
    }
}

/// Any answer is fine as long as it is one, and takes no more memory than it may.
fn survives(decompressor: &Decompressor, kind: CompressionKind, bytes: &[u8], max_len: usize) {
    for version in [1, 5] {
        let mut out = Vec::new();
        let result = decompressor.decompress(kind, bytes, version, max_len, &mut out);
        if result.is_ok() {
            assert!(out.len() <= max_len, "{kind:?}: {} bytes", out.len());
        }
        assert!(out.capacity() <= (2 * max_len).max(4096), "{kind:?}: {} taken", out.capacity());
    }
}

#[test]
fn damaged_payloads_never_panic_nor_take_much_memory() {
    let dicts = [None, Some(Arc::from(rows(600, 1)))];
    let (short, long) = (rows(300, 6), rows(3000, 6));
    for (kind, dict) in KINDS.into_iter().flat_map(|kind| dicts.iter().map(move |dict| (kind, dict))) {
        let mut compressor = Compressor::new(kind, &keep_all(), dict.clone()).unwrap();
        let decompressor = Decompressor::new(dict.clone());
        for raw in [&short, &long] {
            let mut payload = Vec::new();
            assert!(compressor.compress(raw, &mut payload, 5).unwrap());
            for cut in 0..payload.len() {
                assert!(
                    decompress(&decompressor, kind, &payload[..cut]).as_ref() != Some(raw)
                        || kind == CompressionKind::Bzip2
                );
                survives(&decompressor, kind, &payload[..cut], 3000);
            }
            for at in 0..payload.len() {
                for mask in [1, 0x10, 0x80, 0xff] {
                    payload[at] ^= mask;
                    survives(&decompressor, kind, &payload, 3000);
                    payload[at] ^= mask;
                }
            }
            assert!(decompress(&decompressor, kind, &payload).as_ref() == Some(raw));
        }
    }
}

#[test]
fn random_bytes_never_panic() {
    let decompressors = [Decompressor::new(None), Decompressor::new(Some(Arc::from(rows(600, 1))))];
    let mut random = SmallRng::seed_from_u64(0x1257);
    for _ in 0..20_000 {
        let mut bytes = vec![0; random.random_range(0..60)];
        random.fill(bytes.as_mut_slice());
        for kind in KINDS {
            survives(&decompressors[random.random_range(0..2)], kind, &bytes, 10_000);
        }
    }
}

#[test]
fn what_expands_most_is_still_read() {
    let zeros = vec![0; 8 << 20];
    for kind in KINDS {
        let mut compressor = Compressor::new(kind, &keep_all(), None).unwrap();
        let mut payload = Vec::new();
        assert!(compressor.compress(&zeros, &mut payload, 5).unwrap());
        let mut out = Vec::new();
        let decompressor = Decompressor::new(None);
        decompressor.decompress(kind, &payload, 5, usize::MAX, &mut out).unwrap();
        assert!(out == zeros, "{kind:?}");
    }
}

#[test]
fn a_claimed_size_is_not_believed() {
    let gigabyte = [0x80, 0x80, 0x80, 0x80, 0x04, 0, 1, 2, 3];
    for kind in KINDS {
        let mut out = Vec::new();
        let decompressor = Decompressor::new(None);
        assert!(decompressor.decompress(kind, &gigabyte, 5, 1 << 20, &mut out).is_err());
        assert_eq!(out.capacity(), 0, "{kind:?}");
        if kind != CompressionKind::Bzip2 {
            assert!(decompressor.decompress(kind, &gigabyte, 5, usize::MAX, &mut out).is_err());
            assert_eq!(out.capacity(), 0, "{kind:?} cannot expand that much");
        }
    }
}

#[test]
fn the_limit_is_the_largest_size_that_is_read() {
    let raw = rows(5000, 8);
    for kind in KINDS {
        let mut payload = Vec::new();
        assert!(Compressor::new(kind, &keep_all(), None).unwrap().compress(&raw, &mut payload, 5).unwrap());
        let decompressor = Decompressor::new(None);
        let mut out = vec![1; 9000];
        assert!(decompressor.decompress(kind, &payload, 5, 5000, &mut out).is_ok());
        assert!(out == raw);
        assert!(decompressor.decompress(kind, &payload, 5, 4999, &mut out).is_err());
    }
}

#[test]
fn the_oldest_framings_are_read() {
    let raw = rows(5000, 9);
    let decompressor = Decompressor::new(None);
    for kind in [CompressionKind::Zlib, CompressionKind::Bzip2, CompressionKind::Lz4] {
        let mut new = Vec::new();
        assert!(Compressor::new(kind, &keep_all(), None).unwrap().compress(&raw, &mut new, 2).unwrap());
        let body = &new[2..]; // 5000 is a varint of 2 bytes.
        let old = match kind {
            CompressionKind::Lz4 => [&5000u64.to_le_bytes(), body].concat(),
            _ => body.to_vec(),
        };
        for version in [0, 1] {
            let mut out = Vec::new();
            assert_eq!(decompressor.decompress(kind, &old, version, 5000, &mut out), Ok(()), "{kind:?}");
            assert!(out == raw);
            assert!(decompressor.decompress(kind, &old, version, 4999, &mut out).is_err());
            assert!(decompressor.decompress(kind, &old[..old.len() - 9], version, 5000, &mut out).is_err());
        }
        assert!(Compressor::new(kind, &keep_all(), None).unwrap().compress(&raw, &mut new, 1).is_err());
    }
}

#[test]
fn blocks_of_the_c_libraries_are_read() {
    let golden: Vec<(&str, Vec<u8>)> = include_str!("../testdata/golden.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_once(' ').unwrap())
        .map(|(name, hex)| (name, hex.as_bytes().chunks(2).map(unhex).collect()))
        .collect();
    let find = |wanted: &str| &golden.iter().find(|(name, _)| *name == wanted).unwrap().1;
    let plain = Decompressor::new(None);
    let with_dict = Decompressor::new(Some(Arc::from(find("dict").as_slice())));
    for kind in KINDS {
        let name = kind.name().to_lowercase();
        assert_eq!(decompress(&plain, kind, find(&name)).as_ref(), Some(find("raw")), "{name}");
        let Some((_, payload)) = golden.iter().find(|(other, _)| *other == format!("{name}_dict")) else {
            continue;
        };
        assert_eq!(decompress(&with_dict, kind, payload).as_ref(), Some(find("raw")), "{name} with dict");
        assert_ne!(decompress(&plain, kind, payload).as_ref(), Some(find("raw")), "{name} without dict");
    }
}

fn unhex(two: &[u8]) -> u8 {
    u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()
}

#[test]
fn dictionaries_make_small_blocks_smaller() {
    let options = CompressionOptions { max_dict_bytes: 4096, zstd_max_train_bytes: 1 << 18, ..keep_all() };
    for kind in [CompressionKind::Zlib, CompressionKind::Lz4, CompressionKind::Lz4hc, CompressionKind::Zstd] {
        let samples = rows(options.max_sample_bytes(kind), 1);
        let lens = vec![512; samples.len() / 512];
        let dict = train_dictionary(kind, &samples, &lens, &options).unwrap();
        assert!(!dict.is_empty() && dict.len() <= 4096);
        let size = |dict| {
            let mut out = Vec::new();
            Compressor::new(kind, &options, dict).unwrap().compress(&rows(400, 10), &mut out, 5).unwrap();
            out.len()
        };
        let (with, without) = (size(Some(Arc::from(dict))), size(None));
        assert!(with < without, "{kind:?}: {with} and {without}");
    }
}

#[test]
fn training_copes_with_poor_samples() {
    let options =
        CompressionOptions { max_dict_bytes: 1024, zstd_max_train_bytes: 4096, ..Default::default() };
    let train =
        |samples: &[u8], lens: &[usize]| train_dictionary(CompressionKind::Zstd, samples, lens, &options);
    assert_eq!(train(b"", &[]), Ok(Vec::new()));
    assert_eq!(train(b"ab", &[1, 1]), Ok(Vec::new()));
    assert!(train(b"ab", &[1]).is_err());
    assert!(train(b"ab", &[usize::MAX, 3]).is_err());
    assert!(train(&noise(4000), &[400; 10]).is_ok());
}

/// The length that starts with a token's `code` and goes on in `rest`.
fn whole_length(code: u8, rest: &mut &[u8]) -> usize {
    let (mut len, mut more) = (usize::from(code), code == 15);
    while more {
        let (&byte, tail) = rest.split_first().unwrap();
        *rest = tail;
        len += usize::from(byte);
        more = byte == 255;
    }
    len
}

#[test]
fn lz4hc_blocks_end_as_the_format_demands() {
    for (seed, len) in (0..200).map(|len| (1, len)).chain((2..40).map(|seed| (seed, 1000))) {
        let raw = if seed % 3 == 0 { vec![b'x'; len] } else { rows(len, seed) };
        let mut space = vec![0; len + len / 200 + 16];
        let mut encoder = lz4hc::Lz4hc::new(9, b"");
        let used = encoder.compress(&raw, &mut space).expect("there is room for the worst case");
        let mut rest = &space[..used];
        let (mut at, mut last_literals, mut last_match) = (0, 0, None);
        while let Some((&token, tail)) = rest.split_first() {
            rest = tail;
            last_literals = whole_length(token >> 4, &mut rest);
            rest = &rest[last_literals..];
            at += last_literals;
            if rest.is_empty() {
                break;
            }
            last_match = Some(at);
            rest = &rest[2..];
            at += 4 + whole_length(token & 15, &mut rest);
        }
        assert_eq!(at, len);
        assert!(last_literals >= len.min(5), "{last_literals} literals at the end of {len}");
        assert!(last_match.is_none_or(|at| at + 12 <= len), "match at {last_match:?} of {len}");
    }
}

#[test]
fn kinds_have_rocksdbs_numbers_and_names() {
    for (byte, kind) in CompressionKind::ALL.into_iter().enumerate() {
        assert_eq!(CompressionKind::from_byte(byte as u8), Some(kind));
        assert_eq!(kind as usize, byte);
        assert_eq!(CompressionKind::from_name(kind.name()), Some(kind));
        assert_eq!(CompressionKind::from_option_name(kind.option_name()), Some(kind));
    }
    assert_eq!(CompressionKind::from_byte(8), None);
    assert_eq!(CompressionKind::from_byte(0x80), None);
    assert!(Compressor::new(CompressionKind::Xpress, &keep_all(), None).is_err());
    assert!(
        Decompressor::new(None).decompress(CompressionKind::Xpress, b"abc", 5, 10, &mut Vec::new()).is_err()
    );
}

#[test]
fn both_ends_can_be_handed_to_threads() {
    fn send<T: Send>() {}
    fn share<T: Sync>() {}
    send::<Compressor>();
    send::<Decompressor>();
    share::<Decompressor>();
}
