//! LZ4 blocks written with effort: hash chains find long matches. Levels below 10 take a match
//! unless the next position has a longer one; from 10 on the longest match is looked up at every
//! position and the cheapest way through the block is chosen backwards from its end.
//!
//! ```text
//! block     sequence* last-sequence
//! sequence  token | literal length, rest | literals | distance u16 LE | match length, rest
//! token     literal length << 4 | (match length - 4); 15 means that the rest follows in bytes that
//!           are added up, the first below 255 being the last
//! last      the same up to the literals. The last 5 bytes are always literals, and no match starts
//!           in the last 12.
//! ```

const MIN_MATCH: usize = 4;
/// These many bytes at the end are literals.
const LAST_LITERALS: usize = 5;
/// No match starts closer to the end.
const MATCH_MARGIN: usize = 12;
const MAX_DISTANCE: usize = 65_535;
const MAX_HASH_BITS: u32 = 15;
/// After a match this long, the positions inside it are not searched for a better one.
const LONG_MATCH: usize = 64;

/// The encoder. Keeps its tables from block to block; nothing is cleared in between.
pub(crate) struct Lz4hc {
    /// How many candidates to look at per position.
    attempts: u32,
    thorough: bool,
    /// The end of the dictionary, then the block. Only used with a dictionary.
    window: Vec<u8>,
    dict_len: usize,
    dict_chains: Option<Chains>,
    chains: Chains,
    /// For each position of the block: the longest match, and later the step that the parse takes.
    steps: Vec<Match>,
    /// For each position of the block: how many bytes the best parse from there takes.
    costs: Vec<u32>,
}

/// An earlier place with the same bytes; no match has length 0.
#[derive(Clone, Copy, Default)]
struct Match {
    len: u32,
    distance: u32,
}

impl Lz4hc {
    /// An encoder for `level` 1 (fast) to 12 (thorough) and a dictionary, which may be empty.
    pub(crate) fn new(level: u32, dict: &[u8]) -> Self {
        let dict = &dict[dict.len().saturating_sub(MAX_DISTANCE)..];
        let dict_chains = (dict.len() >= MIN_MATCH).then(|| {
            let mut chains = Chains::new(dict.len());
            for at in 0..=dict.len() - MIN_MATCH {
                chains.insert(dict, at);
            }
            chains
        });
        Self {
            attempts: match level {
                ..=9 => 1 << (level.max(2) - 1),
                10 => 64,
                11 => 128,
                _ => 512,
            },
            thorough: level >= 10,
            window: dict.to_vec(),
            dict_len: dict.len(),
            dict_chains,
            chains: Chains::new(0),
            steps: Vec::new(),
            costs: Vec::new(),
        }
    }

    /// Writes the block for `raw` to the start of `space` and answers its length, or `None` if it
    /// does not fit.
    pub(crate) fn compress(&mut self, raw: &[u8], space: &mut [u8]) -> Option<usize> {
        let mut window = std::mem::take(&mut self.window);
        let text = if self.dict_len == 0 {
            raw
        } else {
            window.truncate(self.dict_len);
            window.extend_from_slice(raw);
            window.as_slice()
        };
        self.chains.forget(text.len());
        let out = Output { space, len: 0 };
        let len = if self.thorough { self.write_best(text, out) } else { self.write_lazily(text, out) };
        self.window = window;
        len
    }

    fn longest_match(&self, text: &[u8], at: usize, longer_than: u32) -> Match {
        let mut attempts = self.attempts;
        let mut best = Match { len: longer_than, distance: 0 };
        self.chains.search(text, at, &mut attempts, &mut best);
        if let Some(dict) = &self.dict_chains {
            dict.search(text, at, &mut attempts, &mut best);
        }
        best
    }

    fn write_lazily(&mut self, text: &[u8], mut out: Output<'_>) -> Option<usize> {
        let search_end = (text.len() + 1).saturating_sub(MATCH_MARGIN);
        let (mut at, mut anchor) = (self.dict_len, self.dict_len);
        while at < search_end {
            let mut step = self.longest_match(text, at, MIN_MATCH as u32 - 1);
            self.chains.insert(text, at);
            if step.distance == 0 {
                at += 1;
                continue;
            }
            while at + 1 < search_end && (step.len as usize) < LONG_MATCH {
                let later = self.longest_match(text, at + 1, step.len);
                if later.distance == 0 {
                    break;
                }
                (at, step) = (at + 1, later);
                self.chains.insert(text, at);
            }
            out.sequence(&text[anchor..at], Some(step))?;
            anchor = at + step.len as usize;
            for inside in at + 1..anchor.min(search_end) {
                self.chains.insert(text, inside);
            }
            at = anchor;
        }
        out.sequence(&text[anchor..], None)?;
        Some(out.len)
    }

