//! Compressed blocks: each codec, with and without a dictionary.
//!
//! ```text
//! shape           u8   bit 0: compressed here, or raw; 1: with a dictionary
//! codec           u8
//! format version  u8
//! limit           u8   which limit the block is held to
//! dictionary      length u8 and bytes, if there is one
//! payload         the rest; what is compressed here is first repeated
//! ```
//! A block never gets longer than the limit, and its length is the one that the framing says. What was compressed
//! here comes back.

use super::{Seed, Target};
use crate::input::Input;
use ironstone_base::sync::Arc;
use ironstone_compress::{CompressionKind, CompressionOptions, Compressor, Decompressor, decompressed_len};

pub(super) const TARGET: Target =
    Target { name: "decompress", what: "compressed blocks, every codec", run, seeds, mutations: 200_000 };

const LIMITS: [usize; 5] = [16 << 20, 1 << 20, 4096, 100, 0];

fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let shape = input.byte();
    let kind = input.pick(&CompressionKind::ALL);
    let version = u32::from(input.byte() % 8);
    let limit = input.pick(&LIMITS);
    let dict: Option<Arc<[u8]>> = (shape & 2 != 0).then(|| Arc::from(input.short()));
    if shape & 1 != 0 {
        return round_trip(&mut input, kind, dict, shape);
    }
    let payload = input.rest();
    let claimed = decompressed_len(kind, payload, version);
    let mut out = Vec::new();
    let result = Decompressor::new(dict).decompress(kind, payload, version, limit, &mut out);
    assert!(out.capacity() <= 2 * limit.max(payload.len()) + (1 << 16), "room for {}", out.capacity());
    if result.is_ok() {
        assert!(out.len() <= limit, "{} bytes where {limit} are allowed", out.len());
        if let Ok(Some(claimed)) = claimed {
            assert_eq!(out.len(), claimed);
        }
    }
}

fn round_trip(input: &mut Input<'_>, kind: CompressionKind, dict: Option<Arc<[u8]>>, shape: u8) {
    if !kind.is_supported() {
        return;
    }
    let part = input.take(4096);
    let raw = part.repeat(1 + usize::from(shape >> 4));
    let level = [CompressionOptions::DEFAULT_LEVEL, 1, 6, 9][usize::from(shape >> 2 & 3)];
    let options = CompressionOptions { level, ..CompressionOptions::default() };
    let mut compressor = Compressor::new(kind, &options, dict.clone()).expect("a codec that is there");
    let mut payload = Vec::new();
    if compressor.compress(&raw, &mut payload, 5).expect("version 5 is written") {
        let mut out = Vec::new();
        let result = Decompressor::new(dict).decompress(kind, &payload, 5, raw.len(), &mut out);
        assert_eq!(result, Ok(()));
        assert!(out == raw, "{kind:?} gives other bytes back");
    }
}

fn seeds() -> Vec<Seed> {
    let text = b"a block of text, a block of words, a block of text and words ".repeat(4);
    let mut seeds = Vec::new();
    for (number, kind) in CompressionKind::ALL.into_iter().enumerate().filter(|(_, kind)| kind.is_supported())
    {
        let number = number as u8;
        for dict in [&b""[..], b"text and words, a block"] {
            let with = if dict.is_empty() { 0 } else { 2 };
            let head: Vec<u8> = match with {
                0 => Vec::new(),
                _ => [&[dict.len() as u8][..], dict].concat(),
            };
            let shared = (with != 0).then(|| Arc::from(dict));
            let mut compressor =
                Compressor::new(kind, &CompressionOptions::default(), shared).expect("a codec that is there");
            let mut payload = Vec::new();
            compressor.compress(&text, &mut payload, 5).expect("version 5 is written");
            let raw = [&[with, number, 5, 0][..], &head, &payload].concat();
            seeds.push(Seed::new(format!("{}_dict_{}", kind.name(), with != 0), raw));
            let made = [&[1 | with | 0x30, number, 5, 0][..], &head, &text[..60]].concat();
            seeds.push(Seed::new(format!("{}_made_dict_{}", kind.name(), with != 0), made));
        }
    }
    // Zlib and bzip2 without a size, as table formats 0 and 1 have them: the framing cut off.
    for number in [2u8, 3] {
        let kind = CompressionKind::from_byte(number).expect("a codec");
        let mut compressor =
            Compressor::new(kind, &CompressionOptions::default(), None).expect("a codec that is there");
        let mut payload = Vec::new();
        compressor.compress(&text, &mut payload, 5).expect("version 5 is written");
        seeds.push(Seed::new(
            format!("{}_unsized", kind.name()),
            [&[0, number, 1, 0][..], payload.get(2..).unwrap_or_default()].concat(),
        ));
    }
    // A few bytes that claim four GiB.
    for number in 1..8u8 {
        let claim =
            [&[0, number, 5, 0][..], &[0xff, 0xff, 0xff, 0xff, 0x0f], &[0x28, 0xb5, 0x2f, 0xfd]].concat();
        seeds.push(Seed::new(format!("claims_4_gib_{number}"), claim));
    }
    seeds
}
