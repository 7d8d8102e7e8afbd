use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{After, ClientSizes, Gather, Server, Session, SessionContext};
use crate::clock::Now;
use crate::command::client::{client_line, matches, reply_killed, reply_list};
use crate::command::testing::{show_reply, split_words};
use crate::command::{Handler, errors, flag, table};
use crate::config::Live;
use crate::resp::{Args, Proto, Reply};

const START_MS: u64 = 1_700_000_000_000;

/// A connection and all the others, served as the driver does it.
struct Peer {
    server: Server,
    session: Session,
    others: Vec<Session>,
    sizes: ClientSizes,
    now_ms: u64,
    /// What the last command has left for the driver to do.
    after: After,
}

impl Peer {
    fn new() -> Peer {
        let server = Server::new(Arc::new(Live::default()), "ab".repeat(20), START_MS, 2);
        Peer {
            server,
            session: connection(7),
            others: Vec::new(),
            sizes: ClientSizes::default(),
            now_ms: START_MS,
            after: After::Nothing,
        }
    }

    fn with_password() -> Peer {
        let mut peer = Peer::new();
        peer.server.config.set(&[("requirepass", "secret")]).expect("can be set");
        peer.session.authenticated = false;
        peer
    }

    /// What the client receives.
    fn run(&mut self, line: &str) -> Vec<u8> {
        let words = split_words(line);
        let (mut buf, mut spans) = (Vec::new(), Vec::new());
        for word in &words {
            let start = buf.len() as u32;
            buf.extend_from_slice(word);
            spans.push((start, buf.len() as u32));
        }
        let mut out = Vec::new();
        self.session.begin_command();
        self.after = self.dispatch(Args::new(&buf, &spans), &mut out);
        if let After::Gather(gather) = &self.after {
            self.answer(gather, &mut out);
        }
        if self.session.end_command() { out } else { Vec::new() }
    }

    fn text(&mut self, line: &str) -> String {
        String::from_utf8(self.run(line)).expect("text")
    }

    fn dispatch(&mut self, args: Args<'_>, out: &mut Vec<u8>) -> After {
        let mut reply = Reply::new(out, self.session.proto);
        let password_required = self.server.config.snapshot().password_required;
        let Some(row) = table::find(args.at(0)) else {
            reply.error_bytes(&errors::unknown_command(args));
            return After::Nothing;
        };
        if !row.takes(args.len()) {
            reply.error(&errors::wrong_arity(row.name));
            return After::Nothing;
        }
        if self.session.must_authenticate(password_required) && !row.is(flag::NO_AUTH) {
            reply.error(errors::NO_AUTH);
            return After::Nothing;
        }
        let Handler::Session(run) = row.handler else { panic!("{} needs a keyspace", row.name) };
        self.session.last_command = row.name;
        let now = Now { mono_ns: 0, unix_ms: self.now_ms };
        let (session, server, sizes) = (&mut self.session, &self.server, self.sizes);
        run(&mut SessionContext { args, session, server, now, sizes, reply })
    }

    fn answer(&self, gather: &Gather, out: &mut Vec<u8>) {
        let mut reply = Reply::new(out, self.session.proto);
        let all = || self.others.iter().chain([&self.session]);
        match gather {
            Gather::ClientList(filter) => {
                let meant = all().filter(|session| matches(filter, session, self.now_ms));
                let line = |session| client_line(session, self.now_ms, &self.sizes);
                reply_list(&mut reply, meant.map(|session| (session.id, line(session))).collect());
            }
            Gather::ClientKill { filter, old_form } => {
                let killed = all().filter(|session| matches(filter, session, self.now_ms)).count();
                reply_killed(&mut reply, killed, *old_form);
            }
        }
    }
}

fn connection(id: u64) -> Session {
    let addr = format!("127.0.0.1:{}", 40_000 + id);
    let mut session = Session::new(id, addr, "127.0.0.1:6379".into(), START_MS, true);
    session.fd = 12;
    session
}

