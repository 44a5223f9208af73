//! The metaindex: where a table's meta blocks are, by name. Format reference: docs/format/sst.md, "Metaindex".

use crate::block::{Block, MetaCursor};
use crate::handle::BlockHandle;
use crate::properties::text_of;
use ironstone_base::Corrupt;
use std::borrow::Cow;

/// A meta block: its name and its place.
pub type MetaBlock = (Cow<'static, str>, BlockHandle);

/// The names of those that most tables have: they need no memory of their own.
const COMMON_NAMES: [&str; 4] =
    ["rocksdb.properties", "rocksdb.index", "rocksdb.range_del", "fullfilter.rocksdb.BuiltinBloomFilter"];

/// All that `block` names, in its order.
pub(crate) fn decode(block: &Block) -> Result<Vec<MetaBlock>, Corrupt> {
    let mut cursor = MetaCursor::new(block);
    let mut named = Vec::new();
    while let Some((name, _, mut value)) = cursor.next()? {
        let name = match COMMON_NAMES.iter().find(|common| common.as_bytes() == name) {
            Some(common) => Cow::Borrowed(*common),
            None => Cow::Owned(text_of(name).into_owned()),
        };
        named.push((name, BlockHandle::decode(&mut value)?));
    }
    Ok(named)
}

/// The place of the block `name`, if there is one.
pub(crate) fn find(metaindex: &[MetaBlock], name: &str) -> Option<BlockHandle> {
    metaindex.iter().find(|(other, _)| other == name).map(|(_, handle)| *handle)
}
