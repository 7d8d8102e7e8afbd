//! CLIENT: what connections are called, what they look like, and their end.
//!
//! LIST and KILL concern the connections of all cores: here the arguments become a
//! [`ClientFilter`], every core applies [`matches`] to its sessions, and the asking core puts
//! the answers together with [`reply_list`] or [`reply_killed`].

use std::borrow::Cow;

use super::number::parse_i64;
use super::session::{
    After, ClientFilter, ClientKind, ClientSizes, Gather, ReplyMode, Session, SessionContext,
};
use super::{Command, Handler, Keys, errors, flag};
use crate::resp::{Args, Reply};

pub const COMMAND: Command = Command {
    name: "client",
    arity: -2,
    flags: flag::NOSCRIPT | flag::LOADING | flag::STALE,
    keys: Keys::None,
    handler: Handler::Session(client),
    summary: "A container for client connection commands.",
    group: "connection",
    since: "2.4.0",
    complexity: "Depends on subcommand.",
};

/// The outcome of a subcommand; an error is the reply without its mark.
type Outcome = Result<After, Cow<'static, [u8]>>;
type Subcommand = fn(&mut SessionContext<'_>) -> Outcome;

/// Name, arity as in [`Command::arity`], and function.
const SUBCOMMANDS: &[(&str, i16, Subcommand)] = &[
    ("client|caching", 3, caching),
    ("client|getname", 2, get_name),
    ("client|getredir", 2, get_redirection),
    ("client|help", 2, help),
    ("client|id", 2, id),
    ("client|info", 2, info),
    ("client|kill", -3, kill),
    ("client|list", -2, list),
    ("client|no-evict", 3, no_evict),
    ("client|no-touch", 3, no_touch),
    ("client|reply", 3, reply_mode),
    ("client|setinfo", 4, set_info),
    ("client|setname", 3, set_name),
    ("client|tracking", -3, tracking),
    ("client|trackinginfo", 2, tracking_info),
    ("client|unpause", 2, unpause),
];

const HELP: &[&str] = &[
    "CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GETNAME | SETNAME <name>",
    "    The name of this connection.",
    "HELP",
    "    This text.",
    "ID",
    "    The number of this connection.",
    "INFO",
    "    A line about this connection.",
    "KILL <ip:port>",
    "    Close the connection from this address.",
    "KILL <option> <value> [<option> <value> ...]",
    "    Close connections: ADDR, LADDR <ip:port>, ID <number>, USER <name>,",
    "    TYPE (NORMAL|MASTER|REPLICA|PUBSUB), MAXAGE <seconds>, SKIPME (YES|NO).",
    "LIST [TYPE (NORMAL|MASTER|REPLICA|PUBSUB) | ID <number> [<number> ...]]",
    "    A line about each connection.",
    "NO-EVICT (ON|OFF), NO-TOUCH (ON|OFF)",
    "    Accepted and shown by INFO.",
    "REPLY (ON|OFF|SKIP)",
    "    Whether commands of this connection get replies.",
    "SETINFO (LIB-NAME|LIB-VER) <value>",
    "    What the client's library is called.",
    "GETREDIR, TRACKINGINFO, TRACKING OFF, UNPAUSE",
    "    Client side caching and pauses: always off.",
];

fn client(context: &mut SessionContext<'_>) -> After {
    run(context).unwrap_or_else(|error| {
        context.reply.error_bytes(&error);
        After::Nothing
    })
}

fn run(context: &mut SessionContext<'_>) -> Outcome {
    let args = context.args;
    let given = &args[1];
    let row = SUBCOMMANDS.iter().find(|(name, ..)| {
        name.strip_prefix("client|").is_some_and(|n| n.as_bytes().eq_ignore_ascii_case(given))
    });
    let Some(&(name, arity, function)) = row else {
        return Err(errors::unknown_subcommand("CLIENT", args).into());
    };
    if !(Command { arity, ..COMMAND }).takes(args.len()) {
        return Err(errors::wrong_arity(name).into_bytes().into());
    }
    context.session.last_command = name;
    function(context)
}

fn refuse(text: &'static str) -> Outcome {
    Err(text.as_bytes().into())
}

fn done(context: &mut SessionContext<'_>) -> Outcome {
    context.reply.ok();
    Ok(After::Nothing)
}

fn id(context: &mut SessionContext<'_>) -> Outcome {
    context.reply.int(context.session.id as i64);
    Ok(After::Nothing)
}

fn help(context: &mut SessionContext<'_>) -> Outcome {
    context.reply.array(HELP.len());
    HELP.iter().for_each(|line| context.reply.simple(line));
    Ok(After::Nothing)
}

fn get_name(context: &mut SessionContext<'_>) -> Outcome {
    match context.session.name.as_slice() {
        [] => context.reply.null(),
        name => context.reply.bulk(name),
    }
    Ok(After::Nothing)
}

fn set_name(context: &mut SessionContext<'_>) -> Outcome {
    let name = context.args.at(2);
    check_name("Client names", name)?;
    context.session.name = name.to_vec();
    done(context)
}

/// Names are shown in CLIENT LIST, where a space or a line end would break the line.
pub(super) fn check_name(what: &str, name: &[u8]) -> Result<(), Vec<u8>> {
    if name.iter().all(u8::is_ascii_graphic) {
        return Ok(());
    }
    let text = format!("ERR {what} cannot contain spaces, newlines or special characters.");
    Err(text.into_bytes())
}

fn set_info(context: &mut SessionContext<'_>) -> Outcome {
    let (option, value) = (context.args.at(2), context.args.at(3));
    let (name, field) = if option.eq_ignore_ascii_case(b"lib-name") {
        ("lib-name", &mut context.session.lib_name)
    } else if option.eq_ignore_ascii_case(b"lib-ver") {
        ("lib-ver", &mut context.session.lib_ver)
    } else {
        return Err([b"ERR Unrecognized option '", option, b"'"].concat().into());
    };
    check_name(name, value)?;
    *field = value.to_vec();
    done(context)
}

fn no_evict(context: &mut SessionContext<'_>) -> Outcome {
    context.session.no_evict = on_or_off(&context.args[2])?;
    done(context)
}

fn no_touch(context: &mut SessionContext<'_>) -> Outcome {
    context.session.no_touch = on_or_off(&context.args[2])?;
    done(context)
}

fn on_or_off(word: &[u8]) -> Result<bool, Cow<'static, [u8]>> {
    match word {
        word if word.eq_ignore_ascii_case(b"on") => Ok(true),
        word if word.eq_ignore_ascii_case(b"off") => Ok(false),
        _ => Err(errors::SYNTAX.as_bytes().into()),
    }
}

