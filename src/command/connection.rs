//! The connection family: greeting, password, database.

use super::number::integer_32;
use super::session::{After, SessionContext};
use super::{Command, Handler, Keys, client, errors, flag};
use crate::limits::DATABASES;
use crate::resp::{Proto, Reply};
use crate::shard::view::Stop;

/// Commands of the handshake: may be sent at any time.
const HANDSHAKE: u32 =
    flag::NOSCRIPT | flag::LOADING | flag::STALE | flag::FAST | flag::NO_AUTH | flag::ALLOW_BUSY;

const PLAIN: u32 = flag::LOADING | flag::STALE | flag::FAST;

const fn row(
    name: &'static str,
    arity: i16,
    flags: u32,
    run: super::SessionFn,
    since: &'static str,
    summary: &'static str,
) -> Command {
    let (keys, handler) = (Keys::None, Handler::Session(run));
    let (group, complexity) = ("connection", "O(1)");
    Command { name, arity, flags, keys, handler, summary, group, since, complexity }
}

pub const COMMANDS: &[Command] = &[
    row("auth", -2, HANDSHAKE, auth, "1.0.0", "Authenticates the connection."),
    client::COMMAND,
    row("echo", 2, PLAIN, echo, "1.0.0", "Returns the given string."),
    row("hello", -1, HANDSHAKE, hello, "6.0.0", "Greets the server and chooses the protocol."),
    row("ping", -1, flag::FAST, ping, "1.0.0", "Returns the given string, or PONG."),
    row("quit", -1, HANDSHAKE, quit, "1.0.0", "Closes the connection."),
    row("readonly", 1, PLAIN, no_cluster, "3.0.0", "Allows reads on a replica of a cluster."),
    row("readwrite", 1, PLAIN, no_cluster, "3.0.0", "Forbids reads on a replica of a cluster."),
    row("reset", 1, HANDSHAKE, reset, "6.2.0", "Brings the connection back to its first state."),
    row("select", 2, PLAIN, select, "1.0.0", "Chooses the database."),
];

/// The version of Redis whose behaviour clients may expect; they choose features by it.
pub const REDIS_VERSION: &str = "7.2.4";

/// The only user there is.
const DEFAULT_USER: &[u8] = b"default";

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the \
                           default user. Are you sure your configuration is correct?";
const HELLO_BEFORE_AUTH: &str = "NOAUTH HELLO must be called with the client already \
                                 authenticated, otherwise the HELLO AUTH <user> <pass> option can \
                                 be used to authenticate the client and select the RESP protocol \
                                 version at the same time";

fn ping(context: &mut SessionContext<'_>) -> After {
    match context.args.len() {
        1 => context.reply.simple("PONG"),
        2 => context.reply.bulk(&context.args[1]),
        _ => context.reply.error(&errors::wrong_arity("ping")),
    }
    After::Nothing
}

fn echo(context: &mut SessionContext<'_>) -> After {
    context.reply.bulk(&context.args[1]);
    After::Nothing
}

fn quit(context: &mut SessionContext<'_>) -> After {
    context.reply.ok();
    After::Close
}

fn reset(context: &mut SessionContext<'_>) -> After {
    let password_required = context.password_required();
    context.session.reset(password_required);
    context.reply.simple("RESET");
    After::Nothing
}

fn no_cluster(context: &mut SessionContext<'_>) -> After {
    context.reply.error("ERR This instance has cluster support disabled");
    After::Nothing
}

fn select(context: &mut SessionContext<'_>) -> After {
    match integer_32(&context.args[1]) {
        Ok(db) if (0..DATABASES as i32).contains(&db) => {
            context.session.db = db as u8;
            context.reply.ok();
        }
        Ok(_) => context.reply.error("ERR DB index is out of range"),
        Err(Stop::Error(text)) => context.reply.error(&text),
        Err(Stop::Fault(_)) => unreachable!("parsing a number loads nothing"),
    }
    After::Nothing
}

