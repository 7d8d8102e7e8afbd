//! A stream of requests means the same however it is cut into pieces. The first byte of the
//! input chooses the limits, the next seven the lengths of the pieces, in turn.

#![no_main]

use lavik::resp::{BeforeAuth, Limits, ParseState, Parsed, Parser, ProtocolError};
use libfuzzer_sys::fuzz_target;

/// Small, so that short inputs reach them.
const LIMITS: Limits =
    Limits { args_max: 100, bulk_len_max: 1000, line_len_max: 40, before_auth: None };

#[derive(Debug, Default, PartialEq)]
struct Outcome {
    requests: Vec<Vec<Vec<u8>>>,
    error: Option<ProtocolError>,
    left_over: usize,
}

fn parse<'a>(pieces: impl Iterator<Item = &'a [u8]>, limits: &Limits) -> Outcome {
    let mut parser = Parser::new();
    let mut state = ParseState::default();
    let mut outcome = Outcome::default();
    let mut buf = Vec::new();
    for piece in pieces {
        buf.extend_from_slice(piece);
        loop {
            let consumed = match parser.parse(&buf, &mut state, limits) {
                Ok(Parsed::Command { args, consumed }) => {
                    assert!(!args.is_empty() && args.len() <= buf.len());
                    outcome.requests.push(args.iter().map(<[u8]>::to_vec).collect());
                    consumed
                }
                Ok(Parsed::Nothing { consumed }) => consumed,
                Ok(Parsed::Incomplete { want }) => {
                    assert!(want > buf.len());
                    break;
                }
                Err(error) => {
                    outcome.error = Some(error);
                    return outcome;
                }
            };
            assert!(consumed > 0 && consumed <= buf.len());
            assert_eq!(state.heap_bytes(), 0);
            buf.drain(..consumed);
        }
    }
    outcome.left_over = buf.len();
    outcome
}

fuzz_target!(|input: &[u8]| {
    let Some((choice, stream)) = input.split_first_chunk::<8>() else { return };
    let before_auth = BeforeAuth { args_max: 3, bulk_len_max: 20 };
    let limits = Limits { before_auth: (choice[0] & 1 == 1).then_some(before_auth), ..LIMITS };
    let mut rest = stream;
    let mut lengths = choice[1..].iter().cycle();
    let pieces = std::iter::from_fn(|| {
        let wanted = usize::from(*lengths.next()?).max(1);
        let (piece, behind) = rest.split_at(wanted.min(rest.len()));
        rest = behind;
        (!piece.is_empty()).then_some(piece)
    });
    assert_eq!(parse(pieces, &limits), parse([stream].into_iter(), &limits));
});
