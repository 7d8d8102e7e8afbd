//! What happened: a hash of it all, by which two runs are compared, and a text for people.

/// Takes the lines of a trace as they come.
pub type Sink = Box<dyn FnMut(&str)>;

/// See the module.
pub struct Trace {
    hash: u64,
    sink: Option<Sink>,
}

impl Trace {
    pub fn new(sink: Option<Sink>) -> Trace {
        Trace { hash: 0xcbf2_9ce4_8422_2325, sink }
    }

    pub fn mix(&mut self, number: u64) {
        self.hash = (self.hash ^ number).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }

    /// Whether anybody reads the text.
    pub fn is_read(&self) -> bool {
        self.sink.is_some()
    }

    pub fn line(&mut self, now_ns: u64, text: &str) {
        if let Some(sink) = &mut self.sink {
            sink(&format!("{:>12.3} ms  {text}", now_ns as f64 / 1e6));
        }
    }

    pub fn hash(&self) -> u64 {
        self.hash
    }
}
