use super::{BeforeAuth, Limits, ParseState, Parsed, Parser, ProtocolError, RESUME_ARGS_MIN};

const LIMITS: Limits = Limits {
    args_max: 1024 * 1024,
    bulk_len_max: 512 << 20,
    line_len_max: 64 * 1024,
    before_auth: None,
};

const STRANGER: Limits =
    Limits { before_auth: Some(BeforeAuth { args_max: 10, bulk_len_max: 16384 }), ..LIMITS };

type Words = Vec<Vec<u8>>;

/// What a stream came to: its requests, the error that ended it, and the bytes left over.
type Outcome = (Vec<Words>, Option<ProtocolError>, usize);

/// Parses a stream that arrives in the given pieces.
fn parse_pieces<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, limits: &Limits) -> Outcome {
    let mut parser = Parser::new();
    let mut state = ParseState::default();
    let (mut buf, mut requests) = (Vec::new(), Vec::new());
    for piece in pieces {
        buf.extend_from_slice(piece);
        loop {
            let consumed = match parser.parse(&buf, &mut state, limits) {
                Ok(Parsed::Command { args, consumed }) => {
                    requests.push(args.iter().map(<[u8]>::to_vec).collect());
                    consumed
                }
                Ok(Parsed::Nothing { consumed }) => consumed,
                Ok(Parsed::Incomplete { want }) => {
                    assert!(want > buf.len(), "want {want} of {}", buf.len());
                    break;
                }
                Err(error) => return (requests, Some(error), 0),
            };
            assert_eq!(state.heap_bytes(), 0);
            buf.drain(..consumed);
        }
    }
    (requests, None, buf.len())
}

fn parse_whole(stream: &[u8], limits: &Limits) -> Outcome {
    parse_pieces([stream], limits)
}

/// The requests of a stream that ends well.
fn requests(stream: &[u8]) -> Vec<Words> {
    let (requests, error, left) = parse_whole(stream, &LIMITS);
    assert_eq!((error, left), (None, 0), "{}", stream.escape_ascii());
    requests
}

/// A request of every length that the straight path and the slow path of a header divide at.
#[test]
fn arguments_of_many_lengths() {
    for len in
        [0, 1, 2, 9, 10, 11, 99, 100, 999, 1000, 9999, 10_000, 100_000, 1_000_000, 10_000_000]
    {
        let arg = vec![b'7'; len];
        let head = format!("*2\r\n$1\r\nG\r\n${len}\r\n");
        let stream = [head.as_bytes(), &arg, b"\r\n"].concat();
        assert_eq!(requests(&stream), [[b"G".to_vec(), arg.clone()]]);
        assert_eq!(
            parse_whole(&stream[..stream.len() - 1], &LIMITS),
            (vec![], None, stream.len() - 1)
        );
    }
}

fn words(words: &[&[u8]]) -> Words {
    words.iter().map(|word| word.to_vec()).collect()
}

/// Streams and the requests in them.
fn samples() -> Vec<(&'static [u8], Vec<Words>)> {
    vec![
        (b"*1\r\n$4\r\nPING\r\n", vec![words(&[b"PING"])]),
        (b"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", vec![words(&[b"ECHO", b""])]),
        (
            b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$12\r\n\r\n\x00\xff*1\r\n$4\r\n\r\n*1\r\n$1\r\nQ\r\n",
            vec![words(&[b"SET", b"k", b"\r\n\x00\xff*1\r\n$4\r\n"]), words(&[b"Q"])],
        ),
        (b"*1\r\n$0\r\n\r\n", vec![words(&[b""])]),
        (b"\r\n\n \t\r\n*0\r\n*-1\r\n*-9223372036854775808\r\n", vec![]),
        (b"\r\n*2\r\n$4\r\nECHO\r\n$3\r\n\x01\r\n\r\n", vec![words(&[b"ECHO", b"\x01\r\n"])]),
        // Redis looks neither at the byte after a carriage return nor at an argument's line end.
        (b"*1\rx$4\ryPINGzzPING\n", vec![words(&[b"PING"]), words(&[b"PING"])]),
        (b"PING\n", vec![words(&[b"PING"])]),
        (b"SET a 1\nGET a\n", vec![words(&[b"SET", b"a", b"1"]), words(&[b"GET", b"a"])]),
        (b"LPUSH l 'lorem ipsum'\r\n", vec![words(&[b"LPUSH", b"l", b"lorem ipsum"])]),
        (b"  PING \t x  \r\n", vec![words(&[b"PING", b"x"])]),
        (b"PING \x0babc\x0b\x0c\r\n", vec![words(&[b"PING", b"abc\x0b\x0c"])]),
        (b"PING\rx\n", vec![words(&[b"PING", b"x"])]),
        (b"PING a\"b c\"\r\n", vec![words(&[b"PING", b"ab c"])]),
        (b"PING \"\"  ''\n", vec![words(&[b"PING", b"", b""])]),
        (b"\"\"\r\n", vec![words(&[b""])]),
        (
            b"PING \"\\x41\\n\\r\\t\\b\\a\\q\\\"\\x4g\\\\\"\r\n",
            vec![words(&[b"PING", b"A\n\r\t\x08\x07q\"x4g\\"])],
        ),
        (b"PING 'a\\'b\\n'\r\n", vec![words(&[b"PING", b"a'b\\n"])]),
        (b"PING a\\nb\n", vec![words(&[b"PING", b"a\\nb"])]),
    ]
}