    fn write_best(&mut self, text: &[u8], mut out: Output<'_>) -> Option<usize> {
        let start = self.dict_len;
        self.find_matches(text, start);
        self.choose_steps();
        let (mut at, mut anchor) = (start, start);
        while at < text.len() {
            let step = self.steps[at - start];
            if step.len == 0 {
                at += 1;
                continue;
            }
            out.sequence(&text[anchor..at], Some(step))?;
            at += step.len as usize;
            anchor = at;
        }
        out.sequence(&text[anchor..], None)?;
        Some(out.len)
    }

    /// Fills `steps` with the longest match at each position of `text[start..]`.
    fn find_matches(&mut self, text: &[u8], start: usize) {
        self.steps.clear();
        self.steps.resize(text.len() - start, Match::default());
        let mut inherited = Match::default();
        for at in start..(text.len() + 1).saturating_sub(MATCH_MARGIN) {
            let mut found = inherited;
            if inherited.len as usize <= LONG_MATCH {
                found = self.longest_match(text, at, MIN_MATCH as u32 - 1);
            }
            self.chains.insert(text, at);
            inherited = Match::default();
            if found.distance > 0 {
                self.steps[at - start] = found;
                inherited = Match { len: found.len - 1, ..found };
            }
        }
    }

    /// Turns the longest matches into steps: length 0 for a literal, else the match to take.
    fn choose_steps(&mut self) {
        let count = self.steps.len();
        self.costs.clear();
        self.costs.resize(count + 1, 0);
        for at in (0..count).rev() {
            let (here, later) = self.costs[at..].split_first_mut().expect("costs has one more than steps");
            let found = self.steps[at];
            let (mut cost, mut len) = (later[0] + 1, 0);
            if found.len > 0 {
                // A shorter match can lead to a better one; beyond the token's reach that is rare.
                let shorter = &later[MIN_MATCH - 1..found.len.min(TOKEN_REACH) as usize];
                let best = shorter.iter().copied().min().unwrap_or(u32::MAX);
                let whole = later[found.len as usize - 1] + match_cost(found.len);
                // Of equals the match: it saves a literal length that the costs do not count.
                if whole <= cost {
                    (cost, len) = (whole, found.len);
                }
                if best < u32::MAX && best + match_cost(MIN_MATCH as u32) < cost {
                    let offset = shorter.iter().rposition(|&cost| cost == best).expect("just found");
                    (cost, len) = (best + match_cost(MIN_MATCH as u32), (MIN_MATCH + offset) as u32);
                }
            }
            *here = cost;
            self.steps[at] = Match { len, ..found };
        }
    }
}

/// Longer matches need a byte more.
const TOKEN_REACH: u32 = 18;

/// Token, distance and the rest of the length.
fn match_cost(len: u32) -> u32 {
    3 + if len > TOKEN_REACH { 1 + (len - TOKEN_REACH - 1) / 255 } else { 0 }
}

/// The positions of a text by the hash of the 4 bytes there, newest first.
struct Chains {
    /// The newest position of each hash, plus `base`. Anything below `base` is of an older text.
    heads: Box<[u32; 1 << MAX_HASH_BITS]>,
    /// For a position (its low 16 bits): how far back the next one of the same hash is; 0 for none.
    links: Box<[u16; 1 << 16]>,
    base: u32,
    text_len: u32,
    /// How far to shift a hash: short texts use few heads, which stay in the nearest cache.
    shift: u32,
}

impl Chains {
    fn new(text_len: usize) -> Self {
        let mut new = Self {
            heads: Box::new([0; 1 << MAX_HASH_BITS]),
            links: Box::new([0; 1 << 16]),
            base: 1,
            text_len: 0,
            shift: 0,
        };
        new.forget(text_len);
        new
    }