fn reply_mode(context: &mut SessionContext<'_>) -> Outcome {
    let (word, mode) = (&context.args[2], &mut context.session.reply_mode);
    if word.eq_ignore_ascii_case(b"on") {
        *mode = ReplyMode::On;
        return done(context);
    }
    if word.eq_ignore_ascii_case(b"off") {
        *mode = ReplyMode::Off;
    } else if !word.eq_ignore_ascii_case(b"skip") {
        return refuse(errors::SYNTAX);
    } else if *mode != ReplyMode::Off {
        *mode = ReplyMode::SkipNext;
    }
    Ok(After::Nothing)
}

fn caching(_: &mut SessionContext<'_>) -> Outcome {
    refuse(
        "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or \
         OPTOUT mode enabled",
    )
}

fn get_redirection(context: &mut SessionContext<'_>) -> Outcome {
    context.reply.int(-1);
    Ok(After::Nothing)
}

/// Client side caching is not there: only turning it off succeeds.
fn tracking(context: &mut SessionContext<'_>) -> Outcome {
    if on_or_off(&context.args[2])? {
        return refuse("ERR client side caching is not supported");
    }
    done(context)
}

fn tracking_info(context: &mut SessionContext<'_>) -> Outcome {
    let reply = &mut context.reply;
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(1);
    reply.bulk(b"off");
    reply.bulk(b"redirect");
    reply.int(-1);
    reply.bulk(b"prefixes");
    reply.array(0);
    Ok(After::Nothing)
}