#[test]
fn streams_and_their_requests() {
    for (stream, want) in samples() {
        let (got, error, left) = parse_whole(stream, &LIMITS);
        assert_eq!(got, want, "{}", stream.escape_ascii());
        assert_eq!((error, left), (None, 0));
    }
}

/// Each stream and its reply, as Redis gives it.
const ERRORS: &[(&[u8], &str)] = &[
    (b"*\r\n", "invalid multibulk length"),
    (b"*-0\r\n", "invalid multibulk length"),
    (b"*+1\r\n", "invalid multibulk length"),
    (b"*01\r\n", "invalid multibulk length"),
    (b"* 1\r\n", "invalid multibulk length"),
    (b"*1a\r\n", "invalid multibulk length"),
    (b"*1048577\r\n", "invalid multibulk length"),
    (b"*18446744073709551617\r\n", "invalid multibulk length"),
    (b"*-9223372036854775809\r\n", "invalid multibulk length"),
    (b"*1\n$4\nPING\n\r\n", "invalid multibulk length"),
    (b"*3\r\n$-5\r\n", "invalid bulk length"),
    (b"*1\r\n$\r\n", "invalid bulk length"),
    (b"*1\r\n$04\r\nPING\r\n", "invalid bulk length"),
    (b"*1\r\n$+4\r\nPING\r\n", "invalid bulk length"),
    (b"*1\r\n$536870913\r\n", "invalid bulk length"),
    (b"*1\r\n$18446744073709551620\r\n", "invalid bulk length"),
    (b"*1\r\n+x\r\n", "expected '$', got '+'"),
    (b"*1048576\r\n+x\r\n", "expected '$', got '+'"),
    (b"*2\r\n$1\r\na\r\nb\r\n", "expected '$', got 'b'"),
    (b"PING \"abc\r\n", "unbalanced quotes in request"),
    (b"PING \"abc\\\r\n", "unbalanced quotes in request"),
    (b"PING 'abc\n", "unbalanced quotes in request"),
    (b"PING \"abc\"d\r\n", "unbalanced quotes in request"),
    (b"PING 'it''s'\n", "unbalanced quotes in request"),
    (b"PING 'abc'd\r\n", "unbalanced quotes in request"),
];

#[test]
fn errors() {
    for (stream, text) in ERRORS {
        let (_, error, _) = parse_whole(stream, &LIMITS);
        let got = error.map(|error| error.to_string());
        assert_eq!(got, Some(format!("ERR Protocol error: {text}")), "{}", stream.escape_ascii());
    }
}

#[test]
fn limits_before_auth() {
    let error = |stream: &[u8]| parse_whole(stream, &STRANGER).1.map(|error| error.to_string());
    assert_eq!(
        error(b"*11\r\n").as_deref(),
        Some("ERR Protocol error: unauthenticated multibulk length")
    );
    assert_eq!(
        error(b"*1\r\n$16385\r\n").as_deref(),
        Some("ERR Protocol error: unauthenticated bulk length")
    );
    assert_eq!(error(b"*2000000\r\n"), Some("ERR Protocol error: invalid multibulk length".into()));
    assert_eq!(error(b"*10\r\n$16384\r\n"), None);
    assert_eq!(error(format!("PING {}\n", "a".repeat(20000)).as_bytes()), None);
}

#[test]
fn lines_of_64_kib_and_one_more() {
    let cases: [(&str, ProtocolError); 3] = [
        ("*", ProtocolError::MultibulkCountTooLong),
        ("*1\r\n$", ProtocolError::BulkCountTooLong),
        ("a", ProtocolError::InlineTooLong),
    ];
    for (start, error) in cases {
        let mut stream = start.as_bytes().to_vec();
        stream.resize(start.len() + 65535, b'1');
        assert_eq!(parse_whole(&stream, &LIMITS), (vec![], None, stream.len()));
        stream.push(b'1');
        assert_eq!(parse_whole(&stream, &LIMITS), (vec![], Some(error), 0));
        stream.extend_from_slice(b"\r\n");
        assert_eq!(parse_whole(&stream, &LIMITS), (vec![], Some(error), 0));
    }
    let mut line = vec![b'a'; 65536];
    line.push(b'\n');
    assert_eq!(requests(&line), [[&line[..65536]]]);
}

