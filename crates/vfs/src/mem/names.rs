//! The directories: which names exist, and which would survive a power loss.

use super::inode::{FileState, Inode, Space};
use ironstone_base::sync::Arc;
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::path::{Component, Path};

pub(super) type DirId = u64;
/// The directory that always exists.
pub(super) const ROOT: DirId = 0;

/// What a name stands for.
#[derive(Clone, Debug)]
pub(super) enum Node {
    File(Arc<Inode>),
    Dir(DirId),
}

pub(super) type Entries = BTreeMap<String, Node>;

/// A change of a directory that is not durable yet.
#[derive(Clone, Debug)]
pub(super) struct EntryOp {
    /// The number of the operation that made it. A rename between two directories leaves a change
    /// in each, with the same number: they survive together or not at all.
    pub(super) op: u64,
    pub(super) change: EntryChange,
    /// The other directory of a rename between two.
    pub(super) partner: Option<DirId>,
}

#[derive(Clone, Debug)]
pub(super) enum EntryChange {
    Set { name: String, node: Node },
    Remove { name: String },
    Rename { from: String, to: String, node: Node },
}

impl EntryChange {
    pub(super) fn apply(&self, entries: &mut Entries) {
        match self {
            Self::Set { name, node } => drop(entries.insert(name.clone(), node.clone())),
            Self::Remove { name } => drop(entries.remove(name)),
            Self::Rename { from, to, node } => {
                entries.remove(from);
                entries.insert(to.clone(), node.clone());
            }
        }
    }

    fn names_file(&self, inode: &Inode) -> bool {
        match self {
            Self::Set { node: Node::File(file), .. } | Self::Rename { node: Node::File(file), .. } => {
                file.id == inode.id
            }
            _ => false,
        }
    }

    fn map_nodes(&self, map: &mut impl FnMut(&Node) -> Node) -> Self {
        match self {
            Self::Set { name, node } => Self::Set { name: name.clone(), node: map(node) },
            Self::Remove { name } => Self::Remove { name: name.clone() },
            Self::Rename { from, to, node } => {
                Self::Rename { from: from.clone(), to: to.clone(), node: map(node) }
            }
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Directory {
    pub(super) current: Entries,
    /// Not kept without a crash model; nor is `pending`.
    pub(super) durable: Entries,
    pub(super) pending: Vec<EntryOp>,
}

/// A path split into names, without `.`, `..` and the leading slash. There are no symbolic links,
/// so `..` can be resolved by looking at the text.
pub(super) fn split(path: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name.to_string_lossy().into_owned()),
            Component::ParentDir => drop(names.pop()),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    names
}

/// All directories of a file system.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) dirs: HashMap<DirId, Directory>,
    /// The next number of an inode or a directory.
    pub(super) next_id: u64,
    /// Whether `durable` and `pending` are kept.
    tracked: bool,
}

impl Names {
    pub(super) fn new(tracked: bool) -> Self {
        Self { dirs: HashMap::from([(ROOT, Directory::default())]), next_id: ROOT + 1, tracked }
    }

    fn claim_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id - 1
    }

    pub(super) fn dir(&self, id: DirId) -> Result<&Directory, Errno> {
        self.dirs.get(&id).ok_or(Errno::NOENT) // Removed while somebody had it open.
    }

    pub(super) fn find(&self, path: &Path) -> Result<Node, Errno> {
        let mut node = Node::Dir(ROOT);
        for name in split(path) {
            let Node::Dir(id) = node else { return Err(Errno::NOTDIR) };
            node = self.dir(id)?.current.get(&name).ok_or(Errno::NOENT)?.clone();
        }
        Ok(node)
    }

    pub(super) fn find_dir(&self, path: &Path) -> Result<DirId, Errno> {
        match self.find(path)? {
            Node::Dir(id) => Ok(id),
            Node::File(_) => Err(Errno::NOTDIR),
        }
    }

    pub(super) fn find_file(&self, path: &Path) -> Result<Arc<Inode>, Errno> {
        match self.find(path)? {
            Node::File(inode) => Ok(inode),
            Node::Dir(_) => Err(Errno::ISDIR),
        }
    }