/// There is no CLIENT PAUSE that it could end.
fn unpause(context: &mut SessionContext<'_>) -> Outcome {
    done(context)
}

fn info(context: &mut SessionContext<'_>) -> Outcome {
    let line = client_line(context.session, context.now.unix_ms, &context.sizes);
    context.reply.verbatim("txt", line.as_bytes());
    Ok(After::Nothing)
}

/// The line of CLIENT LIST and CLIENT INFO, with its line end.
pub fn client_line(session: &Session, now_ms: u64, sizes: &ClientSizes) -> String {
    let Session { id, addr, local_addr, fd, db, .. } = session;
    let shown = String::from_utf8_lossy;
    let (name, lib_name) = (shown(&session.name), shown(&session.lib_name));
    let lib_ver = shown(&session.lib_ver);
    let age_s = now_ms.saturating_sub(session.created_ms) / 1000;
    let idle_s = now_ms.saturating_sub(session.last_active_ms) / 1000;
    let flags = flag_letters(session);
    let ClientSizes { query, query_free, arguments, reply_capacity, reply, .. } = sizes;
    let ClientSizes { queue_count, queue, total, .. } = sizes;
    let command = if session.last_command.is_empty() { "NULL" } else { session.last_command };
    let proto = if session.proto == crate::resp::Proto::Resp3 { 3 } else { 2 };
    format!(
        "id={id} addr={addr} laddr={local_addr} fd={fd} name={name} age={age_s} idle={idle_s} \
         flags={flags} db={db} sub=0 psub=0 ssub=0 multi=-1 watch=0 qbuf={query} \
         qbuf-free={query_free} argv-mem={arguments} multi-mem=0 rbs={reply_capacity} \
         rbp={reply_capacity} obl={reply} oll={queue_count} omem={queue} tot-mem={total} events=r \
         cmd={command} user=default redir=-1 resp={proto} lib-name={lib_name} lib-ver={lib_ver}\n"
    )
}

fn flag_letters(session: &Session) -> &'static str {
    match (session.no_evict, session.no_touch) {
        (false, false) => "N",
        (true, false) => "e",
        (false, true) => "T",
        (true, true) => "eT",
    }
}

fn list(context: &mut SessionContext<'_>) -> Outcome {
    let args = context.args;
    let mut filter = ClientFilter::default();
    match args.get(2) {
        None => {}
        Some(word) if word.eq_ignore_ascii_case(b"type") && args.len() == 4 => {
            filter.kind = Some(client_kind(&args[3])?);
        }
        Some(word) if word.eq_ignore_ascii_case(b"id") && args.len() > 3 => {
            filter.ids = Some(client_ids(args.from(3))?);
        }
        Some(_) => return refuse(errors::SYNTAX),
    }
    Ok(After::Gather(Gather::ClientList(filter)))
}

/// Numbers that no connection can have are not an error here.
fn client_ids(args: Args<'_>) -> Result<Vec<u64>, Cow<'static, [u8]>> {
    let ids = args.iter().map(|arg| parse_i64(arg).map(|id| u64::try_from(id).unwrap_or(0)));
    ids.collect::<Option<_>>().ok_or(b"ERR Invalid client ID".as_slice().into())
}

fn client_kind(word: &[u8]) -> Result<ClientKind, Cow<'static, [u8]>> {
    Ok(match word.to_ascii_lowercase().as_slice() {
        b"normal" => ClientKind::Normal,
        b"master" => ClientKind::Master,
        b"slave" | b"replica" => ClientKind::Replica,
        b"pubsub" => ClientKind::PubSub,
        _ => return Err([b"ERR Unknown client type '", word, b"'"].concat().into()),
    })
}

