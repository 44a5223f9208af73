//! Expected values come from a program that was linked with RocksDB's own hash functions.

use super::*;

/// The input that the expected values are for.
pub(crate) fn sample(len: usize) -> Vec<u8> {
    let mut state = 1u32;
    let step = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(step).collect()
}

#[test]
fn murmur64a_is_what_rocksdb_computes() {
    let expected = [
        ("", 0x0000_0000_0000_0000, 0x765a_0209_bdce_32e7),
        ("a", 0x0717_17d2_d36b_6b11, 0x158c_faf9_d798_5c96),
        ("abcdefg", 0x241a_a52b_0a62_005d, 0xc4e7_b6aa_add9_16b8),
        ("abcdefgh", 0xafdb_0257_ff41_aa98, 0x9318_53cf_7ca9_9351),
        ("abcdefghijk", 0xfeff_07a1_8c72_6536, 0x8db7_97ba_0ffd_25bd),
    ];
    for (text, with_zero, with_seed) in expected {
        assert_eq!(murmur64a(text.as_bytes(), 0), with_zero, "{text}");
        assert_eq!(murmur64a(text.as_bytes(), 816_922_183), with_seed, "{text}");
    }
}

#[test]
fn hash64_is_what_rocksdb_computes() {
    // (length, with seed 0, with the seed below)
    const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
    let expected: &[(usize, u64, u64)] = &[
        (0, 0x5342_c301_0fe1_dd04, 0xffdd_b7ee_647f_9cb2),
        (1, 0x426e_8093_0971_d407, 0x90a1_cad5_422c_219f),
        (2, 0xf481_1ead_fbef_ef1e, 0x90dd_f9bd_3f9c_db40),
        (3, 0xd132_7577_25aa_ada0, 0x54b5_e107_7336_5c31),
        (4, 0xb271_de60_58fa_220f, 0x94ce_6285_706f_b74e),
        (5, 0xe956_8eae_d29c_ed15, 0x3c8b_25c0_0f49_27bf),
        (7, 0xa91a_8009_f87b_12a9, 0x4e9f_c56f_b0d1_2376),
        (8, 0x6e05_8107_2020_44c1, 0xa720_d1ec_a381_ef99),
        (9, 0x87ff_827b_46cd_f4dc, 0x8aae_1717_08da_17a8),
        (12, 0x73d2_00b8_73bd_b8ea, 0xffd6_ad32_3b61_eaa1),
        (15, 0xcd80_05f4_69f6_9a92, 0xde0b_5c10_0a98_77e9),
        (16, 0x01b5_3e4c_2c4c_26f6, 0x9a0f_2f9b_311c_2439),
        (17, 0xc60c_8ba1_fa51_ebb6, 0x24f3_c89b_ffb7_6326),
        (20, 0xe0ba_0163_7efa_7757, 0x75f6_4b37_6bf2_9d14),
        (24, 0x0386_9157_670a_06d9, 0x103b_82c0_b553_919c),
        (32, 0x3ca8_9399_dfe1_8a4c, 0xe090_5f96_6087_8cb3),
        (33, 0xfddb_5600_5ad7_e8bc, 0x9fc8_e657_4e5b_0f06),
        (48, 0xc431_f9a3_49a1_dd7c, 0xc0b9_b7c4_3a6d_f61b),
        (64, 0xf6c1_9d6c_bca2_a82d, 0x5de0_922c_3c88_6260),
        (65, 0x9a66_971f_4fed_277d, 0x4686_2ed0_4222_5c96),
        (96, 0xc06d_7f9b_6fcb_1b57, 0xc2c0_c65c_a05e_8b5e),
        (97, 0x2da9_a4d8_6961_18cb, 0x6875_55b8_5a8d_89ff),
        (127, 0xc676_f519_de70_b892, 0x2ae4_e3a7_6575_d600),
        (128, 0x557b_119a_0735_6820, 0xc529_c974_cbbb_1515),
        (129, 0xe41a_593a_f427_f3eb, 0xac30_5f1d_8617_f084),
        (143, 0x9f1f_4fd0_5e12_7e00, 0x0b2d_c487_de41_a520),
        (144, 0x0ad5_6de4_0559_1558, 0x7a09_539b_1d2e_0830),
        (160, 0xe63d_72ea_a15f_05fb, 0xa3bf_4978_911a_7bc5),
        (200, 0x3c90_d1d3_0e40_70fc, 0x6e91_c2c3_71af_cffc),
        (239, 0x2cdd_08b8_ce90_ca71, 0x9f4d_ace4_dab0_5133),
        (240, 0xf899_5a13_6f8d_73ba, 0x27e0_fd73_50cc_5510),
        (241, 0x2174_e428_0d88_bc7a, 0x59fe_04eb_6a29_c456),
        (255, 0x6094_3e25_60b8_f401, 0xeb56_490d_625a_9a0f),
        (256, 0x5947_d55e_7453_3e78, 0xca03_2d9e_8dd3_93f5),
        (257, 0xe6f5_ad39_39c8_9a93, 0x54cb_1ed2_8ba5_479a),
        (320, 0xde09_f631_b489_08aa, 0xca2a_cfe3_3d9e_a8f0),
        (511, 0x94eb_bad2_dbf2_47e5, 0xb697_80de_2c28_4eeb),
        (512, 0x4850_e608_1b91_d180, 0xb3cb_8e9a_f07f_4407),
        (1023, 0xe53b_124e_3396_3cf7, 0xfe73_523b_ae10_b0fe),
        (1024, 0x7d50_a9d4_4b8c_d9d8, 0xd74f_47be_5b9d_a246),
        (1025, 0xa9d1_aec5_7332_facb, 0xa855_f132_8266_6b21),
        (1088, 0x4ef0_8906_cc1d_fc5b, 0xc7a3_4618_b2f7_3e88),
        (2048, 0x7e66_9869_bae1_f1f4, 0xcb5e_f1f4_4ea7_3dde),
        (2049, 0x9101_5373_2d5a_36c1, 0xa0cb_cf7a_3a20_b9eb),
        (4096, 0xcea0_dea7_b3ad_bbaa, 0xb4e2_5119_bada_1f98),
        (5000, 0x1ecc_7fd2_189e_f7a4, 0xb851_ea17_9808_517a),
    ];
    for &(len, plain, seeded) in expected {
        let data = sample(len);
        assert_eq!(hash64(&data, 0), plain, "{len} bytes");
        assert_eq!(hash64(&data, SEED), seeded, "{len} bytes, seeded");
    }
}

