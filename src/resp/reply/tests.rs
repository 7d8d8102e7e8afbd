use super::{Proto, Reply, double_string};

/// What `write` writes in RESP2 and in RESP3.
fn both(write: impl Fn(&mut Reply<'_>)) -> [String; 2] {
    [Proto::Resp2, Proto::Resp3].map(|proto| {
        let mut out = Vec::new();
        write(&mut Reply::new(&mut out, proto));
        String::from_utf8(out).expect("text")
    })
}

#[test]
fn alike_in_both_protocols() {
    type Write = fn(&mut Reply<'_>);
    let cases: [(Write, &str); 14] = [
        (|r| r.ok(), "+OK\r\n"),
        (|r| r.simple("PONG"), "+PONG\r\n"),
        (|r| r.error("ERR a\r\nb"), "-ERR a  b\r\n"),
        (|r| r.int(0), ":0\r\n"),
        (|r| r.int(-1), ":-1\r\n"),
        (|r| r.int(i64::MAX), ":9223372036854775807\r\n"),
        (|r| r.int(i64::MIN), ":-9223372036854775808\r\n"),
        (|r| r.bulk(b""), "$0\r\n\r\n"),
        (|r| r.bulk(b"a\r\nb"), "$4\r\na\r\nb\r\n"),
        (|r| r.bulk(&[b'x'; 10]), "$10\r\nxxxxxxxxxx\r\n"),
        (|r| r.array(0), "*0\r\n"),
        (|r| r.array(1_000_000), "*1000000\r\n"),
        (|r| r.raw(b":7\r\n"), ":7\r\n"),
        (|r| r.error_bytes(b"X\nY\r\n"), "-X Y\r\n"),
    ];
    for (write, text) in cases {
        assert_eq!(both(write), [text, text]);
    }
}

#[test]
fn different_in_each_protocol() {
    type Write = fn(&mut Reply<'_>);
    let cases: [(Write, &str, &str); 12] = [
        (|r| r.null(), "$-1\r\n", "_\r\n"),
        (|r| r.null_array(), "*-1\r\n", "_\r\n"),
        (|r| r.map(2), "*4\r\n", "%2\r\n"),
        (|r| r.set(3), "*3\r\n", "~3\r\n"),
        (|r| r.push(3), "*3\r\n", ">3\r\n"),
        (|r| r.boolean(true), ":1\r\n", "#t\r\n"),
        (|r| r.boolean(false), ":0\r\n", "#f\r\n"),
        (|r| r.double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n"),
        (|r| r.double_text("1e400"), "$5\r\n1e400\r\n", ",1e400\r\n"),
        (|r| r.big_number("-12"), "$3\r\n-12\r\n", "(-12\r\n"),
        (|r| r.verbatim("txt", b"a\nb"), "$3\r\na\nb\r\n", "=7\r\ntxt:a\nb\r\n"),
        (|r| r.verbatim("txt", b""), "$0\r\n\r\n", "=4\r\ntxt:\r\n"),
    ];
    for (write, resp2, resp3) in cases {
        assert_eq!(both(write), [resp2, resp3]);
    }
}

#[test]
fn the_protocol_can_change_between_replies() {
    let mut out = Vec::new();
    let mut reply = Reply::new(&mut out, Proto::Resp2);
    reply.null();
    reply.set_proto(Proto::Resp3);
    reply.null();
    assert_eq!(reply.proto(), Proto::Resp3);
    assert_eq!(out, b"$-1\r\n_\r\n");
}

/// Number and text as a Redis server shows the score of a sorted set's member.
const DOUBLES: &[(f64, &str)] = &[
    (0.0, "0"),
    (-0.0, "-0"),
    (3.0, "3"),
    (-1.0, "-1"),
    (0.1, "0.1"),
    (0.3, "0.3"),
    (3.25, "3.25"),
    (0.001, "0.001"),
    (1e-5, "0.00001"),
    (1e-6, "0.000001"),
    (1e-7, "1e-7"),
    (-1e-7, "-1e-7"),
    (1.5e-7, "1.5e-7"),
    (1.2345e-5, "1.2345e-5"),
    (1.23456789e-5, "1.23456789e-5"),
    (0.00012345678, "1.2345678e-4"),
    (99999.5, "99999.5"),
    (123.12345678, "123.12345678"),
    (-1234.5678901, "-1234.5678901"),
    (12345.1234567, "1.23451234567e+4"),
    (1234567890.1234567, "1.2345678901234567e+9"),
    (1e10, "10000000000"),
    (1e17, "100000000000000000"),
    (1234567890123456789.0, "1234567890123456768"),
    (4e18, "4000000000000000000"),
    (-4611686018427387904.0, "-4611686018427387904"),
    (5e18, "5e+18"),
    (9.2e18, "9.2e+18"),
    (1e21, "1e+21"),
    (123456789012345678901234.0, "123456789012345690000000"),
    (1.5e300, "1.5e+300"),
    (f64::MAX, "1.7976931348623157e+308"),
    (5e-324, "5e-324"),
    (f64::INFINITY, "inf"),
    (f64::NEG_INFINITY, "-inf"),
    (f64::NAN, "nan"),
];

#[test]
fn doubles_as_redis_shows_them() {
    for &(value, text) in DOUBLES {
        assert_eq!(double_string(value), text, "{value:e}");
    }
}