fn replay(transcript: &str) {
    let mut peer = Peer::new();
    let mut lines = transcript.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        if line == "@resp 3" {
            peer.session.proto = Proto::Resp3;
        }
        let Some(command) = line.strip_prefix("> ") else { continue };
        let mut expected = Vec::new();
        while let Some((_, line)) = lines.next_if(|(_, line)| !line.starts_with(['>', '@', '/'])) {
            expected.push(line);
        }
        let reply = show_reply(&peer.run(command));
        assert_eq!(reply, expected.join("\n"), "line {}: {command}", number + 1);
    }
}

#[test]
fn replies_of_redis_7_0() {
    replay(include_str!("../../../tests/transcripts/session.txt"));
}

#[test]
fn replies_of_redis_7_2() {
    replay(include_str!("../../../tests/transcripts/session_7_2.txt"));
}

#[test]
fn hello_shows_all_that_clients_look_for() {
    let mut peer = Peer::new();
    let rest = "$2\r\nid\r\n:7\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n\
                $7\r\nmodules\r\n*0\r\n";
    let greeting = |mark: &str, proto: u8| {
        format!(
            "{mark}\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.2.4\r\n\
             $5\r\nproto\r\n:{proto}\r\n{rest}"
        )
    };
    assert_eq!(peer.text("HELLO"), greeting("*14", 2));
    assert_eq!(peer.text("HELLO 3 AUTH default x SETNAME foo"), greeting("%7", 3));
    assert_eq!(peer.session.name, b"foo");
    assert_eq!(peer.text("HELLO"), greeting("%7", 3));
    assert_eq!(peer.text("CLIENT TRACKINGINFO")[..4], *"%3\r\n");
    assert_eq!(peer.text("HELLO 2"), greeting("*14", 2));
}

#[test]
fn a_password_is_asked_for() {
    let mut peer = Peer::with_password();
    let no_auth = "-NOAUTH Authentication required.\r\n";
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    let first = "-NOAUTH HELLO must be called with the client already authenticated, otherwise \
                 the HELLO AUTH <user> <pass> option can be used to authenticate the client and \
                 select the RESP protocol version at the same time\r\n";
    let steps = [
        ("PING", no_auth),
        ("CLIENT ID", no_auth),
        ("FOO", "-ERR unknown command 'FOO', with args beginning with: \r\n"),
        ("ECHO", "-ERR wrong number of arguments for 'echo' command\r\n"),
        ("AUTH x", wrong),
        ("AUTH default x", wrong),
        ("AUTH foo secret", wrong),
        ("AUTH secretx", wrong),
        ("AUTH \"\"", wrong),
        ("HELLO", first),
        ("HELLO 3 SETNAME x", first),
        ("HELLO 4", "-NOPROTO unsupported protocol version\r\n"),
        ("HELLO 3 AUTH default bad SETNAME x", wrong),
        ("PING", no_auth),
        ("RESET", "+RESET\r\n"),
        ("PING", no_auth),
        ("AUTH secret", "+OK\r\n"),
        ("PING", "+PONG\r\n"),
        ("AUTH bad", wrong),
        ("PING", "+PONG\r\n"),
        ("RESET", "+RESET\r\n"),
        ("PING", no_auth),
        ("AUTH default secret", "+OK\r\n"),
        ("CLIENT GETNAME", "$-1\r\n"),
    ];
    for (line, reply) in steps {
        assert_eq!(peer.text(line), reply, "{line}");
    }
    assert_eq!(peer.session.proto, Proto::Resp2);
}

#[test]
fn hello_can_bring_the_password() {
    let mut peer = Peer::with_password();
    assert!(peer.text("HELLO 3 SETNAME x AUTH default secret").starts_with("%7\r\n"));
    assert_eq!(peer.text("CLIENT GETNAME"), "$1\r\nx\r\n");
}

#[test]
fn strangers_have_narrow_limits() {
    let peer = Peer::with_password();
    let limits = peer.session.limits(true);
    let before = limits.before_auth.expect("narrow");
    assert_eq!((before.args_max, before.bulk_len_max), (10, 16384));
    assert_eq!(peer.session.limits(false).before_auth, None);
    assert_eq!(connection(1).limits(true).before_auth, None);
}

