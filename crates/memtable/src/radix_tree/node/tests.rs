use super::*;
use crate::arena::Arena;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use std::collections::BTreeMap;

/// All children from `start` on, in the direction.
fn walk(node: Node<'_>, start: Symbol, end: Symbol, direction: Direction) -> Vec<Child> {
    let mut found = Vec::new();
    if let Some(mut order) = node.slot_order(start, end) {
        loop {
            let peeked = node.peek(&order, direction);
            let child = node.step(&mut order, direction);
            assert_eq!(child, peeked);
            found.extend(child);
            if child.is_none() {
                return found;
            }
        }
    }
    let mut at = start;
    while let Some((symbol, child)) = node.neighbour(at, end, direction) {
        (at, found) = (symbol, [found, vec![child]].concat());
    }
    found
}

#[test]
fn nodes_of_every_size_find_and_order_their_children() {
    for (seed, end) in [(1, END_FIRST), (2, END_LAST), (3, END_FIRST), (4, END_LAST)] {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut symbols: Vec<Symbol> = (0..256).chain([end]).collect();
        symbols.shuffle(&mut random);
        let arena = Arena::new(false, crate::BlockPool::new());
        let shape = Shape { level: 7, prefix: Prefix::Bytes(*b"abcd"), versions: false };
        // SAFETY: fresh pieces of the right sizes, from an arena that outlives the nodes.
        let mut node =
            unsafe { Node::create(arena.allocate(size_of_kind(SMALLEST)).pointer, SMALLEST, shape) };
        let mut model = BTreeMap::new();
        for (number, symbol) in symbols.into_iter().enumerate() {
            let child = Child::entry(PieceIndex(number as u32 + 1));
            let mut locked = node.lock().unwrap();
            if locked.add(symbol, child) {
                drop(locked);
            } else {
                // SAFETY: as above.
                let copy =
                    unsafe { locked.grow_into(arena.allocate(size_of_kind(locked.larger_kind())).pointer) };
                copy.add_unpublished(symbol, child);
                locked.mark_replaced();
                assert!(node.lock().is_none());
                node = copy;
            }
            model.insert(symbol, child);
            assert_eq!(node.level(), 7);
            assert!(matches!(node.prefix(), Prefix::Bytes(bytes) if bytes == *b"abcd"));
            if cfg!(miri) && number % 30 > 1 {
                continue;
            }
            for symbol in (0..256).chain([end]) {
                assert_eq!(node.child_of(symbol), model.get(&symbol).copied());
            }
            for start in [-2, -1, 0, 77, 200, 255, 256, 257] {
                let after: Vec<Child> = model.range(start + 1..).map(|(_, child)| *child).collect();
                assert_eq!(walk(node, start, end, Direction::Forward), after, "{start} of {number}");
                let before: Vec<Child> = model.range(..start).rev().map(|(_, child)| *child).collect();
                assert_eq!(walk(node, start, end, Direction::Backward), before, "{start} of {number}");
            }
        }
        let replacement = Child::node(PieceIndex(99));
        node.lock().unwrap().replace(end, replacement);
        assert_eq!(node.child_of(end), Some(replacement));
        assert_eq!(node.child_of(300), Some(replacement), "whatever is no byte is the end");
    }
}

#[test]
fn matching_bytes_are_found_exactly() {
    let words = [0, u64::MAX, 0x0100_ff80_7f01_0001, 0x8081_0080_0180_8001, 0x0001_0203_0405_0607];
    for low in words {
        for high in words {
            for byte in 0..=255u8 {
                let bytes = [low.to_le_bytes(), high.to_le_bytes()].concat();
                let expected = (0..16).filter(|at| bytes[*at] == byte).fold(0u64, |set, at| set | 1 << at);
                assert_eq!(matches16(low, high, byte), expected);
                assert_eq!(matches8(low, byte) | matches8(high, byte) << 8, expected);
            }
        }
    }
}
