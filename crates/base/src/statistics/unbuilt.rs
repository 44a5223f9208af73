//! Which tickers and histograms stay 0, because what they count is not built. `docs/statistics.md` is this in words.

use super::{Histogram, Ticker};

impl Ticker {
    /// What would have to be built for it to be counted; `None` if it is counted.
    pub fn unbuilt(self) -> Option<&'static str> {
        use Ticker::*;
        Some(match self {
            BlockCacheCompressionDictMiss
            | BlockCacheCompressionDictHit
            | BlockCacheCompressionDictAdd
            | BlockCacheCompressionDictBytesInsert
            | BlockCacheCompressionDictAddRedundant => {
                "compression dictionaries in the block cache (open tables keep theirs)"
            }
            SecondaryCacheHits
            | SecondaryCacheFilterHits
            | SecondaryCacheIndexHits
            | SecondaryCacheDataHits
            | CompressedSecondaryCacheDummyHits
            | CompressedSecondaryCacheHits
            | CompressedSecondaryCachePromotions
            | CompressedSecondaryCachePromotionSkips => "secondary caches",
            WalPrecreateHit
            | WalPrecreateMiss
            | WalPrecreateWaited
            | WalPrecreateWaitMicros
            | WalPrecreateFailed => "WALs that are created ahead",
            NumberDirectLoadTableProperties => {
                "properties of tables that are not opened (they are always read from open tables)"
            }
            BlobDbNumPut
            | BlobDbNumWrite
            | BlobDbNumGet
            | BlobDbNumMultiget
            | BlobDbNumSeek
            | BlobDbNumNext
            | BlobDbNumPrev
            | BlobDbNumKeysWritten
            | BlobDbNumKeysRead
            | BlobDbBytesWritten
            | BlobDbBytesRead
            | BlobDbWriteInlinedDeprecated
            | BlobDbWriteInlinedTtlDeprecated
            | BlobDbWriteBlob
            | BlobDbWriteBlobTtl
            | BlobDbBlobFileBytesWritten
            | BlobDbBlobFileBytesRead
            | BlobDbBlobFileSynced
            | BlobDbBlobIndexExpiredCount
            | BlobDbBlobIndexExpiredSize
            | BlobDbBlobIndexEvictedCount
            | BlobDbBlobIndexEvictedSize
            | BlobDbGcNumFiles
            | BlobDbGcNumNewFiles
            | BlobDbGcFailures
            | BlobDbGcNumKeysRelocated
            | BlobDbGcBytesRelocated
            | BlobDbFifoNumFilesEvicted
            | BlobDbFifoNumKeysEvicted
            | BlobDbFifoBytesEvicted
            | BlobDbCacheMiss
            | BlobDbCacheHit
            | BlobDbCacheAdd
            | BlobDbCacheAddFailures
            | BlobDbCacheBytesRead
            | BlobDbCacheBytesWrite => BLOBS,
            TxnPrepareMutexOverhead
            | TxnOldCommitMapMutexOverhead
            | TxnDuplicateKeyOverhead
            | TxnSnapshotMutexOverhead
            | TxnGetTryAgain
            | NumberWbwiIngest => TRANSACTIONS,
            RemoteCompactReadBytes | RemoteCompactWriteBytes | RemoteCompactResumedBytes => REMOTE_COMPACTION,
            HotFileReadBytes
            | WarmFileReadBytes
            | CoolFileReadBytes
            | ColdFileReadBytes
            | IceFileReadBytes
            | HotFileReadCount
            | WarmFileReadCount
            | CoolFileReadCount
            | ColdFileReadCount
            | IceFileReadCount
            | FifoChangeTemperatureCompactions => "tiered storage (temperatures of files)",
            MultigetCoroutineCount | ReadAsyncMicros | AsyncReadErrorCount | FileSubmitAsyncReadFallback => {
                ASYNC_READS
            }
            TimestampFilterTableChecked | TimestampFilterTableFiltered => "user-defined timestamps",
            FileReadCorruptionRetryCount | FileReadCorruptionRetrySuccessCount => {
                "file systems that reconstruct damaged bytes"
            }
            SstUserDefinedIndexLoadFailCount => "user-defined indexes",
            MultiscanPrepareCalls
            | MultiscanPrepareErrors
            | MultiscanBlocksPrefetched
            | MultiscanBlocksFromCache
            | MultiscanPrefetchBytes
            | MultiscanPrefetchBlocksWasted
            | MultiscanIoRequests
            | MultiscanIoCoalescedNonadjacent
            | MultiscanSeekErrors
            | PrefetchMemoryBytesGranted
            | PrefetchMemoryBytesReleased
            | PrefetchMemoryRequestsBlocked => MULTISCAN,
            FileOpenMetadataRetrieved | FileOpenMetadataPassed => {
                "metadata of file systems for opening files"
            }
            _ => return None,
        })
    }
}

