//! WAIT and WAITAOF: the fences of a connection. What comes after one sees everything that the
//! connection had written before as safe as it asked for.

use super::number::integer;
use super::session::{After, SessionContext};
use super::{Command, Handler, Keys, flag};
use crate::clock::Now;
use crate::resp::Reply;
use crate::shard::view::Stop;

const fn row(
    name: &'static str,
    arity: i16,
    run: super::SessionFn,
    since: &'static str,
    summary: &'static str,
) -> Command {
    let (keys, handler, flags) = (Keys::None, Handler::Session(run), flag::BLOCKING);
    let (group, complexity) = ("generic", "O(1)");
    Command { name, arity, flags, keys, handler, summary, group, since, complexity }
}

pub const COMMANDS: &[Command] = &[
    row("wait", 3, wait, "3.0.0", "Waits for replicas; there are none."),
    row("waitaof", 4, wait_aof, "7.2.0", "Waits until earlier writes survive a power cut."),
];

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    form: Form,
    /// Its writes are durable on the devices, their caches flushed.
    pub local: bool,
    /// A replica has them: never.
    pub replicas: bool,
    /// When it is answered all the same; `None` = not before.
    pub timeout_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Wait,
    WaitAof,
}

impl Fence {
    /// The answer. `synced`: the writes are known to be durable here.
    pub fn reply(&self, synced: bool, reply: &mut Reply<'_>) {
        if self.form == Form::WaitAof {
            reply.array(2);
            reply.int(i64::from(synced));
        }
        reply.int(0);
    }
}

fn wait(context: &mut SessionContext<'_>) -> After {
    let fence = parse_wait(&context.args[1], &context.args[2], context.now);
    start(context, fence)
}

fn wait_aof(context: &mut SessionContext<'_>) -> After {
    let args = context.args;
    let fence = parse_wait_aof(&args[1], &args[2], &args[3], context.now);
    start(context, fence)
}

fn start(context: &mut SessionContext<'_>, fence: Result<Fence, Stop>) -> After {
    match fence {
        Ok(fence) if fence.local || fence.replicas => After::Fence(fence),
        Ok(fence) => {
            fence.reply(false, &mut context.reply);
            After::Nothing
        }
        Err(Stop::Error(text)) => {
            context.reply.error(&text);
            After::Nothing
        }
        Err(Stop::Fault(_)) => panic!("the parse of a command's arguments needs no values"),
    }
}

fn parse_wait(replicas: &[u8], timeout: &[u8], now: Now) -> Result<Fence, Stop> {
    let replicas = integer(replicas)? > 0;
    let timeout_ms = milliseconds(timeout, now)?;
    Ok(Fence { form: Form::Wait, local: false, replicas, timeout_ms })
}

fn parse_wait_aof(local: &[u8], replicas: &[u8], timeout: &[u8], now: Now) -> Result<Fence, Stop> {
    let local = match integer(local)? {
        0 => false,
        1 => true,
        _ => return Err(Stop::error("ERR value is out of range, value must between 0 and 1")),
    };
    let replicas = integer(replicas)?;
    if replicas < 0 {
        return Err(Stop::error("ERR value is out of range, must be positive"));
    }
    let timeout_ms = milliseconds(timeout, now)?;
    Ok(Fence { form: Form::WaitAof, local, replicas: replicas > 0, timeout_ms })
}

/// 0 = for ever.
fn milliseconds(text: &[u8], now: Now) -> Result<Option<u64>, Stop> {
    let error = |_| Stop::error("ERR timeout is not an integer or out of range");
    let ms = integer(text).map_err(error)?;
    let ms = u64::try_from(ms).map_err(|_| Stop::error("ERR timeout is negative"))?;
    if now.unix_ms.checked_add(ms).is_none_or(|at_ms| at_ms > i64::MAX as u64) {
        return Err(Stop::error("ERR timeout is out of range"));
    }
    Ok((ms > 0).then_some(ms))
}

#[cfg(test)]
mod tests {
    use super::{Fence, Form, Now, Stop, parse_wait, parse_wait_aof};

    fn parsed(line: &str) -> Result<Fence, String> {
        let now = Now { mono_ns: 1, unix_ms: 1_700_000_000_000 };
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let fence = match words[..] {
            [_, replicas, timeout] => parse_wait(replicas, timeout, now),
            [_, local, replicas, timeout] => parse_wait_aof(local, replicas, timeout, now),
            _ => panic!("{line}"),
        };
        fence.map_err(|stop| match stop {
            Stop::Error(text) => text.to_string(),
            Stop::Fault(_) => panic!("a fault"),
        })
    }

    #[test]
    fn arguments_are_those_of_redis() {
        let fence =
            |form, local, replicas, timeout_ms| Ok(Fence { form, local, replicas, timeout_ms });
        assert_eq!(parsed("wait 0 0"), fence(Form::Wait, false, false, None));
        assert_eq!(parsed("wait 2 100"), fence(Form::Wait, false, true, Some(100)));
        assert_eq!(parsed("wait -1 0"), fence(Form::Wait, false, false, None));
        assert_eq!(parsed("waitaof 1 0 50"), fence(Form::WaitAof, true, false, Some(50)));
        assert_eq!(parsed("waitaof 0 3 0"), fence(Form::WaitAof, false, true, None));
        for (line, text) in [
            ("wait x 0", "ERR value is not an integer or out of range"),
            ("wait 0 x", "ERR timeout is not an integer or out of range"),
            ("wait 0 -1", "ERR timeout is negative"),
            ("wait 1 9223372036854775807", "ERR timeout is out of range"),
            ("waitaof 2 0 0", "ERR value is out of range, value must between 0 and 1"),
            ("waitaof -1 0 0", "ERR value is out of range, value must between 0 and 1"),
            ("waitaof 1 -1 0", "ERR value is out of range, must be positive"),
            ("waitaof 1 0 -1", "ERR timeout is negative"),
        ] {
            assert_eq!(parsed(line), Err(text.to_string()), "{line}");
        }
    }
}
