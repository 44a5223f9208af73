//! A layer of OpenDAL that lets chosen calls fail, below the layers that try again.

use ironstone_base::sync::Mutex;
use ironstone_base::sync::atomic::{AtomicU64, Ordering};
use ironstone_remote::opendal::raw::*;
use ironstone_remote::opendal::{
    Buffer, BytesRange, Capability, Error, ErrorKind, Metadata, OperationContext, Result,
};
use std::sync::Arc;

/// Which calls fail: of those whose kind is in `kinds` (of all if that is empty), the ones from number `from` on,
/// `count` of them.
#[derive(Clone, Debug)]
pub struct Rule {
    pub kinds: &'static [&'static str],
    pub from: u64,
    pub count: u64,
    /// Whether the failure may pass, so that it is worth another try; else the call is refused.
    pub temporary: bool,
    /// Fail after the call was made: nobody heard the answer.
    pub after: bool,
}

#[derive(Debug, Default)]
struct State {
    rule: Mutex<Option<Rule>>,
    seen: AtomicU64,
    struck: AtomicU64,
}

/// The layer; clones share their rule.
#[derive(Clone, Debug, Default)]
pub struct FaultyLayer(Arc<State>);

impl FaultyLayer {
    pub fn set(&self, rule: Option<Rule>) {
        *self.0.rule.lock() = rule;
        self.0.seen.store(0, Ordering::SeqCst);
        self.0.struck.store(0, Ordering::SeqCst);
    }
    pub fn struck(&self) -> u64 {
        self.0.struck.load(Ordering::SeqCst)
    }

    /// Whether the call fails, and if so, only after it was made.
    fn judge(&self, kind: &'static str) -> Option<(bool, Error)> {
        let rule = self.0.rule.lock().clone()?;
        if !rule.kinds.is_empty() && !rule.kinds.contains(&kind) {
            return None;
        }
        let number = self.0.seen.fetch_add(1, Ordering::SeqCst);
        if number < rule.from || number - rule.from >= rule.count {
            return None;
        }
        self.0.struck.fetch_add(1, Ordering::SeqCst);
        let error_kind = if rule.temporary { ErrorKind::Unexpected } else { ErrorKind::PermissionDenied };
        let error = Error::new(error_kind, format!("injected into {kind}"));
        Some((rule.after, if rule.temporary { error.set_temporary() } else { error }))
    }

    async fn around<T>(&self, kind: &'static str, call: impl Future<Output = Result<T>>) -> Result<T> {
        match self.judge(kind) {
            None => call.await,
            Some((false, error)) => Err(error),
            Some((true, error)) => {
                let _ = call.await;
                Err(error)
            }
        }
    }
}

impl Layer for FaultyLayer {
    fn apply_service(&self, inner: Servicer) -> Servicer {
        Arc::new(FaultyService { inner, layer: self.clone() })
    }
}

#[derive(Debug)]
struct FaultyService {
    inner: Servicer,
    layer: FaultyLayer,
}

/// A reader, writer, lister or deleter.
pub struct Faulty<T> {
    inner: T,
    layer: FaultyLayer,
}

impl FaultyService {
    fn wrap<T>(&self, inner: T) -> Faulty<T> {
        Faulty { inner, layer: self.layer.clone() }
    }
}

impl Service for FaultyService {
    type Reader = Faulty<oio::Reader>;
    type Writer = Faulty<oio::Writer>;
    type Lister = Faulty<oio::Lister>;
    type Deleter = Faulty<oio::Deleter>;
    type Copier = Faulty<oio::Copier>;
    type Composer = oio::Composer;

    fn info(&self) -> ServiceInfo {
        self.inner.info()
    }
    fn capability(&self) -> Capability {
        self.inner.capability()
    }
    async fn create_dir(&self, ctx: &OperationContext, path: &str, args: OpCreateDir) -> Result<RpCreateDir> {
        self.layer.around("create_dir", self.inner.create_dir(ctx, path, args)).await
    }
    async fn stat(&self, ctx: &OperationContext, path: &str, args: OpStat) -> Result<RpStat> {
        self.layer.around("stat", self.inner.stat(ctx, path, args)).await
    }
    fn read(&self, ctx: &OperationContext, path: &str, args: OpRead) -> Result<Self::Reader> {
        self.inner.read(ctx, path, args).map(|inner| self.wrap(inner))
    }
    fn write(&self, ctx: &OperationContext, path: &str, args: OpWrite) -> Result<Self::Writer> {
        self.inner.write(ctx, path, args).map(|inner| self.wrap(inner))
    }
    fn copy(&self, ctx: &OperationContext, from: &str, to: &str, args: OpCopy) -> Result<Self::Copier> {
        self.inner.copy(ctx, from, to, args).map(|inner| self.wrap(inner))
    }
    fn compose(&self, ctx: &OperationContext, to: &str, args: OpCompose) -> Result<Self::Composer> {
        self.inner.compose(ctx, to, args)
    }
    async fn rename(&self, ctx: &OperationContext, from: &str, to: &str, args: OpRename) -> Result<RpRename> {
        self.layer.around("rename", self.inner.rename(ctx, from, to, args)).await
    }
    async fn restore(&self, ctx: &OperationContext, path: &str, args: OpRestore) -> Result<RpRestore> {
        self.inner.restore(ctx, path, args).await
    }
    fn delete(&self, ctx: &OperationContext) -> Result<Self::Deleter> {
        self.inner.delete(ctx).map(|inner| self.wrap(inner))
    }
    fn list(&self, ctx: &OperationContext, path: &str, args: OpList) -> Result<Self::Lister> {
        self.inner.list(ctx, path, args).map(|inner| self.wrap(inner))
    }
    async fn presign(&self, ctx: &OperationContext, path: &str, args: OpPresign) -> Result<RpPresign> {
        self.inner.presign(ctx, path, args).await
    }
}

impl<T: oio::Read> oio::Read for Faulty<T> {
    async fn open(&self, range: BytesRange) -> Result<(RpRead, Box<dyn oio::ReadStreamDyn>)> {
        self.layer.around("read", self.inner.open(range)).await
    }
    async fn read(&self, range: BytesRange) -> Result<(RpRead, Buffer)> {
        self.layer.around("read", self.inner.read(range)).await
    }
}

impl<T: oio::Write> oio::Write for Faulty<T> {
    async fn write(&mut self, bytes: Buffer) -> Result<()> {
        self.layer.around("write", self.inner.write(bytes)).await
    }
    async fn copy_from(&mut self, path: &str, args: OpRead, range: BytesRange) -> Result<()> {
        self.inner.copy_from(path, args, range).await
    }
    async fn close(&mut self) -> Result<Metadata> {
        self.layer.around("close", self.inner.close()).await
    }
    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}

impl<T: oio::List> oio::List for Faulty<T> {
    async fn next(&mut self) -> Result<Option<oio::Entry>> {
        self.layer.around("list", self.inner.next()).await
    }
}

impl<T: oio::Delete> oio::Delete for Faulty<T> {
    async fn delete<'a>(&'a mut self, path: &'a str, args: OpDelete) -> Result<()> {
        self.layer.around("delete", self.inner.delete(path, args)).await
    }
    async fn close(&mut self) -> Result<()> {
        self.inner.close().await
    }
}

impl<T: oio::Copy> oio::Copy for Faulty<T> {
    async fn next(&mut self) -> Result<Option<usize>> {
        self.layer.around("copy", self.inner.next()).await
    }
    async fn close(&mut self) -> Result<Metadata> {
        self.inner.close().await
    }
    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}
