//! The hours of the day in which there is little else to do.

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// A stretch of each day, in UTC, to the minute: RocksDB's `daily_offpeak_time_utc`. Both ends are within, the last minute whole.
/// One that ends before it begins goes over midnight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DailyOffpeak {
    /// Seconds since midnight, as `last` is.
    first: u64,
    /// The beginning of the last minute. Not `first`.
    last: u64,
}

impl DailyOffpeak {
    /// Of a text like `04:30-07:30`; `None` for an empty one. The error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Option<Self>, &'static str> {
        if text.is_empty() {
            return Ok(None);
        }
        let ends = text.split_once('-').and_then(|(first, last)| Some((minute_of(first)?, minute_of(last)?)));
        match ends {
            None => Err("neither empty nor HH:mm-HH:mm in UTC, as 04:30-07:30"),
            Some((first, last)) if first == last => Err("begins when it ends"),
            Some((first, last)) => Ok(Some(Self { first, last })),
        }
    }

    /// How long it is until it begins, also while it lasts: above 0, a day at most.
    pub fn seconds_to_next_start(&self, now_seconds: u64) -> u64 {
        let time = now_seconds % DAY;
        if time < self.first { self.first - time } else { self.first + DAY - time }
    }

    /// When it began, while it lasts.
    pub(crate) fn began(&self, now_seconds: u64) -> Option<u64> {
        let time = now_seconds % DAY;
        let (begun, not_over) = (self.first <= time, time < self.last + MINUTE);
        let over_midnight = self.first > self.last;
        let lasts = if over_midnight { begun || not_over } else { begun && not_over };
        lasts.then(|| (now_seconds + self.seconds_to_next_start(now_seconds)).saturating_sub(DAY))
    }
}

/// The seconds since midnight of a text like `4:30`.
fn minute_of(text: &str) -> Option<u64> {
    let number = |text: &str, below: u64| -> Option<u64> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|&number| digits && number < below)
    };
    let (hour, minute) = text.split_once(':')?;
    Some(number(hour, 24)? * HOUR + number(minute, 60)? * MINUTE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> DailyOffpeak {
        DailyOffpeak::parse(text).unwrap().unwrap()
    }

    /// Some day at `hour:minute:second`.
    fn at(hour: u64, minute: u64, second: u64) -> u64 {
        20_000 * DAY + hour * HOUR + minute * MINUTE + second
    }

    #[test]
    fn times_of_the_day_are_understood_or_refused() {
        assert_eq!(DailyOffpeak::parse(""), Ok(None));
        assert_eq!(of("04:30-07:30"), DailyOffpeak { first: 16_200, last: 27_000 });
        assert_eq!(of("0:00-23:59"), DailyOffpeak { first: 0, last: 86_340 });
        assert_eq!(of("23:05-0:1"), DailyOffpeak { first: 83_100, last: 60 });
        let bad = [
            "-",
            ":",
            "04:30",
            "04:30-",
            "-07:30",
            "04:30-07:30-",
            "04:30 07:30",
            "24:00-01:00",
            "01:00-12:60",
            "1-2",
            "a:00-b:00",
            "+1:00-02:00",
            "01:00-02:00:00",
            "٠1:00-02:00",
            " 01:00-02:00",
            "001:-02:00",
            "99999999999999999999:00-01:00",
        ];
        for text in bad {
            assert!(DailyOffpeak::parse(text).is_err(), "{text:?}");
        }
        assert_eq!(DailyOffpeak::parse("7:30-07:30"), Err("begins when it ends"));
    }

    #[test]
    fn it_lasts_from_its_first_minute_through_its_last() {
        let day = of("04:30-07:30");
        assert_eq!(day.began(at(4, 29, 59)), None);
        assert_eq!(day.began(at(4, 30, 0)), Some(at(4, 30, 0)));
        assert_eq!(day.began(at(7, 30, 59)), Some(at(4, 30, 0)));
        assert_eq!(day.began(at(7, 31, 0)), None);

        let night = of("23:30-01:15");
        assert_eq!(night.began(at(23, 29, 59)), None);
        assert_eq!(night.began(at(23, 30, 0)), Some(at(23, 30, 0)));
        assert_eq!(night.began(at(1, 15, 59) + DAY), Some(at(23, 30, 0)));
        assert_eq!(night.began(at(1, 16, 0)), None);
        assert_eq!(night.began(30), Some(0), "there is nothing before 1970");

        let always = of("00:00-23:59");
        assert_eq!(always.began(at(23, 59, 59)), Some(at(0, 0, 0)));
    }

    #[test]
    fn the_next_one_is_a_day_away_at_most() {
        let day = of("04:30-07:30");
        assert_eq!(day.seconds_to_next_start(at(4, 29, 59)), 1);
        assert_eq!(day.seconds_to_next_start(at(4, 30, 0)), DAY);
        assert_eq!(day.seconds_to_next_start(at(5, 30, 0)), DAY - HOUR);
        assert_eq!(day.seconds_to_next_start(at(23, 59, 59)), 4 * HOUR + 30 * MINUTE + 1);
    }
}