    /// Starts over for a text of `text_len` bytes, which is at most 2 GiB.
    fn forget(&mut self, text_len: usize) {
        self.base += self.text_len;
        self.text_len = text_len as u32;
        if self.base > u32::MAX / 2 - 1 {
            self.heads.fill(0);
            self.base = 1;
        }
        self.shift = 32 - usize::BITS.saturating_sub(text_len.leading_zeros()).clamp(10, MAX_HASH_BITS);
    }

    #[inline]
    fn slot(&self, bytes: u32) -> usize {
        // The mask changes nothing; it spares the bounds check.
        (bytes.wrapping_mul(2_654_435_761) >> self.shift) as usize & ((1 << MAX_HASH_BITS) - 1)
    }

    #[inline]
    fn insert(&mut self, text: &[u8], at: usize) {
        let slot = self.slot(load(text, at));
        let here = self.base + at as u32;
        let back = if self.heads[slot] >= self.base { here - self.heads[slot] } else { 0 };
        self.links[at & 0xffff] = u16::try_from(back).unwrap_or(0);
        self.heads[slot] = here;
    }

    /// Replaces `best` by a longer match for `text[at..]` if there is one among the next `attempts`
    /// candidates.
    #[inline]
    fn search(&self, text: &[u8], at: usize, attempts: &mut u32, best: &mut Match) {
        let rest = &text[at..text.len() - LAST_LITERALS];
        let wanted = load(text, at);
        let Some(newest) = self.heads[self.slot(wanted)].checked_sub(self.base) else {
            return;
        };
        let mut candidate = newest as usize;
        while *attempts > 0 && at - candidate <= MAX_DISTANCE && (best.len as usize) < rest.len() {
            *attempts -= 1;
            // The bytes up to the one that would make it longer decide most cases.
            let decisive = best.len as usize + 1 - MIN_MATCH;
            if load(text, candidate + decisive) == load(text, at + decisive)
                && load(text, candidate) == wanted
            {
                let len = shared_len(rest, &text[candidate..]) as u32;
                if len > best.len {
                    *best = Match { len, distance: (at - candidate) as u32 };
                }
            }
            let back = usize::from(self.links[candidate & 0xffff]);
            if back == 0 || back > candidate {
                return;
            }
            candidate -= back;
        }
    }
}

#[inline]
fn load(text: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*text[at..].first_chunk().expect("no search in the last bytes"))
}

/// How many bytes from the start are the same, at most `a.len()`. `b` is no shorter.
#[inline]
fn shared_len(a: &[u8], b: &[u8]) -> usize {
    let (a_words, a_rest) = a.as_chunks::<8>();
    let (b_words, _) = b[..a.len()].as_chunks::<8>();
    for (index, (x, y)) in a_words.iter().zip(b_words).enumerate() {
        let difference = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if difference != 0 {
            return 8 * index + difference.trailing_zeros() as usize / 8;
        }
    }
    let done = 8 * a_words.len();
    done + a_rest.iter().zip(&b[done..]).take_while(|(x, y)| x == y).count()
}

/// Where the block is written; every step answers `None` when it is full.
struct Output<'a> {
    space: &'a mut [u8],
    len: usize,
}

impl Output<'_> {
    fn sequence(&mut self, literals: &[u8], step: Option<Match>) -> Option<()> {
        let literal_code = literals.len().min(15);
        let extra = step.map_or(0, |step| step.len as usize - MIN_MATCH);
        self.push((literal_code << 4 | extra.min(15)) as u8)?;
        if literal_code == 15 {
            self.length(literals.len() - 15)?;
        }
        self.append(literals)?;
        let Some(step) = step else {
            return Some(());
        };
        self.append(&(step.distance as u16).to_le_bytes())?;
        if extra >= 15 {
            self.length(extra - 15)?;
        }
        Some(())
    }

    fn length(&mut self, mut rest: usize) -> Option<()> {
        while rest >= 255 {
            self.push(255)?;
            rest -= 255;
        }
        self.push(rest as u8)
    }

    fn push(&mut self, byte: u8) -> Option<()> {
        *self.space.get_mut(self.len)? = byte;
        self.len += 1;
        Some(())
    }

    fn append(&mut self, bytes: &[u8]) -> Option<()> {
        self.space.get_mut(self.len..self.len + bytes.len())?.copy_from_slice(bytes);
        self.len += bytes.len();
        Some(())
    }
}
