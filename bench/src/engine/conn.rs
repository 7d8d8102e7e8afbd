//! One connection: the batch that it has sent and how far its replies have come.

use crate::dataset::Dataset;
use crate::engine::outcome::Outcome;
use crate::engine::plan::{Op, Plan, Templates};
use crate::prng::Prng;
use crate::reply::{Event, Malformed, ReplyReader, show};
use std::net::TcpStream;
use std::ops::Range;

/// A connection and its batch in flight.
#[derive(Debug)]
pub struct Conn {
    pub socket: TcpStream,
    /// The requests of the batch; never grows, since the kernel reads from it.
    pub out: Vec<u8>,
    sent: Vec<(Op, u64)>,
    answered: usize,
    /// When the batch was sent, or should have been in a rate-limited run.
    start_ns: u64,
    reader: ReplyReader,
    bulk: Bulk,
}

/// The value that is just coming in.
#[derive(Debug, Default)]
struct Bulk {
    offset: usize,
    wrong: Option<String>,
}

impl Conn {
    pub fn new(socket: TcpStream, templates: &Templates, pipeline: usize) -> Conn {
        Conn {
            socket,
            out: Vec::with_capacity(pipeline * templates.request_bytes_max()),
            sent: Vec::with_capacity(pipeline),
            answered: 0,
            start_ns: 0,
            reader: ReplyReader::default(),
            bulk: Bulk::default(),
        }
    }

    /// Whether all requests of the batch are answered.
    pub fn is_idle(&self) -> bool {
        self.answered == self.sent.len()
    }

    /// Fills `out` with the requests of these operation numbers.
    pub fn prepare(
        &mut self,
        numbers: Range<u64>,
        plan: &Plan,
        templates: &Templates,
        prng: &mut Prng,
        start_ns: u64,
    ) {
        self.out.clear();
        self.sent.clear();
        self.answered = 0;
        self.start_ns = start_ns;
        for number in numbers {
            let (op, id) = plan.pick(number, templates.dataset().keys, prng);
            templates.append(op, id, &mut self.out);
            self.sent.push((op, id));
        }
    }

    /// Checks what came in. An error means that the stream is broken.
    pub fn receive(
        &mut self,
        mut input: &[u8],
        now_ns: u64,
        dataset: &Dataset,
        outcome: &mut Outcome,
    ) -> Result<(), Malformed> {
        while let Some(event) = self.reader.next(&mut input)? {
            let Some(&(op, id)) = self.sent.get(self.answered) else {
                return Err(Malformed(format!("a reply that nobody asked for: {event:?}")));
            };
            if check_event(event, op, id, dataset, &mut self.bulk, outcome) {
                self.answered += 1;
                outcome.operations += 1;
                match op {
                    Op::Get => outcome.gets += 1,
                    Op::Set => outcome.sets += 1,
                }
                outcome.latency.record(now_ns.saturating_sub(self.start_ns));
            }
        }
        Ok(())
    }
}

/// Checks one event against the request; true when it ends the reply.
fn check_event(
    event: Event<'_>,
    op: Op,
    id: u64,
    dataset: &Dataset,
    bulk: &mut Bulk,
    outcome: &mut Outcome,
) -> bool {
    match (event, op) {
        (Event::Part(part), _) => {
            if bulk.wrong.is_none() && !dataset.value_matches(id, bulk.offset, part) {
                bulk.wrong = Some(format!("wrong bytes {}", show(part)));
            }
            bulk.offset += part.len();
            return false;
        }
        (Event::Bulk(len), _) => {
            let expected = dataset.value_bytes;
            let wrong = (op != Op::Get || len != expected)
                .then(|| format!("a value of {len} bytes for one of {expected}"));
            *bulk = Bulk { offset: 0, wrong };
            return false;
        }
        (Event::End, _) => {
            if let Some(wrong) = bulk.wrong.take() {
                outcome.fail(|| format!("{op:?} of key {id}: {wrong}"));
            }
        }
        (Event::Status(b"OK"), Op::Set) => {}
        (Event::Null, Op::Get) => outcome.missing += 1,
        (Event::Error(text), _) => outcome.fail(|| format!("{op:?} of key {id}: {}", show(text))),
        (other, _) => outcome.fail(|| format!("{op:?} of key {id}: {other:?}")),
    }
    true
}

