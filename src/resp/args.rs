//! The arguments of one command, borrowed from the buffer that they arrived in.

use std::ops::Index;

/// Start and end of one argument in the buffer.
pub type Span = (u32, u32);

/// A parsed command: name and arguments. Copying it copies two slices, no bytes.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    buf: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    pub fn new(buf: &'a [u8], spans: &'a [Span]) -> Args<'a> {
        Args { buf, spans }
    }

    pub fn len(&self) -> usize {
        self.spans.len()
    }

    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Argument `index` (0 is the command's name). Panics beyond the end, which the arity check
    /// before the command's run excludes.
    pub fn at(&self, index: usize) -> &'a [u8] {
        let (start, end) = self.spans[index];
        &self.buf[start as usize..end as usize]
    }

    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        (index < self.spans.len()).then(|| self.at(index))
    }

    /// The arguments from `index` on.
    pub fn from(&self, index: usize) -> Args<'a> {
        Args { buf: self.buf, spans: &self.spans[index..] }
    }

    /// Bytes from the first argument to the end of the last.
    pub fn len_bytes(&self) -> usize {
        let start = self.spans.first().map_or(0, |span| span.0);
        self.spans.last().map_or(0, |span| (span.1 - start) as usize)
    }

    /// The arguments as spans of `buffer`, of which the buffer behind them must be a part.
    pub fn spans_in(&self, buffer: &[u8]) -> impl Iterator<Item = Span> + use<'a> {
        let offset = (self.buf.as_ptr() as usize - buffer.as_ptr() as usize) as u32;
        self.spans.iter().map(move |&(start, end)| (start + offset, end + offset))
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        let buf = self.buf;
        self.spans.iter().map(move |&(start, end)| &buf[start as usize..end as usize])
    }
}

impl Index<usize> for Args<'_> {
    type Output = [u8];

    fn index(&self, index: usize) -> &[u8] {
        self.at(index)
    }
}