#[test]
fn every_length_up_to_5000_agrees_with_rocksdb() {
    let data = sample(5000);
    let (mut plain, mut seeded, mut legacy) = (0u64, 0u64, 0u32);
    for len in 0..=data.len() {
        let (data, seed) = (&data[..len], (len as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        plain = plain.wrapping_mul(31).wrapping_add(hash64(data, 0));
        seeded = seeded.wrapping_mul(31).wrapping_add(hash64(data, seed));
        legacy = legacy.wrapping_mul(31).wrapping_add(hash32(data, len as u32));
    }
    assert_eq!(plain, 0x7886_6eb3_c36d_810b);
    assert_eq!(seeded, 0x767d_3885_29a3_3f83);
    assert_eq!(legacy, 0x6021_5016);
}

#[test]
fn hash32_is_what_rocksdb_computes() {
    // (length, seed of the legacy bloom filter, seed of the data block hash index)
    let expected: &[(usize, u32, u32)] = &[
        (0, 0xbc9f_1d34, 0x0000_018d),
        (1, 0x72a2_652b, 0xa6b8_3b08),
        (2, 0xf142_1e3b, 0x9f14_f93a),
        (3, 0x4d2c_7d26, 0xe56a_1fb5),
        (4, 0x0498_02c4, 0x573e_b479),
        (5, 0x4842_59c9, 0x44e3_279f),
        (7, 0xda79_b9c4, 0x4766_cb23),
        (8, 0x9c10_151a, 0xd22a_2400),
        (9, 0x3d36_e270, 0x557b_f3a9),
        (12, 0x0def_1389, 0xfa42_ebd9),
        (15, 0x94c2_67ea, 0x6ce2_6bf0),
        (16, 0xf226_817b, 0x3b36_1cbb),
        (17, 0xb19b_fbc2, 0xb20a_98bc),
        (20, 0x0429_b503, 0x2dd8_18f6),
        (24, 0xe055_df3f, 0x805b_e33f),
    ];
    for &(len, bloom, index) in expected {
        let data = sample(len);
        assert_eq!(hash32(&data, 0xbc9f_1d34), bloom, "{len} bytes");
        assert_eq!(hash32(&data, 397), index, "{len} bytes");
    }
}

#[test]
fn xxh_functions_are_the_published_ones() {
    let expected: &[(usize, u32, u64, u64)] = &[
        (0, 0x02cc_5d05, 0xef46_db37_51d8_e999, 0x2d06_8005_38d3_94c2),
        (1, 0xc0ec_d503, 0x0225_4593_3f06_bf0d, 0x429e_81bc_6744_101c),
        (7, 0xf908_8c90, 0x3a75_21b9_7b54_a753, 0x3902_7a52_dcba_383e),
        (17, 0x1212_337e, 0xeb63_f65f_9d7a_517e, 0xb5d6_b9c1_898b_d9d6),
        (100, 0xd9ab_3add, 0x3213_6076_cca5_109e, 0x2d7c_1fb2_5df2_d1da),
        (241, 0xc60a_c3e3, 0x4ad0_57cd_afb5_6edd, 0xd6af_ac6f_8fa8_5b01),
        (4096, 0x0165_2089, 0x707c_4903_cf49_218a, 0x436f_521f_6688_c5ed),
    ];
    for &(len, h32, h64, h3) in expected {
        let data = sample(len);
        assert_eq!((xxh32(&data), xxh64(&data), xxh3_64(&data)), (h32, h64, h3), "{len} bytes");
    }
}
