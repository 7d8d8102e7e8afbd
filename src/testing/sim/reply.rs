//! Replies as a client reads them (RESP2).

use std::hash::{DefaultHasher, Hash, Hasher};

/// One reply.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    Simple(String),
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Null,
    Array(Vec<Reply>),
}

impl Reply {
    pub fn ok() -> Reply {
        Reply::Simple("OK".into())
    }

    /// The reply at the start of `bytes` and its length; None while it is not complete. The error
    /// is for bytes that are no reply.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Reply, usize)>, String> {
        let Some(end) = bytes.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
        let line = String::from_utf8_lossy(&bytes[1..end]).into_owned();
        let used = end + 2;
        let number = || line.parse::<i64>().map_err(|_| format!("not a number: {line:?}"));
        let reply = match bytes[0] {
            b'+' => Reply::Simple(line),
            b'-' => Reply::Error(line),
            b':' => Reply::Int(number()?),
            b'$' => match number()? {
                -1 => Reply::Null,
                len => return Reply::parse_bulk(bytes, used, len as usize),
            },
            b'*' => return Reply::parse_array(bytes, used, number()? as usize),
            other => return Err(format!("a reply that starts with byte {other}")),
        };
        Ok(Some((reply, used)))
    }

    fn parse_bulk(
        bytes: &[u8],
        start: usize,
        len: usize,
    ) -> Result<Option<(Reply, usize)>, String> {
        let Some(value) = bytes.get(start..start + len + 2) else { return Ok(None) };
        if &value[len..] != b"\r\n" {
            return Err("a bulk string that does not end where it should".into());
        }
        Ok(Some((Reply::Bulk(value[..len].to_vec()), start + len + 2)))
    }

    fn parse_array(
        bytes: &[u8],
        mut at: usize,
        len: usize,
    ) -> Result<Option<(Reply, usize)>, String> {
        let mut parts = Vec::new();
        for _ in 0..len {
            let Some((part, used)) = Reply::parse(&bytes[at..])? else { return Ok(None) };
            parts.push(part);
            at += used;
        }
        Ok(Some((Reply::Array(parts), at)))
    }

    /// A number that differs between replies.
    pub fn print(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish()
    }

    /// For a trace: long values are shortened.
    pub fn show(&self) -> String {
        match self {
            Reply::Bulk(bytes) => show_bytes(bytes),
            Reply::Array(parts) => {
                let parts: Vec<String> = parts.iter().map(Reply::show).collect();
                format!("[{}]", parts.join(", "))
            }
            other => format!("{other:?}"),
        }
    }
}

/// Bytes for a trace: long ones are shortened.
pub fn show_bytes(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(24)]).into_owned();
    match bytes.len() {
        0..=24 => format!("{text:?}"),
        len => format!("{text:?}..{len}"),
    }
}

#[cfg(test)]
mod tests {
    use super::Reply;

    #[test]
    fn replies_are_read_when_they_are_complete() {
        let bytes = b"*3\r\n$2\r\nab\r\n:5\r\n$-1\r\n+OK\r\n";
        let array = Reply::Array(vec![Reply::Bulk(b"ab".to_vec()), Reply::Int(5), Reply::Null]);
        assert_eq!(Reply::parse(bytes), Ok(Some((array, bytes.len() - 5))));
        for end in 0..bytes.len() - 5 {
            assert_eq!(Reply::parse(&bytes[..end]), Ok(None), "{end}");
        }
        assert!(Reply::parse(b"?\r\n").is_err());
    }
}
