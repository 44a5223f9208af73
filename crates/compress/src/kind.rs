//! The codecs and their names.

/// A block codec. The numbers stand in block trailers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum CompressionKind {
    /// Stored as it is.
    #[default]
    None = 0,
    Snappy = 1,
    Zlib = 2,
    Bzip2 = 3,
    Lz4 = 4,
    /// The format of [`Lz4`](Self::Lz4), written with more effort.
    Lz4hc = 5,
    /// Of Windows. Recognised, never read or written.
    Xpress = 6,
    Zstd = 7,
}

impl CompressionKind {
    /// Every kind, by number.
    pub const ALL: [Self; 8] =
        [Self::None, Self::Snappy, Self::Zlib, Self::Bzip2, Self::Lz4, Self::Lz4hc, Self::Xpress, Self::Zstd];

    /// The kind with number `byte`, if there is one.
    #[inline]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        if (byte as usize) < Self::ALL.len() { Some(Self::ALL[byte as usize]) } else { None }
    }
    /// The name in table properties and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "NoCompression",
            Self::Snappy => "Snappy",
            Self::Zlib => "Zlib",
            Self::Bzip2 => "BZip2",
            Self::Lz4 => "LZ4",
            Self::Lz4hc => "LZ4HC",
            Self::Xpress => "Xpress",
            Self::Zstd => "ZSTD",
        }
    }
    /// The kind that table properties call `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
    /// The name in option strings and OPTIONS files.
    pub const fn option_name(self) -> &'static str {
        match self {
            Self::None => "kNoCompression",
            Self::Snappy => "kSnappyCompression",
            Self::Zlib => "kZlibCompression",
            Self::Bzip2 => "kBZip2Compression",
            Self::Lz4 => "kLZ4Compression",
            Self::Lz4hc => "kLZ4HCCompression",
            Self::Xpress => "kXpressCompression",
            Self::Zstd => "kZSTD",
        }
    }
    /// The kind that option strings call `name`.
    pub fn from_option_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.option_name() == name)
    }
    /// Whether this build reads and writes it.
    pub const fn is_supported(self) -> bool {
        !matches!(self, Self::Xpress)
    }
}
