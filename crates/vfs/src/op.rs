//! The kinds of calls that a file system takes, for logs, counters and fault rules.

use std::fmt;

macro_rules! op_kinds {
    ($($(#[$doc:meta])* $kind:ident $name:literal,)*) => {
        /// A kind of call to a file system or to one of its files.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum OpKind { $($(#[$doc])* $kind,)* }

        impl OpKind {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)*];
            /// What the call does, as error messages say it: followed by the path.
            pub fn act(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }
        }
    };
}

op_kinds! {
    /// Opening to read front to back.
    OpenSequential "open",
    /// Opening to read anywhere.
    OpenRandom "open to read",
    /// Creating or emptying a file.
    Create "create",
    /// Opening to append.
    AppendTo "open to append to",
    /// Renaming and opening to overwrite.
    Reuse "reuse",
    /// Any read of a file's bytes.
    Read "read",
    /// An append or the write of a buffer.
    Append "write to",
    /// Handing a buffer over; in [`crate::mem`] this is an `Append`.
    Flush "flush",
    /// Syncing a file.
    Sync "sync",
    /// Cutting a file.
    Truncate "truncate",
    /// Reserving space.
    Allocate "allocate space for",
    /// Closing a written file.
    Close "close",
    /// Opening a directory.
    OpenDirectory "open directory",
    /// Syncing a directory.
    SyncDirectory "sync directory",
    /// Looking whether something is there.
    Exists "look for",
    /// Listing a directory.
    List "list",
    /// Removing a file.
    Remove "remove",
    /// Renaming.
    Rename "rename",
    /// Making a second name.
    Link "link",
    /// Making a directory.
    CreateDir "create directory",
    /// Removing a directory.
    RemoveDir "remove directory",
    /// Asking for a size.
    Size "size up",
    /// Asking for the time of the last write.
    Modified "read the time of",
    /// Asking for free space.
    FreeSpace "measure the free space of",
    /// Locking.
    Lock "lock",
    /// Resolving a path.
    Absolute "resolve",
}

impl OpKind {
    /// How many kinds there are.
    pub const COUNT: usize = Self::ALL.len();
    /// Whether the call changes what is on the disk, or makes it durable.
    pub fn changes(self) -> bool {
        matches!(
            self,
            Self::Create
                | Self::AppendTo
                | Self::Reuse
                | Self::Append
                | Self::Flush
                | Self::Sync
                | Self::Truncate
                | Self::Allocate
                | Self::Close
                | Self::SyncDirectory
                | Self::Remove
                | Self::Rename
                | Self::Link
                | Self::CreateDir
                | Self::RemoveDir
                | Self::Lock
        )
    }
}

impl fmt::Display for OpKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