impl Histogram {
    /// What would have to be built for it to have values; `None` if it has.
    pub fn unbuilt(self) -> Option<&'static str> {
        use Histogram::*;
        Some(match self {
            BlobDbKeySize
            | BlobDbValueSize
            | BlobDbWriteMicros
            | BlobDbGetMicros
            | BlobDbMultigetMicros
            | BlobDbSeekMicros
            | BlobDbNextMicros
            | BlobDbPrevMicros
            | BlobDbBlobFileWriteMicros
            | BlobDbBlobFileReadMicros
            | BlobDbBlobFileSyncMicros
            | BlobDbCompressionMicros
            | BlobDbDecompressionMicros => BLOBS,
            AsyncReadBytes | PollWaitMicros | AsyncPrefetchAbortMicros => ASYNC_READS,
            NumOpPerTransaction => TRANSACTIONS,
            MultiscanPrepareIterators
            | MultiscanPrepareMicros
            | MultiscanBlocksPerPrepare
            | IoDispatcherAsyncReadObservedCompletionMicros
            | IoDispatcherAsyncReadPollWaitMicros
            | IoDispatcherAsyncReadPrefetchLeadMicros => MULTISCAN,
            BlockKeyDistributionCv => "interpolation search in index blocks",
            OpenAndCompactDbOpenMicros => REMOTE_COMPACTION,
            _ => return None,
        })
    }
}

const BLOBS: &str = "blob files";
const TRANSACTIONS: &str = "transactions, batches with an index";
const REMOTE_COMPACTION: &str = "compactions by another process";
const ASYNC_READS: &str = "asynchronous reads (`async_io`)";
const MULTISCAN: &str = "MultiScan";

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// `docs/statistics.md` has the list. `REWRITE=1` rewrites it.
    #[test]
    #[allow(clippy::disallowed_methods)] // A file of the repository, not of a database.
    fn documentation_is_up_to_date() {
        let tickers = Ticker::ALL.iter().map(|ticker| (ticker.name(), ticker.unbuilt()));
        let histograms = Histogram::ALL.iter().map(|histogram| (histogram.name(), histogram.unbuilt()));
        let mut features: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, unbuilt) in tickers.chain(histograms) {
            if let Some(feature) = unbuilt {
                features.entry(feature).or_default().push(name);
            }
        }
        let row = |(feature, names): (&&str, &Vec<&str>)| {
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            format!("| {feature} | {} |\n", names.join(", "))
        };
        let rows: String = features.iter().map(row).collect();
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/statistics.md");
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        const HEAD: &str = "| not built | stays 0 |\n|---|---|\n";
        let (before, _) = found.split_once(HEAD).expect("the page has the table at its end");
        let expected = format!("{before}{HEAD}{rows}");
        if std::env::var_os("REWRITE").is_some() {
            std::fs::write(&path, &expected).unwrap();
            return;
        }
        assert!(found == expected, "docs/statistics.md is out of date: run with REWRITE=1");
    }
}