    /// The directory that holds (or would hold) `path`, and the name there.
    fn place(&self, path: &Path) -> Result<(DirId, String), Errno> {
        let mut names = split(path);
        let name = names.pop().ok_or(Errno::ISDIR)?;
        Ok((self.find_dir(&names.iter().collect::<std::path::PathBuf>())?, name))
    }

    fn change(&mut self, dir: DirId, op: u64, change: EntryChange, partner: Option<DirId>) {
        let tracked = self.tracked;
        let Some(dir) = self.dirs.get_mut(&dir) else { return };
        change.apply(&mut dir.current);
        if tracked {
            dir.pending.push(EntryOp { op, change, partner });
        }
    }

    /// The file at `path`, made if it is missing.
    pub(super) fn open_or_create(
        &mut self,
        path: &Path,
        op: u64,
        space: &Arc<Space>,
    ) -> Result<Arc<Inode>, Errno> {
        let (dir, name) = self.place(path)?;
        match self.dir(dir)?.current.get(&name) {
            Some(Node::File(inode)) => Ok(inode.clone()),
            Some(Node::Dir(_)) => Err(Errno::ISDIR),
            None => {
                let inode = Arc::new(Inode::new(self.claim_id(), Arc::new(FileState::default()), space));
                let node = Node::File(inode.clone());
                self.change(dir, op, EntryChange::Set { name, node }, None);
                Ok(inode)
            }
        }
    }

    pub(super) fn remove_file(&mut self, path: &Path, op: u64) -> Result<(), Errno> {
        self.find_file(path)?;
        let (dir, name) = self.place(path)?;
        self.change(dir, op, EntryChange::Remove { name }, None);
        Ok(())
    }

    pub(super) fn link(&mut self, from: &Path, to: &Path, op: u64) -> Result<(), Errno> {
        let node = Node::File(self.find_file(from)?);
        let (dir, name) = self.place(to)?;
        if self.dir(dir)?.current.contains_key(&name) {
            return Err(Errno::EXIST);
        }
        self.change(dir, op, EntryChange::Set { name, node }, None);
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path, op: u64) -> Result<(), Errno> {
        let node = self.find(from)?;
        let ((from_dir, from_name), (to_dir, to_name)) = (self.place(from)?, self.place(to)?);
        match (&node, self.dir(to_dir)?.current.get(&to_name)) {
            (_, None) | (Node::File(_), Some(Node::File(_))) => {}
            (Node::File(_), Some(Node::Dir(_))) => return Err(Errno::ISDIR),
            (Node::Dir(_), Some(Node::File(_))) => return Err(Errno::NOTDIR),
            (Node::Dir(_), Some(Node::Dir(old))) if self.dir(*old)?.current.is_empty() => {}
            (Node::Dir(_), Some(Node::Dir(_))) => return Err(Errno::NOTEMPTY),
        }
        if matches!(node, Node::Dir(_)) && split(to).starts_with(&split(from)) && split(to) != split(from) {
            return Err(Errno::INVAL); // Into itself.
        }
        if from_dir == to_dir {
            if from_name != to_name {
                self.change(from_dir, op, EntryChange::Rename { from: from_name, to: to_name, node }, None);
            }
            return Ok(());
        }
        self.change(from_dir, op, EntryChange::Remove { name: from_name }, Some(to_dir));
        self.change(to_dir, op, EntryChange::Set { name: to_name, node }, Some(from_dir));
        Ok(())
    }

    /// Makes one directory; its parent must exist. `false` if it is there already.
    pub(super) fn make_dir(&mut self, path: &Path, op: u64) -> Result<bool, Errno> {
        if split(path).is_empty() {
            return Ok(false);
        }
        let (dir, name) = self.place(path)?;
        match self.dir(dir)?.current.get(&name) {
            Some(Node::Dir(_)) => return Ok(false),
            Some(Node::File(_)) => return Err(Errno::EXIST),
            None => {}
        }
        let id = self.claim_id();
        self.dirs.insert(id, Directory::default());
        self.change(dir, op, EntryChange::Set { name, node: Node::Dir(id) }, None);
        Ok(true)
    }