#[cfg(test)]
mod tests {
    use super::Conn;
    use crate::dataset::Dataset;
    use crate::engine::outcome::Outcome;
    use crate::engine::plan::{Order, Plan, Stop, Templates};
    use crate::prng::Prng;
    use std::net::{TcpListener, TcpStream};

    const START_NS: u64 = 1_000;

    /// A connection that has asked for keys 0, 1, 2 with GET (or SET), and its data set.
    fn asked(get_percent: u64) -> (Conn, Dataset) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let dataset = Dataset::new(10, 16, 20).unwrap();
        let templates = Templates::new(dataset.clone());
        let stop = Stop::Operations(0..3);
        let plan = Plan { get_percent, pipeline: 3, order: Order::Sequential, stop, rate: None };
        let mut conn = Conn::new(socket, &templates, 3);
        conn.prepare(0..3, &plan, &templates, &mut Prng::new(1), START_NS);
        (conn, dataset)
    }

    fn values(dataset: &Dataset, ids: &[u64]) -> Vec<u8> {
        let mut stream = Vec::new();
        for &id in ids {
            stream.extend_from_slice(b"$20\r\n");
            dataset.append_value(id, &mut stream);
            stream.extend_from_slice(b"\r\n");
        }
        stream
    }

    fn outcome_of(get_percent: u64, stream: impl Fn(&Dataset) -> Vec<u8>) -> (Outcome, bool) {
        let (mut conn, dataset) = asked(get_percent);
        let mut outcome = Outcome::default();
        let stream = stream(&dataset);
        for piece in stream.chunks(7) {
            conn.receive(piece, START_NS + 500, &dataset, &mut outcome).unwrap();
        }
        let idle = conn.is_idle();
        (outcome, idle)
    }

    #[test]
    fn right_values_are_counted_and_timed() {
        let (outcome, idle) = outcome_of(100, |dataset| values(dataset, &[0, 1, 2]));
        assert!(idle);
        assert_eq!((outcome.operations, outcome.gets, outcome.errors), (3, 3, 0));
        assert_eq!(outcome.latency.max_ns(), 500);
    }

    #[test]
    fn swapped_values_are_errors() {
        let (outcome, idle) = outcome_of(100, |dataset| values(dataset, &[1, 0, 2]));
        assert!(idle);
        assert_eq!((outcome.operations, outcome.errors), (3, 2));
    }

    #[test]
    fn wrong_lengths_nulls_and_errors_are_told_apart() {
        let (outcome, _) = outcome_of(100, |_| b"$3\r\nabc\r\n$-1\r\n-ERR no\r\n".to_vec());
        assert_eq!((outcome.operations, outcome.errors, outcome.missing), (3, 2, 1));
        assert!(outcome.examples[0].contains("3 bytes"), "{:?}", outcome.examples);
        assert!(outcome.examples[1].contains("ERR no"), "{:?}", outcome.examples);
    }

    #[test]
    fn sets_want_ok() {
        let (outcome, idle) = outcome_of(0, |_| b"+OK\r\n+NO\r\n$-1\r\n".to_vec());
        assert!(idle);
        assert_eq!((outcome.sets, outcome.errors, outcome.missing), (3, 2, 0));
    }

    #[test]
    fn unasked_replies_break_the_stream() {
        let (mut conn, dataset) = asked(0);
        let mut outcome = Outcome::default();
        let stream = b"+OK\r\n+OK\r\n+OK\r\n+OK\r\n";
        assert!(conn.receive(stream, 0, &dataset, &mut outcome).is_err());
    }
}
