//! What there is to tell, taken down at one moment.

use crate::names::{COUNTERS, Name, OF_DATABASE, of_property, of_statistic, prefixed};
use ironstone::Statistics;
use ironstone::statistics::{Histogram, HistogramCounts, Ticker};
use ironstone::{Db, WriteStall, WriteStallCause, WriteStallCondition};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A database, and the value of its label.
pub(crate) struct Source<'a> {
    pub(crate) name: Option<String>,
    pub(crate) db: &'a Db,
}

type Labels = Vec<(&'static str, String)>;

/// So many of RocksDB's buckets are one here: bounds grow five times, and a histogram has 28.
const BUCKETS_IN_ONE: usize = 4;

/// A number with its labels.
enum Value {
    Count(u64),
    /// A count of seconds.
    Time(f64),
    Gauge(u64),
    Histogram {
        sum: f64,
        count: u64,
        buckets: Vec<(f64, u64)>,
    },
}

/// All numbers of one name.
struct Family {
    name: Name,
    help: String,
    kind: MetricType,
    samples: Vec<(Labels, Value)>,
}

/// What was taken down.
#[derive(Default)]
struct Moment(Vec<Family>);

pub(crate) fn encode(sources: &[Source<'_>], encoder: DescriptorEncoder<'_>) -> fmt::Result {
    Moment::of(sources).encode(encoder)
}

pub(crate) fn encode_text(sources: &[Source<'_>], out: &mut String) -> fmt::Result {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Moment::of(sources)));
    prometheus_client::encoding::text::encode(out, &registry)
}

impl Moment {
    fn of(sources: &[Source<'_>]) -> Self {
        let mut moment = Self::default();
        moment.add_statistics(sources);
        moment.add_properties(sources);
        moment.add_levels(sources);
        moment.add_stalls(sources);
        moment
    }

    fn add(&mut self, name: Name, help: String, kind: MetricType, samples: Vec<(Labels, Value)>) {
        if !samples.is_empty() {
            self.0.push(Family { name, help, kind, samples });
        }
    }

    fn add_statistics(&mut self, sources: &[Source<'_>]) {
        let of = |source: &Source<'_>| Some((source.labels(), source.db.options().statistics.clone()?));
        let all: Vec<(Labels, Arc<Statistics>)> = sources.iter().filter_map(of).collect();
        for &ticker in Ticker::ALL {
            let name = of_statistic(ticker.name());
            let sample = |(labels, statistics): &(Labels, Arc<Statistics>)| {
                let count = statistics.ticker(ticker);
                let timed = matches!(name.unit, Some(Unit::Seconds));
                (
                    labels.clone(),
                    if timed { Value::Time(count as f64 * name.scale) } else { Value::Count(count) },
                )
            };
            let samples = all.iter().map(sample).collect();
            self.add(name, format!("Ticker {}", ticker.name()), MetricType::Counter, samples);
        }
        for &histogram in Histogram::ALL {
            let name = of_statistic(histogram.name());
            let sample = |(labels, statistics): &(Labels, Arc<Statistics>)| {
                let counts = statistics.histogram_counts(histogram);
                (counts.count() > 0).then(|| (labels.clone(), value_of(&counts, name.scale)))
            };
            let samples = all.iter().filter_map(sample).collect();
            self.add(name, format!("Histogram {}", histogram.name()), MetricType::Histogram, samples);
        }
    }

    fn add_properties(&mut self, sources: &[Source<'_>]) {
        for full in Db::property_names() {
            let property = full.trim_start_matches("rocksdb.");
            let counts = COUNTERS.contains(&property);
            let mut samples = Vec::new();
            for source in sources {
                let families = match OF_DATABASE.contains(&property) {
                    true => vec![(source.labels(), source.db.default_column_family().clone())],
                    false => source.families(),
                };
                for (labels, cf) in families {
                    let number = source.db.int_property_cf(&cf, &full);
                    // No file at all: RocksDB says the largest number.
                    if let Some(number) = number.filter(|number| *number != u64::MAX) {
                        samples
                            .push((labels, if counts { Value::Count(number) } else { Value::Gauge(number) }));
                    }
                }
            }
            let kind = if counts { MetricType::Counter } else { MetricType::Gauge };
            self.add(of_property(property), format!("Property {full}"), kind, samples);
        }
    }

    fn add_levels(&mut self, sources: &[Source<'_>]) {
        let (mut files, mut bytes) = (Vec::new(), Vec::new());
        for source in sources {
            for (labels, cf) in source.families() {
                for (level, (count, size)) in source.db.level_shape(&cf).into_iter().enumerate() {
                    let mut labels = labels.clone();
                    labels.push(("level", level.to_string()));
                    files.push((labels.clone(), Value::Gauge(count as u64)));
                    bytes.push((labels, Value::Gauge(size)));
                }
            }
        }
        self.add(plain("level_files", None), "Tables of a level".to_owned(), MetricType::Gauge, files);
        self.add(plain("level", Some(Unit::Bytes)), "Bytes of a level".to_owned(), MetricType::Gauge, bytes);
    }

    fn add_stalls(&mut self, sources: &[Source<'_>]) {
        let [mut active, mut begun, mut lasted, mut waits, mut waited] = [const { Vec::new() }; 5];
        for source in sources {
            for stall in source.db.write_stalls() {
                let mut labels = source.labels();
                labels.extend(stall.column_family.iter().map(|name| ("column_family", name.clone())));
                labels.push(("cause", cause(&stall).to_owned()));
                for (condition, label, count, time) in [
                    (WriteStallCondition::Delayed, "delayed", stall.delays, stall.delayed),
                    (WriteStallCondition::Stopped, "stopped", stall.stops, stall.stopped),
                ] {
                    let mut labels = labels.clone();
                    labels.push(("condition", label.to_owned()));
                    active.push((labels.clone(), Value::Gauge(u64::from(stall.condition == condition))));
                    begun.push((labels.clone(), Value::Count(count)));
                    lasted.push((labels, time_of(time)));
                }
                waits.push((labels.clone(), Value::Count(stall.waits)));
                waited.push((labels, time_of(stall.waited)));
            }
        }
        let mut add = |name, unit, help: &str, kind, samples| {
            self.add(plain(name, unit), help.to_owned(), kind, samples);
        };
        let (gauge, counter) = (MetricType::Gauge, MetricType::Counter);
        let seconds = || Some(Unit::Seconds);
        add("write_stall_active", None, "Whether the cause holds up writers now", gauge, active);
        add("write_stalls", None, "How often the cause began to hold up writers", counter, begun);
        add("write_stall", seconds(), "For how long the cause held up writers", counter, lasted);
        add("write_stall_waits", None, "Writes that waited because of the cause", counter, waits);
        add("write_stall_wait", seconds(), "How long these waited, all together", counter, waited);
    }
}

fn plain(name: &str, unit: Option<Unit>) -> Name {
    Name { name: prefixed(name), unit, scale: 1.0 }
}

fn time_of(time: Duration) -> Value {
    Value::Time(time.as_secs_f64())
}

fn cause(stall: &WriteStall) -> &'static str {
    match stall.cause {
        WriteStallCause::MemtableLimit => "memtable_limit",
        WriteStallCause::L0FileCountLimit => "level0_file_limit",
        WriteStallCause::PendingCompactionBytes => "pending_compaction_bytes",
        WriteStallCause::WriteBufferManagerLimit => "write_buffer_manager",
        WriteStallCause::SpaceLimit => "space_limit",
        other => other.name(),
    }
}

fn value_of(counts: &HistogramCounts, scale: f64) -> Value {
    let all: Vec<(u64, u64)> = counts.buckets().collect();
    let mut buckets: Vec<(f64, u64)> = all
        .chunks(BUCKETS_IN_ONE)
        .map(|chunk| {
            let bound = chunk.last().map_or(0, |(bound, _)| *bound);
            (bound as f64 * scale, chunk.iter().map(|(_, count)| count).sum())
        })
        .collect();
    if let Some(last) = buckets.last_mut() {
        last.0 = f64::INFINITY;
    }
    Value::Histogram { sum: counts.sum() as f64 * scale, count: counts.count(), buckets }
}

impl Source<'_> {
    fn labels(&self) -> Labels {
        self.name.iter().map(|name| ("database", name.clone())).collect()
    }
    /// The open column families, with the labels of each.
    fn families(&self) -> Vec<(Labels, ironstone::ColumnFamily)> {
        let labelled = |cf: ironstone::ColumnFamily| {
            let mut labels = self.labels();
            labels.push(("column_family", cf.name().to_owned()));
            (labels, cf)
        };
        self.db.column_families().into_iter().map(labelled).collect()
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|family| &family.name.name)).finish()
    }
}

impl Collector for Moment {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for Family { name, help, kind, samples } in &self.0 {
            let unit = name.unit.as_ref();
            let mut encoder = encoder.encode_descriptor(&name.name, help, unit, *kind)?;
            for (labels, value) in samples {
                match labels.is_empty() {
                    true => value.encode(&mut encoder)?,
                    false => value.encode(&mut encoder.encode_family(labels)?)?,
                }
            }
        }
        Ok(())
    }
}

impl Value {
    fn encode(&self, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => encoder.encode_counter::<NoLabelSet, _, u64>(count, None),
            Self::Time(seconds) => encoder.encode_counter::<NoLabelSet, _, u64>(seconds, None),
            Self::Gauge(number) => encoder.encode_gauge(&i64::try_from(*number).unwrap_or(i64::MAX)),
            Self::Histogram { sum, count, buckets } => {
                encoder.encode_histogram::<NoLabelSet>(*sum, *count, buckets, None)
            }
        }
    }
}
