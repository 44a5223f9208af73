use super::*;

#[test]
fn names_are_read_back_and_others_are_left_alone() {
    let key = BlockKey { identity: 0x1234_5678_9abc_def0_0fed_cba9_8765_4321, index: 17 };
    let name = block_name(key, 4096, 0xfeed, 3);
    assert_eq!(
        name,
        "123456789abcdef00fedcba987654321-00000011-00001000-000000000000feed-0000000000000003.block"
    );
    match parse_name(&name) {
        Some(Name::Block { key: read, len, checksum, serial }) => {
            assert_eq!((read, len, checksum, serial), (key, 4096, 0xfeed, 3));
        }
        _ => panic!("{name} is a block"),
    }
    assert!(matches!(parse_name(&stage_name(9)), Some(Name::Stage { serial: 9 })));
    for strange in [
        "",
        "LOCK",
        "7.stage",
        "x.block",
        "000000000000000g.stage",
        &name[1..],
        &name.to_uppercase(),
        &format!("+{}", &name[1..]),
    ] {
        assert!(parse_name(strange).is_none(), "{strange}");
    }
}