#[test]
fn quit_closes() {
    let mut peer = Peer::new();
    assert_eq!(peer.text("QUIT"), "+OK\r\n");
    assert_eq!(peer.after, After::Close);
}

#[test]
fn select_changes_the_database_unless_it_fails() {
    let mut peer = Peer::new();
    assert_eq!(peer.text("SELECT 9"), "+OK\r\n");
    assert_eq!(peer.text("SELECT 16"), "-ERR DB index is out of range\r\n");
    assert_eq!(peer.session.db, 9);
}

#[test]
fn reset_leaves_id_addresses_and_library() {
    let mut peer = Peer::new();
    for line in ["HELLO 3 SETNAME n", "SELECT 3", "CLIENT NO-EVICT ON", "CLIENT NO-TOUCH ON"] {
        peer.run(line);
    }
    peer.run("CLIENT SETINFO LIB-NAME jedis");
    peer.run("CLIENT SETINFO LIB-VER 5.1.0");
    assert_eq!(peer.text("RESET"), "+RESET\r\n");
    let mut fresh = connection(7);
    (fresh.lib_name, fresh.lib_ver) = (b"jedis".to_vec(), b"5.1.0".to_vec());
    fresh.last_command = "reset";
    assert_eq!(format!("{:?}", peer.session), format!("{fresh:?}"));
}

/// Commands of one connection and everything that it receives, as Redis answers.
const REPLY_MODES: &[(&[&str], &str)] = &[
    (&["CLIENT REPLY OFF", "PING", "FOO", "CLIENT REPLY ON", "PING"], "+OK\r\n+PONG\r\n"),
    (&["CLIENT REPLY OFF", "CLIENT REPLY foo", "CLIENT REPLY ON"], "+OK\r\n"),
    (&["CLIENT REPLY SKIP", "PING", "PING"], "+PONG\r\n"),
    (&["CLIENT REPLY SKIP", "FOO", "PING"], "+PONG\r\n"),
    (&["CLIENT REPLY SKIP", "CLIENT REPLY SKIP", "PING", "PING"], "+PONG\r\n"),
    (&["CLIENT REPLY SKIP", "CLIENT REPLY ON", "PING"], "+OK\r\n+PONG\r\n"),
    (&["CLIENT REPLY OFF", "CLIENT REPLY SKIP", "CLIENT REPLY ON", "PING"], "+OK\r\n+PONG\r\n"),
    (&["CLIENT REPLY OFF", "RESET", "PING"], "+RESET\r\n+PONG\r\n"),
    (&["CLIENT REPLY SKIP", "RESET", "PING"], "+PONG\r\n"),
    (&["CLIENT REPLY OFF", "PING", "CLIENT ID"], ""),
];

#[test]
fn reply_off_and_skip() {
    for (lines, received) in REPLY_MODES {
        let mut peer = Peer::new();
        let got: String = lines.iter().map(|line| peer.text(line)).collect();
        assert_eq!(got, *received, "{lines:?}");
    }
}

#[test]
fn client_info_has_every_field() {
    let mut peer = Peer::new();
    peer.sizes = ClientSizes {
        query: 26,
        query_free: 20448,
        arguments: 10,
        reply_capacity: 16384,
        reply: 5,
        queue_count: 2,
        queue: 300,
        total: 37786,
    };
    for line in ["HELLO 3 SETNAME me", "SELECT 2", "CLIENT SETINFO LIB-NAME redis-py"] {
        peer.run(line);
    }
    peer.now_ms += 65_999;
    peer.session.last_active_ms += 60_000;
    let line = "id=7 addr=127.0.0.1:40007 laddr=127.0.0.1:6379 fd=12 name=me age=65 idle=5 \
                flags=N db=2 sub=0 psub=0 ssub=0 multi=-1 watch=0 qbuf=26 qbuf-free=20448 \
                argv-mem=10 multi-mem=0 rbs=16384 rbp=16384 obl=5 oll=2 omem=300 tot-mem=37786 \
                events=r cmd=client|info user=default redir=-1 resp=3 lib-name=redis-py lib-ver=\n";
    assert_eq!(peer.text("CLIENT INFO"), format!("={}\r\ntxt:{line}\r\n", line.len() + 4));
    peer.run("RESET");
    assert!(peer.text("CLIENT INFO").starts_with(&format!("${}\r\nid=7 ", line.len() - 2)));
}

