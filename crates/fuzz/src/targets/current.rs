//! CURRENT and IDENTITY.
//!
//! ```text
//! which  u8   bit 0: IDENTITY, or CURRENT
//! file   the rest
//! ```
//! What was read comes back when it is written and read again; an error names the file.

use super::{Seed, Target};
use crate::input::{Input, MAX_INPUT};
use crate::judge::check_error;
use ironstone_version::{current_manifest, read_identity, set_current, write_identity};
use ironstone_vfs::Env;
use std::path::Path;

pub(super) const TARGET: Target =
    Target { name: "current", what: "CURRENT and IDENTITY", run, seeds, mutations: 400_000 };

fn run(bytes: &[u8]) {
    let mut input = Input::new(&bytes[..bytes.len().min(MAX_INPUT)]);
    let is_identity = input.flag();
    let name = if is_identity { "IDENTITY" } else { "CURRENT" };
    let fs = Env::in_memory().fs;
    let dir = Path::new("/");
    fs.write_all_synced(&dir.join(name), input.rest()).expect("memory does not fail");
    if is_identity {
        match read_identity(&*fs, dir) {
            Ok(id) => {
                write_identity(&*fs, dir, &id).expect("memory does not fail");
                let again = read_identity(&*fs, dir).expect("it was just written");
                assert_eq!(again, id);
            }
            Err(error) => check_error(&error, Some(name)),
        }
        return;
    }
    match current_manifest(&*fs, dir) {
        Ok(number) => {
            set_current(&*fs, dir, number).expect("memory does not fail");
            assert_eq!(current_manifest(&*fs, dir), Ok(number));
        }
        Err(error) => check_error(&error, Some(name)),
    }
}

fn seeds() -> Vec<Seed> {
    let texts: [(&str, &[u8]); 7] = [
        ("current", b"\0MANIFEST-000005\n"),
        ("current_without_newline", b"\0MANIFEST-000005"),
        ("current_large", b"\0MANIFEST-18446744073709551615\n"),
        ("current_too_large", b"\0MANIFEST-18446744073709551616\n"),
        ("current_elsewhere", b"\0../MANIFEST-000005\n"),
        ("identity", b"\x018f1ccd45-63a6-4c4e-8c52-d4a0a4ba3e13"),
        ("identity_with_newline", b"\x018f1ccd45-63a6-4c4e-8c52-d4a0a4ba3e13\n"),
    ];
    texts.into_iter().map(|(name, bytes)| Seed::new(name, bytes)).collect()
}