fn auth(context: &mut SessionContext<'_>) -> After {
    let args = context.args;
    let outcome = match args.len() {
        2 if !context.password_required() => Err(NO_PASSWORD),
        2 => authenticate(context, DEFAULT_USER, &args[1]),
        3 => authenticate(context, &args[1], &args[2]),
        _ => Err(errors::SYNTAX),
    };
    match outcome {
        Ok(()) => context.reply.ok(),
        Err(text) => context.reply.error(text),
    }
    After::Nothing
}

/// Lets the connection in, or leaves it as it was. Any password is right when none is needed.
fn authenticate(
    context: &mut SessionContext<'_>,
    user: &[u8],
    password: &[u8],
) -> Result<(), &'static str> {
    let right = !context.password_required() || context.server.config.password_is(password);
    if user != DEFAULT_USER || !right {
        return Err(WRONG_PASSWORD);
    }
    context.session.authenticated = true;
    Ok(())
}

/// The options of HELLO.
#[derive(Default)]
struct Hello<'a> {
    proto: Option<Proto>,
    credentials: Option<(&'a [u8], &'a [u8])>,
    name: Option<&'a [u8]>,
}

fn hello(context: &mut SessionContext<'_>) -> After {
    let outcome = parse_hello(context).and_then(|options| apply_hello(context, &options));
    match outcome {
        Ok(()) => greet(context),
        Err(text) => context.reply.error_bytes(&text),
    }
    After::Nothing
}

fn parse_hello<'a>(context: &SessionContext<'a>) -> Result<Hello<'a>, Vec<u8>> {
    let args = context.args;
    let mut options = Hello::default();
    if let Some(version) = args.get(1) {
        options.proto = Some(parse_proto(version)?);
    }
    let mut at = 2;
    while let Some(option) = args.get(at) {
        if option.eq_ignore_ascii_case(b"auth") && at + 2 < args.len() {
            options.credentials = Some((args.at(at + 1), args.at(at + 2)));
            at += 3;
        } else if option.eq_ignore_ascii_case(b"setname") && at + 1 < args.len() {
            let name = args.at(at + 1);
            client::check_name("Client names", name)?;
            options.name = Some(name);
            at += 2;
        } else {
            return Err([b"ERR Syntax error in HELLO option '", option, b"'"].concat());
        }
    }
    Ok(options)
}

fn parse_proto(version: &[u8]) -> Result<Proto, Vec<u8>> {
    match super::number::parse_i64(version) {
        Some(2) => Ok(Proto::Resp2),
        Some(3) => Ok(Proto::Resp3),
        Some(_) => Err(b"NOPROTO unsupported protocol version".to_vec()),
        None => Err(b"ERR Protocol version is not an integer or out of range".to_vec()),
    }
}

fn apply_hello(context: &mut SessionContext<'_>, options: &Hello<'_>) -> Result<(), Vec<u8>> {
    if let Some((user, password)) = options.credentials {
        authenticate(context, user, password)?;
    }
    if context.session.must_authenticate(context.password_required()) {
        return Err(HELLO_BEFORE_AUTH.into());
    }
    if let Some(name) = options.name {
        context.session.name = name.to_vec();
    }
    if let Some(proto) = options.proto {
        context.session.proto = proto;
        context.reply.set_proto(proto);
    }
    Ok(())
}

fn greet(context: &mut SessionContext<'_>) {
    let reply = &mut context.reply;
    reply.map(7);
    pair(reply, "server", "redis");
    pair(reply, "version", REDIS_VERSION);
    reply.bulk(b"proto");
    reply.int(if context.session.proto == Proto::Resp3 { 3 } else { 2 });
    reply.bulk(b"id");
    reply.int(context.session.id as i64);
    pair(reply, "mode", "standalone");
    pair(reply, "role", "master");
    reply.bulk(b"modules");
    reply.array(0);
}

fn pair(reply: &mut Reply<'_>, name: &str, value: &str) {
    reply.bulk(name.as_bytes());
    reply.bulk(value.as_bytes());
}