#[test]
fn every_split_gives_the_same() {
    let streams = samples().into_iter().map(|(stream, _)| stream);
    for stream in streams.chain(ERRORS.iter().map(|(stream, _)| *stream)) {
        let whole = parse_whole(stream, &LIMITS);
        for at in 0..=stream.len() {
            let (front, back) = stream.split_at(at);
            let shown = stream.escape_ascii();
            assert_eq!(parse_pieces([front, back], &LIMITS), whole, "{shown} split at {at}");
        }
        assert_eq!(parse_pieces(stream.chunks(1), &LIMITS), whole);
        assert_eq!(parse_pieces(stream.chunks(3), &LIMITS), whole);
    }
}

#[test]
fn every_split_of_pipelined_requests_gives_the_same() {
    let (streams, wants): (Vec<_>, Vec<_>) = samples().into_iter().unzip();
    let stream = streams.concat();
    let whole = (wants.concat(), None, 0);
    assert_eq!(parse_whole(&stream, &LIMITS), whole);
    for at in 0..=stream.len() {
        let (front, back) = stream.split_at(at);
        assert_eq!(parse_pieces([front, back], &LIMITS), whole, "split at {at}");
    }
}

/// A request of `count` arguments `0`, `1`, ...
fn numbered(count: usize) -> (Vec<u8>, Words) {
    let args: Words = (0..count).map(|i| i.to_string().into_bytes()).collect();
    let mut stream = format!("*{count}\r\n").into_bytes();
    for arg in &args {
        stream.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        stream.extend_from_slice(arg);
        stream.extend_from_slice(b"\r\n");
    }
    (stream, args)
}

#[test]
fn many_arguments_in_pieces() {
    for count in [RESUME_ARGS_MIN - 1, RESUME_ARGS_MIN, RESUME_ARGS_MIN + 1, 500] {
        let (mut stream, args) = numbered(count);
        stream.extend_from_slice(b"PING\n");
        let want = (vec![args, words(&[b"PING"])], None, 0);
        for size in [1, 2, 7, 64, 1000] {
            assert_eq!(parse_pieces(stream.chunks(size), &LIMITS), want, "{count} by {size}");
        }
        for at in 0..=stream.len() {
            let (front, back) = stream.split_at(at);
            assert_eq!(parse_pieces([front, back], &LIMITS), want, "{count} at {at}");
        }
    }
}

#[test]
fn a_quarter_million_arguments() {
    let (stream, args) = numbered(245_002);
    assert_eq!(requests(&stream), [args]);
}

/// Work is bounded by what is new: what was parsed before the cut is not looked at again.
#[test]
fn resumes_where_it_stopped() {
    let (stream, args) = numbered(1000);
    let (mut parser, mut state) = (Parser::new(), ParseState::default());
    let cut = stream.len() - 10;
    let first = parser.parse(&stream[..cut], &mut state, &LIMITS);
    assert!(matches!(first, Ok(Parsed::Incomplete { .. })));
    let partial = state.partial.as_ref().expect("kept");
    assert!(partial.pos >= cut - 10, "{} of {cut}", partial.pos);
    assert_eq!(partial.left + partial.spans.len(), 1000);
    assert!(state.heap_bytes() >= 8 * 998);

    let Ok(Parsed::Command { args: got, consumed }) = parser.parse(&stream, &mut state, &LIMITS)
    else {
        panic!("incomplete")
    };
    assert_eq!(consumed, stream.len());
    assert!(got.iter().eq(args.iter().map(Vec::as_slice)));
    assert_eq!(state.heap_bytes(), 0);
}

#[test]
fn a_large_argument_is_asked_for_as_a_whole() {
    let (mut parser, mut state) = (Parser::new(), ParseState::default());
    let start = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\nabc";
    let want = start.len() - 3 + (512 << 20) + 2;
    for len in [start.len() - 3, start.len() - 1, start.len()] {
        let parsed = parser.parse(&start[..len], &mut state, &LIMITS);
        assert!(matches!(parsed, Ok(Parsed::Incomplete { want: w }) if w == want), "{parsed:?}");
    }
    assert_eq!(state.heap_bytes(), 0);
}

#[test]
fn a_request_beyond_32_bits_is_refused() {
    let limits = Limits { bulk_len_max: usize::MAX >> 1, ..LIMITS };
    let parse = |stream: &[u8]| parse_whole(stream, &limits).1;
    assert_eq!(parse(b"*1\r\n$4294967280\r\n"), Some(ProtocolError::InvalidBulkLength));
    assert_eq!(parse(b"*1\r\n$4294967270\r\n"), None);
}

#[test]
fn memory_of_a_large_request_is_given_back() {
    let (stream, _) = numbered(10_000);
    let (mut parser, mut state) = (Parser::new(), ParseState::default());
    assert!(parser.parse(&stream, &mut state, &LIMITS).is_ok());
    assert!(parser.spans.capacity() >= 10_000);
    assert!(parser.parse(b"PING\n", &mut state, &LIMITS).is_ok());
    assert_eq!(parser.spans.capacity(), super::SPANS_KEPT);
}