    pub(super) fn remove_dir(&mut self, path: &Path, op: u64) -> Result<(), Errno> {
        let id = self.find_dir(path)?;
        if !self.dir(id)?.current.is_empty() {
            return Err(Errno::NOTEMPTY);
        }
        let (dir, name) = self.place(path)?;
        self.change(dir, op, EntryChange::Remove { name }, None);
        if !self.tracked {
            self.dirs.remove(&id);
        }
        Ok(())
    }

    /// Makes the changes of `dir` durable up to and including operation `last`. A rename takes the
    /// other directory along, up to the rename: the names move in one piece.
    pub(super) fn sync_dir(&mut self, dir: DirId, last: u64) {
        let mut todo = vec![(dir, last)];
        // Ends: every round that adds to the list has taken something out of a `pending`.
        while let Some((id, last)) = todo.pop() {
            let Some(dir) = self.dirs.get_mut(&id) else { continue };
            let count = dir.pending.partition_point(|pending| pending.op <= last);
            for pending in dir.pending.drain(..count) {
                pending.change.apply(&mut dir.durable);
                todo.extend(pending.partner.map(|partner| (partner, pending.op)));
            }
        }
    }

    /// Makes the names of a file durable, together with what was changed before in their directories.
    pub(super) fn sync_names_of(&mut self, inode: &Inode) {
        let last = |dir: &Directory| {
            dir.pending
                .iter()
                .rev()
                .find(|pending| pending.change.names_file(inode))
                .map(|pending| pending.op)
        };
        let found: Vec<_> = self.dirs.iter().filter_map(|(id, dir)| Some((*id, last(dir)?))).collect();
        for (id, op) in found {
            self.sync_dir(id, op);
        }
    }

    /// A copy whose files are copies too: what `copy` makes of each. Two names of one file stay so.
    pub(super) fn copy(&self, mut copy: impl FnMut(&Inode) -> Arc<Inode>) -> Self {
        let mut copied: HashMap<u64, Arc<Inode>> = HashMap::new();
        let mut map = |node: &Node| match node {
            Node::File(inode) => Node::File(copied.entry(inode.id).or_insert_with(|| copy(inode)).clone()),
            Node::Dir(id) => Node::Dir(*id),
        };
        let mut dirs = HashMap::with_capacity(self.dirs.len());
        for (id, dir) in &self.dirs {
            let mut entries =
                |entries: &Entries| entries.iter().map(|(name, node)| (name.clone(), map(node))).collect();
            let (current, durable) = (entries(&dir.current), entries(&dir.durable));
            let copied = |op: &EntryOp| EntryOp { change: op.change.map_nodes(&mut map), ..op.clone() };
            let pending = dir.pending.iter().map(copied).collect();
            dirs.insert(*id, Directory { current, durable, pending });
        }
        Self { dirs, next_id: self.next_id, tracked: self.tracked }
    }

    /// The directories with these entries, all durable; those that no path leads to are left out.
    pub(super) fn with_entries(&self, mut entries: BTreeMap<DirId, Entries>) -> Self {
        let mut dirs = HashMap::new();
        let mut todo = vec![ROOT];
        while let Some(id) = todo.pop() {
            let Some(current) = entries.remove(&id) else { continue };
            todo.extend(current.values().filter_map(|node| match node {
                Node::Dir(id) => Some(*id),
                Node::File(_) => None,
            }));
            dirs.insert(id, Directory { durable: current.clone(), current, pending: Vec::new() });
        }
        Self { dirs, next_id: self.next_id, tracked: self.tracked }
    }

    /// Visits every name that leads somewhere, parents first, in the order of the names.
    pub(super) fn walk(&self, mut visit: impl FnMut(&Path, &Node)) {
        let mut todo = vec![(std::path::PathBuf::from("/"), ROOT)];
        while let Some((path, id)) = todo.pop() {
            let Some(dir) = self.dirs.get(&id) else { continue };
            for (name, node) in &dir.current {
                let path = path.join(name);
                visit(&path, node);
                if let Node::Dir(id) = node {
                    todo.push((path, *id));
                }
            }
        }
    }
}
