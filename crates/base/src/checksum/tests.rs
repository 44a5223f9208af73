//! Expected values come from a program that was linked with RocksDB's own checksum functions.

use super::*;
use crate::hash::tests::sample;

#[test]
fn crc32c_is_the_castagnoli_one() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    for (len, expected) in [
        (0, 0x0000_0000),
        (1, 0x2fdd_d530),
        (7, 0x005e_d6fc),
        (17, 0x4608_eae9),
        (100, 0xac23_b3cc),
        (241, 0xa2a4_22d3),
        (4096, 0x04a5_aab6),
    ] {
        let data = sample(len);
        assert_eq!(crc32c(&data), expected);
        for cut in 0..=len.min(40) {
            assert_eq!(crc32c_extend(crc32c(&data[..cut]), &data[cut..]), expected);
        }
    }
}

#[test]
fn masking_is_undone() {
    for crc in [0, 1, 0x8000_0000, u32::MAX, 0xe306_9283] {
        assert_ne!(mask_crc(crc), crc);
        assert_eq!(unmask_crc(mask_crc(crc)), crc);
    }
    assert_eq!(mask_crc(0), 0xa282_ead8);
}

#[test]
fn block_checksums_are_what_rocksdb_stores() {
    // (length, followed by type byte 7: kinds 0 to 4, alone: kinds 0 to 4)
    let expected: &[(usize, [u32; 5], [u32; 5])] = &[
        (
            0,
            [0x0000_0000, 0x11f7_f846, 0x002e_0d32, 0xe858_bbb7, 0xc820_0e2d],
            [0x0000_0000, 0xa282_ead8, 0x02cc_5d05, 0x51d8_e999, 0x0000_0000],
        ),
        (
            1,
            [0x0000_0000, 0xea40_57cf, 0xfa26_c38b, 0xf86e_4614, 0x97b7_8af3],
            [0x0000_0000, 0x4ce3_4a93, 0xc0ec_d503, 0x3f06_bf0d, 0x0d0d_721e],
        ),
        (
            31,
            [0x0000_0000, 0x4c11_965b, 0xf08c_ac29, 0xf053_04dd, 0x9148_0a5a],
            [0x0000_0000, 0x5024_34dd, 0x075c_e2c7, 0x08be_8004, 0xfe82_1d41],
        ),
        (
            32,
            [0x0000_0000, 0xeaad_93d7, 0x12b2_6029, 0x15f1_c09e, 0x190b_58c3],
            [0x0000_0000, 0x86c5_2814, 0x3033_0cb2, 0x92a9_ab1d, 0x89dc_bd90],
        ),
        (
            100,
            [0x0000_0000, 0x9cbc_fc83, 0x9a54_f595, 0xdd6f_a1c7, 0xad01_4b35],
            [0x0000_0000, 0x0a1c_431f, 0xd9ab_3add, 0xcca5_109e, 0xcedb_6b45],
        ),
        (
            241,
            [0x0000_0000, 0xa611_7805, 0xb393_1dd3, 0xb1b4_a3cc, 0x7f5b_c1ee],
            [0x0000_0000, 0xe82a_3020, 0xc60a_c3e3, 0xafb5_6edd, 0x4d63_b740],
        ),
        (
            4096,
            [0x0000_0000, 0xb0e5_0ee6, 0x4d90_3e99, 0x641c_51d2, 0x967b_5f02],
            [0x0000_0000, 0xf7ee_f423, 0x0165_2089, 0xcf49_218a, 0xe4d6_879c],
        ),
    ];
    for (len, with_type, alone) in expected {
        let data = sample(*len);
        for byte in 0..5 {
            let kind = ChecksumKind::from_byte(byte).unwrap();
            assert_eq!(kind as u8, byte);
            assert_eq!(block_checksum(kind, &data, 7), with_type[byte as usize], "{kind:?}, {len} bytes");
            assert_eq!(checksum(kind, &data), alone[byte as usize], "{kind:?}, {len} bytes");
        }
    }
    assert_eq!(ChecksumKind::from_byte(5), None);
}

#[test]
fn context_modifiers_are_what_rocksdb_adds() {
    assert_eq!(context_modifier(0, 77), 0);
    assert_eq!(context_modifier(0x1234_5678, 4096), 0x1234_4678);
    assert_eq!(context_modifier(0x1234_5678, 0xffff_ffff_0000_0123), 0x1234_575a);
}
