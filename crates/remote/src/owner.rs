//! The object that says which host uses a database.
//!
//! A local lock keeps other processes of the host away, but not other hosts. So whoever locks a database also writes
//! an object with a token, which a file beside the database holds too. After a crash the token tells that the
//! object is our own. There is no time limit: an owner that is gone for good is removed by hand.

use crate::client::Client;
use ironstone_base::{Error, Result};
use ironstone_vfs::{Clock, FileLock, FileSystem, SystemClock};
use std::path::Path;
use std::time::Duration;

/// The file that holds the token. Hidden in lists.
pub(crate) const OWNER_FILE: &str = ".remote-owner";
/// The name of the object in the database's directory.
const OWNER_OBJECT: &str = "OWNER";

/// Letting go does not wait for longer: the next to take the lock has the token.
const RELEASE_LIMIT: Duration = Duration::from_secs(5);

/// A local lock, with the owner's object.
pub(crate) struct OwnedLock {
    client: Client,
    key: String,
    token: String,
    /// Let go of after the object.
    _local: Box<dyn FileLock>,
}

impl FileLock for OwnedLock {}

impl OwnedLock {
    /// Becomes the owner of the database in `dir`, which `local` has locked, or says who is.
    pub(crate) fn claim(
        client: Client,
        fs: &dyn FileSystem,
        dir: &Path,
        directory: &str,
        local: Box<dyn FileLock>,
    ) -> Result<Self> {
        let (key, token) = (format!("{directory}{OWNER_OBJECT}"), token(fs, dir)?);
        let path = dir.join(OWNER_FILE);
        let ours = |text: &[u8]| String::from_utf8_lossy(text).lines().next() == Some(token.as_str());
        // Asked first: some servers do not know conditions, and would let us write.
        let before = client.read_small(&path, &key)?;
        if before.as_deref().is_none_or(|text| !ours(text)) {
            if let Some(text) = before {
                return Err(refusal(&client, dir, &key, &text));
            }
            let host = rustix::system::uname();
            let text = format!(
                "{token}\nhost {}\nprocess {}\ndirectory {}\nsince {} (seconds since 1970)\n",
                host.nodename().to_string_lossy(),
                std::process::id(),
                fs.absolute(dir)?.display(),
                SystemClock::new().now_seconds()
            );
            client.create_small(&path, &key, text.into_bytes())?;
            // A first try may have been heard of only by its second, and another host may have been faster.
            match client.read_small(&path, &key)? {
                Some(text) if ours(&text) => {}
                Some(text) => return Err(refusal(&client, dir, &key, &text)),
                None => return Err(refusal(&client, dir, &key, b"another host, which let go of it\n")),
            }
        }
        Ok(Self { client, key, token, _local: local })
    }
}

impl Drop for OwnedLock {
    fn drop(&mut self) {
        // Somebody may have removed it by hand, and another host may be the owner by now.
        self.client.delete_if_starts_with(&self.key, std::mem::take(&mut self.token), RELEASE_LIMIT);
    }
}

#[cold]
fn refusal(client: &Client, dir: &Path, key: &str, text: &[u8]) -> Error {
    let text = String::from_utf8_lossy(text);
    let who: Vec<&str> = text.lines().skip_while(|line| !line.contains(' ')).collect();
    Error::io_message(format!(
        "lock {}: the tables belong to another copy of this database ({}). If that is gone for good, remove {}",
        dir.display(),
        who.join(", "),
        client.uri(key)
    ))
}

/// The token in the file, or a new one.
fn token(fs: &dyn FileSystem, dir: &Path) -> Result<String> {
    let path = dir.join(OWNER_FILE);
    if fs.exists(&path)? {
        let text = String::from_utf8_lossy(&fs.read_all(&path)?).into_owned();
        if text.len() == 48 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Ok(text);
        } // Torn by a crash before it was used.
    }
    let clock = SystemClock::new();
    let token = format!("{:016x}{:016x}{:016x}", clock.now_micros(), clock.entropy(), clock.entropy());
    fs.write_all_synced(&path, token.as_bytes())?;
    fs.open_directory(dir)?.sync()?;
    Ok(token)
}