#[test]
fn flags_and_first_command_in_the_line() {
    let mut session = connection(1);
    let line = |session: &Session| client_line(session, START_MS, &ClientSizes::default());
    assert!(line(&session).contains(" flags=N ") && line(&session).contains(" cmd=NULL "));
    session.no_touch = true;
    assert!(line(&session).contains(" flags=T "));
    session.no_evict = true;
    assert!(line(&session).contains(" flags=eT "));
    session.no_touch = false;
    assert!(line(&session).contains(" flags=e "));
}

/// Ids of the connections in a CLIENT LIST.
fn listed(peer: &mut Peer, line: &str) -> Vec<String> {
    let text = peer.text(line);
    let ids = text.lines().filter_map(|line| line.strip_prefix("id=")?.split(' ').next());
    ids.map(str::to_string).collect()
}

#[test]
fn client_list_shows_all_connections_oldest_first() {
    let mut peer = Peer::new();
    peer.others = vec![connection(9), connection(3)];
    assert_eq!(listed(&mut peer, "CLIENT LIST"), ["3", "7", "9"]);
    assert_eq!(listed(&mut peer, "client list type NORMAL"), ["3", "7", "9"]);
    assert_eq!(listed(&mut peer, "CLIENT LIST ID 9 7 4"), ["7", "9"]);
    assert!(listed(&mut peer, "CLIENT LIST TYPE pubsub").is_empty());
}

#[test]
fn client_kill_chooses() {
    let cases = [
        ("CLIENT KILL ID 3", ":1\r\n"),
        ("CLIENT KILL ID 7", ":0\r\n"),
        ("CLIENT KILL ID 7 SKIPME no", ":1\r\n"),
        ("CLIENT KILL TYPE normal", ":2\r\n"),
        ("CLIENT KILL TYPE normal SKIPME no", ":3\r\n"),
        ("CLIENT KILL USER default SKIPME YES", ":2\r\n"),
        ("CLIENT KILL LADDR 127.0.0.1:6379", ":2\r\n"),
        ("CLIENT KILL ADDR 127.0.0.1:40003 ID 3", ":1\r\n"),
        ("CLIENT KILL ADDR 127.0.0.1:40003 ID 9", ":0\r\n"),
        ("CLIENT KILL MAXAGE 10", ":1\r\n"),
        ("CLIENT KILL MAXAGE 11", ":0\r\n"),
        ("CLIENT KILL 127.0.0.1:40003", "+OK\r\n"),
        ("CLIENT KILL 127.0.0.1:40007", "+OK\r\n"),
        ("CLIENT KILL 127.0.0.1:40004", "-ERR No such client\r\n"),
    ];
    let mut peer = Peer::new();
    peer.others = vec![connection(3), connection(9)];
    peer.others[0].created_ms -= 10_000;
    for (line, reply) in cases {
        assert_eq!(peer.text(line), reply, "{line}");
    }
}

#[test]
fn saving_is_left_to_the_driver() {
    let mut peer = Peer::new();
    assert_eq!(peer.text("SAVE"), "");
    assert_eq!(peer.after, After::Save { reply_now: false });
    for line in ["BGSAVE", "BGSAVE schedule"] {
        assert_eq!(peer.text(line), "+Background saving started\r\n");
        assert_eq!(peer.after, After::Save { reply_now: true });
    }
    peer.server.state.saving.store(true, Ordering::Relaxed);
    for line in ["SAVE", "BGSAVE"] {
        assert_eq!(peer.text(line), "-ERR Background save already in progress\r\n");
        assert_eq!(peer.after, After::Nothing);
    }
    assert_eq!(peer.text("LASTSAVE"), ":1700000000\r\n");
    peer.server.state.last_save_ms.store(1_700_000_123_456, Ordering::Relaxed);
    assert_eq!(peer.text("LASTSAVE"), ":1700000123\r\n");
}

