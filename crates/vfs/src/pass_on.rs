//! File systems around others.

/// In the `impl` of [`FileSystem`](crate::FileSystem) for a file system that is around another one: the calls that go to that one
/// as they are.
///
/// ```
/// # use ironstone_vfs::{Directory, FileLock, FileSystem, OpenHints, RandomAccessFile, SequentialFile, WritableFile, WriteOptions};
/// # use ironstone_base::Result;
/// # use std::{path::{Path, PathBuf}, sync::Arc};
/// #[derive(Debug)]
/// struct ReadOnly(Arc<dyn FileSystem>);
///
/// # fn refused<T>() -> Result<T> { Err(ironstone_base::Error::not_supported("writing")) }
/// impl FileSystem for ReadOnly {
///     ironstone_vfs::pass_on! { self.0: open_sequential open_random open_mapped open_directory exists list size modified_seconds
///         free_space lock absolute expect_files link_count read_all }
/// #     fn append_to(&self, _: &Path, _: WriteOptions) -> Result<Box<dyn WritableFile>> { refused() }
/// #     fn reuse(&self, _: &Path, _: &Path, _: WriteOptions) -> Result<Box<dyn WritableFile>> { refused() }
/// #     fn remove(&self, _: &Path) -> Result<()> { refused() }
/// #     fn rename(&self, _: &Path, _: &Path) -> Result<()> { refused() }
/// #     fn link(&self, _: &Path, _: &Path) -> Result<()> { refused() }
/// #     fn create_dir_all(&self, _: &Path) -> Result<()> { refused() }
/// #     fn remove_dir(&self, _: &Path) -> Result<()> { refused() }
///     fn create(&self, path: &Path, _: WriteOptions) -> Result<Box<dyn WritableFile>> {
///         // ... and the others refuse.
/// #         let _ = path;
/// #         refused()
///     }
/// }
/// let fs = ReadOnly(Arc::new(ironstone_vfs::mem::MemFileSystem::volatile()));
/// assert!(!fs.exists(Path::new("/file"))? && fs.write_all_synced(Path::new("/file"), b"").is_err());
/// # Ok::<_, ironstone_base::Error>(())
/// ```
#[macro_export]
macro_rules! pass_on {
    ($self:ident.$to:tt: $($call:ident)*) => { $( $crate::pass_on!(@$call $self $to); )* };

    (@open_sequential $self:ident $to:tt) => {
        $crate::pass_on!(@fn $self $to open_sequential(path: Path) -> Box<dyn $crate::SequentialFile>);
    };
    (@open_random $self:ident $to:tt) => {
        $crate::pass_on!(@fn $self $to open_random(path: Path; hints: $crate::OpenHints) -> Box<dyn $crate::RandomAccessFile>);
    };
    (@open_mapped $self:ident $to:tt) => {
        $crate::pass_on!(@fn $self $to open_mapped(path: Path) -> Option<Box<dyn $crate::RandomAccessFile>>);
    };
    (@create $self:ident $to:tt) => {
        $crate::pass_on!(@fn $self $to create(path: Path; options: $crate::WriteOptions) -> Box<dyn $crate::WritableFile>);
    };
    (@append_to $self:ident $to:tt) => {
        $crate::pass_on!(@fn $self $to append_to(path: Path; options: $crate::WriteOptions) -> Box<dyn $crate::WritableFile>);
    };
    (@reuse $self:ident $to:tt) => {
        $crate::pass_on!(@fn $self $to reuse(old: Path, new: Path; options: $crate::WriteOptions) -> Box<dyn $crate::WritableFile>);
    };
    (@open_directory $self:ident $to:tt) => {
        $crate::pass_on!(@fn $self $to open_directory(path: Path) -> Box<dyn $crate::Directory>);
    };
    (@exists $self:ident $to:tt) => { $crate::pass_on!(@fn $self $to exists(path: Path) -> bool); };
    (@list $self:ident $to:tt) => { $crate::pass_on!(@fn $self $to list(path: Path) -> Vec<String>); };
    (@remove $self:ident $to:tt) => { $crate::pass_on!(@fn $self $to remove(path: Path) -> ()); };
    (@rename $self:ident $to:tt) => { $crate::pass_on!(@fn $self $to rename(from: Path, to: Path) -> ()); };
    (@link $self:ident $to:tt) => { $crate::pass_on!(@fn $self $to link(from: Path, to: Path) -> ()); };
    (@create_dir_all $self:ident $to:tt) => { $crate::pass_on!(@fn $self $to create_dir_all(path: Path) -> ()); };
    (@remove_dir $self:ident $to:tt) => { $crate::pass_on!(@fn $self $to remove_dir(path: Path) -> ()); };
    (@size $self:ident $to:tt) => { $crate::pass_on!(@fn $self $to size(path: Path) -> u64); };
    (@modified_seconds $self:ident $to:tt) => { $crate::pass_on!(@fn $self $to modified_seconds(path: Path) -> u64); };
    (@free_space $self:ident $to:tt) => { $crate::pass_on!(@fn $self $to free_space(path: Path) -> u64); };
    (@lock $self:ident $to:tt) => {
        $crate::pass_on!(@fn $self $to lock(path: Path) -> Box<dyn $crate::FileLock>);
    };
    (@absolute $self:ident $to:tt) => {
        $crate::pass_on!(@fn $self $to absolute(path: Path) -> ::std::path::PathBuf);
    };
    (@expect_files $self:ident $to:tt) => {
        fn expect_files(&$self, count: usize) {
            $self.$to.expect_files(count);
        }
    };
    (@link_count $self:ident $to:tt) => { $crate::pass_on!(@fn $self $to link_count(path: Path) -> Option<u64>); };
    (@truncate $self:ident $to:tt) => { $crate::pass_on!(@fn $self $to truncate(path: Path; size: u64) -> ()); };
    (@read_all $self:ident $to:tt) => { $crate::pass_on!(@fn $self $to read_all(path: Path) -> Vec<u8>); };
    (@write_all_synced $self:ident $to:tt) => {
        $crate::pass_on!(@fn $self $to write_all_synced(path: Path; bytes: &[u8]) -> ());
    };

    (@fn $self:ident $to:tt $call:ident($($path:ident: Path),* $(; $more:ident: $kind:ty)?) -> $answer:ty) => {
        fn $call(&$self, $($path: &::std::path::Path,)* $($more: $kind)?) -> $crate::Result<$answer> {
            $self.$to.$call($($path,)* $($more)?)
        }
    };
}
