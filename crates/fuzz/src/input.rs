//! Takes an input apart. Past its end everything is zero, so that every input means something.

/// What is left of an input.
pub(crate) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
    pub fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }
    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }
    /// One of `all`.
    pub fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        all[usize::from(self.byte()) % all.len()].clone()
    }
    /// The next `len` bytes, or what is left.
    pub fn take(&mut self, len: usize) -> &'a [u8] {
        let (head, tail) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = tail;
        head
    }
    /// A length of one byte and so many bytes.
    pub fn short(&mut self) -> &'a [u8] {
        let len = self.byte();
        self.take(usize::from(len))
    }
    /// A length of two bytes and so many bytes.
    pub fn long(&mut self) -> &'a [u8] {
        let len = self.u16();
        self.take(usize::from(len))
    }
    pub fn rest(&mut self) -> &'a [u8] {
        self.take(usize::MAX)
    }
}

/// The longest input that a target looks at: a longer one proves nothing more.
pub(crate) const MAX_INPUT: usize = 64 << 10;