#[test]
fn shutdown_is_left_to_the_driver() {
    let cases = [
        ("SHUTDOWN", true, false),
        ("SHUTDOWN SAVE", true, false),
        ("SHUTDOWN NOSAVE", false, false),
        ("shutdown now nosave", false, false),
        ("SHUTDOWN SAVE FORCE NOW", true, true),
    ];
    for (line, save, force) in cases {
        let mut peer = Peer::new();
        assert_eq!(peer.text(line), "", "{line}");
        assert_eq!(peer.after, After::Shutdown { save, force }, "{line}");
    }
}

#[test]
fn time_has_seconds_and_microseconds() {
    let mut peer = Peer::new();
    peer.now_ms += 12_345;
    assert_eq!(peer.text("TIME"), "*2\r\n$10\r\n1700000012\r\n$6\r\n345000\r\n");
    peer.now_ms = START_MS;
    assert_eq!(peer.text("TIME"), "*2\r\n$10\r\n1700000000\r\n$1\r\n0\r\n");
}

#[test]
fn browsers_are_told_by_their_first_word() {
    assert!(errors::is_http(b"POST") && errors::is_http(b"Host:"));
    assert!(!errors::is_http(b"GET") && !errors::is_http(b"host"));
}

#[test]
fn help_lists_subcommands() {
    let text = Peer::new().text("CLIENT HELP");
    let count: usize = text[1..].lines().next().unwrap().parse().unwrap();
    assert_eq!(text.lines().filter(|line| line.starts_with('+')).count(), count);
    assert!(text.contains("\r\n+KILL <ip:port>\r\n"));
}

#[test]
fn rate_of_commands_between_two_samples() {
    let server = Peer::new().server;
    let rate = || server.state.commands_per_second.load(Ordering::Relaxed);
    server.stats[0].commands.add(1000);
    server.sample_rate(START_MS);
    assert_eq!(rate(), 0);
    server.stats[0].commands.add(300);
    server.stats[1].commands.add(200);
    server.sample_rate(START_MS + 2000);
    assert_eq!(rate(), 250);
    server.sample_rate(START_MS + 3000);
    assert_eq!(rate(), 0);
}

#[test]
fn defrag_changes_settings_and_refuses_wrong_words() {
    let mut peer = Peer::new();
    assert_eq!(peer.text("DEFRAG PAUSE"), "+OK\r\n");
    assert_eq!(peer.server.config.get("defrag-paused").as_deref(), Some("yes"));
    assert!(peer.text("DEFRAG STATUS").starts_with("*26\r\n$5\r\nstate\r\n$6\r\npaused\r\n"));
    let cases = [
        ("defrag Resume", "+OK\r\n"),
        ("DEFRAG CONCURRENCY 3", "+OK\r\n"),
        ("DEFRAG BLOCK-SLEEP 15", "+OK\r\n"),
        ("DEFRAG RECORD-SLEEP-US 7", "+OK\r\n"),
        ("DEFRAG nope", "-ERR unknown subcommand 'nope'. Try DEFRAG HELP.\r\n"),
        ("DEFRAG MAX-ACTIVE", "-ERR wrong number of arguments for 'defrag|max-active' command\r\n"),
        ("DEFRAG MAX-ACTIVE 0", "-ERR argument must be between 1 and 1024 inclusive\r\n"),
        ("DEFRAG PAUSE now", "-ERR wrong number of arguments for 'defrag|pause' command\r\n"),
    ];
    for (line, reply) in cases {
        assert_eq!(peer.text(line), reply, "{line}");
    }
    let settings = peer.server.config.snapshot().maintenance;
    assert_eq!((settings.defrag_paused, settings.defrag_max_active_per_device), (false, 3));
    assert_eq!((settings.defrag_sleep_ms, settings.defrag_record_sleep_us), (15, 7));
    assert!(peer.text("DEFRAG STATUS").contains("max-active-per-device\r\n:3\r\n"));
    assert!(peer.text("DEFRAG HELP").contains("+RECORD-SLEEP <microseconds>\r\n"));
}