fn kill(context: &mut SessionContext<'_>) -> Outcome {
    let args = context.args.from(2);
    let old_form = args.len() == 1;
    let filter = if old_form {
        ClientFilter { addr: Some(args.at(0).to_vec()), ..ClientFilter::default() }
    } else {
        kill_filter(args, context.session.id)?
    };
    Ok(After::Gather(Gather::ClientKill { filter, old_form }))
}

/// The filter of the options of KILL; the connection `asking` is spared unless told otherwise.
fn kill_filter(args: Args<'_>, asking: u64) -> Result<ClientFilter, Cow<'static, [u8]>> {
    let mut filter = ClientFilter { except: Some(asking), ..ClientFilter::default() };
    for at in (0..args.len()).step_by(2) {
        let value = args.get(at + 1).ok_or(errors::SYNTAX.as_bytes())?;
        match args[at].to_ascii_lowercase().as_slice() {
            b"id" => filter.ids = Some(vec![positive(value, "client-id")?]),
            b"type" => filter.kind = Some(client_kind(value)?),
            b"addr" => filter.addr = Some(value.to_vec()),
            b"laddr" => filter.local_addr = Some(value.to_vec()),
            b"user" => check_user(value)?,
            b"maxage" => filter.min_age_s = Some(max_age_s(value)?),
            b"skipme" => filter.except = yes_or_no(value)?.then_some(asking),
            _ => return Err(errors::SYNTAX.as_bytes().into()),
        }
    }
    Ok(filter)
}

fn positive(value: &[u8], name: &str) -> Result<u64, Cow<'static, [u8]>> {
    let number = parse_i64(value).and_then(|number| u64::try_from(number).ok());
    number
        .filter(|&number| number > 0)
        .ok_or_else(|| format!("ERR {name} should be greater than 0").into_bytes().into())
}

fn max_age_s(value: &[u8]) -> Result<u64, Cow<'static, [u8]>> {
    if parse_i64(value).is_none() {
        return Err(b"ERR maxage is not an integer or out of range".as_slice().into());
    }
    positive(value, "maxage")
}

/// All connections are the default user's, so a name that exists excludes nobody.
fn check_user(name: &[u8]) -> Result<(), Cow<'static, [u8]>> {
    if name == b"default" {
        return Ok(());
    }
    Err([b"ERR No such user '", name, b"'"].concat().into())
}

fn yes_or_no(word: &[u8]) -> Result<bool, Cow<'static, [u8]>> {
    match word {
        word if word.eq_ignore_ascii_case(b"yes") => Ok(true),
        word if word.eq_ignore_ascii_case(b"no") => Ok(false),
        _ => Err(errors::SYNTAX.as_bytes().into()),
    }
}

/// Whether the connection is one of those that the filter means.
pub fn matches(filter: &ClientFilter, session: &Session, now_ms: u64) -> bool {
    let age_s = now_ms.saturating_sub(session.created_ms) / 1000;
    filter.except != Some(session.id)
        && filter.ids.as_ref().is_none_or(|ids| ids.contains(&session.id))
        && filter.addr.as_ref().is_none_or(|addr| addr == session.addr.as_bytes())
        && filter.local_addr.as_ref().is_none_or(|addr| addr == session.local_addr.as_bytes())
        && filter.kind.is_none_or(|kind| kind == ClientKind::Normal)
        && filter.min_age_s.is_none_or(|min_age_s| age_s >= min_age_s)
}

/// The reply to CLIENT LIST: the lines of all cores with the connections' ids, oldest first.
pub fn reply_list(reply: &mut Reply<'_>, mut lines: Vec<(u64, String)>) {
    lines.sort_unstable_by_key(|&(id, _)| id);
    let text: String = lines.into_iter().map(|(_, line)| line).collect();
    reply.verbatim("txt", text.as_bytes());
}

/// The reply to CLIENT KILL after all cores together have closed `killed` connections.
pub fn reply_killed(reply: &mut Reply<'_>, killed: usize, old_form: bool) {
    match (old_form, killed) {
        (false, _) => reply.int(killed as i64),
        (true, 0) => reply.error("ERR No such client"),
        (true, _) => reply.ok(),
    }
}
