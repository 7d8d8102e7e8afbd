//! Error replies that the driver gives before any command's function runs.

use crate::resp::Args;

pub const NO_AUTH: &str = "NOAUTH Authentication required.";
pub const LOADING: &str = "LOADING Redis is loading the dataset in memory";
pub const MAX_CLIENTS: &str = "ERR max number of clients reached";
pub const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";
pub const SYNTAX: &str = "ERR syntax error";
pub const SHUTDOWN_FAILED: &str = "ERR Errors trying to SHUTDOWN. Check logs.";

/// Bytes of a name that an error repeats, and of all arguments together.
const SHOWN_MAX: usize = 128;

/// For a name that is not in the table. Repeats the name and the first arguments, each up to a
/// zero byte; the bytes may be no UTF-8.
pub fn unknown_command(args: Args<'_>) -> Vec<u8> {
    let mut text = b"ERR unknown command '".to_vec();
    text.extend_from_slice(shown(&args[0], SHOWN_MAX));
    text.extend_from_slice(b"', with args beginning with: ");
    let start = text.len();
    for arg in args.from(1).iter() {
        let Some(room) = SHOWN_MAX.checked_sub(text.len() - start).filter(|&room| room > 0) else {
            break;
        };
        text.push(b'\'');
        text.extend_from_slice(shown(arg, room));
        text.extend_from_slice(b"' ");
    }
    text
}

/// `name` is `client|list` for a subcommand.
pub fn wrong_arity(name: &str) -> String {
    format!("ERR wrong number of arguments for '{name}' command")
}

/// For the subcommand in `args`; `parent` in upper case.
pub fn unknown_subcommand(parent: &str, args: Args<'_>) -> Vec<u8> {
    let name = shown(args.get(1).unwrap_or_default(), SHOWN_MAX);
    let end = format!("'. Try {parent} HELP.");
    [b"ERR unknown subcommand '".as_slice(), name, end.as_bytes()].concat()
}

fn shown(bytes: &[u8], len_max: usize) -> &[u8] {
    let len = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    &bytes[..len.min(len_max)]
}

/// Whether this can only be the first word of an HTTP request that a browser was tricked into
/// sending here. The connection is closed without a reply.
pub fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}
