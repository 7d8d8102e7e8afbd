//! What a reference server cannot tell: our own commands, commands that an older reference does
//! not know, and effects on the process and on other connections.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

mod support;

use support::client::{Client, Value};
use support::peer::Peer;
use support::server::{Launch, Server};
use support::wait_until;

const LIMIT: Duration = Duration::from_secs(20);

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

fn bulk(text: &str) -> Value {
    Value::Bulk(text.as_bytes().to_vec())
}

#[track_caller]
fn error(value: &Value, text: &str) {
    assert_eq!(*value, Value::Error(text.as_bytes().to_vec()));
}

/// LAVIK.HREPLACE sets fields of a hash that exists, and keeps its time to live.
#[test]
fn hreplace() {
    let mut server = Server::fresh("semantics-hreplace");
    let mut client = server.client();
    assert_eq!(client.run("LAVIK.HREPLACE h f v"), Value::NullBulk);
    assert_eq!(client.run("EXISTS h"), Value::Int(0));
    assert_eq!(client.run("HSET h f old other kept"), Value::Int(2));
    assert_eq!(client.run("EXPIRE h 100"), Value::Int(1));
    assert_eq!(client.run("LAVIK.HREPLACE h f new g added"), ok());
    server.restart();
    let mut client = server.client();
    assert_eq!(client.run("lavik.hreplace h f newer"), ok());
    let all = ["f", "newer", "other", "kept", "g", "added"].map(bulk);
    assert_eq!(client.run("HGETALL h").items(), all);
    assert!((90..=100).contains(&client.run("TTL h").int()));
    client.run("SET s v");
    let wrong = "WRONGTYPE Operation against a key holding the wrong kind of value";
    error(&client.run("LAVIK.HREPLACE s f v"), wrong);
    let arity = "ERR wrong number of arguments for 'lavik.hreplace' command";
    error(&client.run("LAVIK.HREPLACE h f"), arity);
    error(&client.run("LAVIK.HREPLACE h f v g"), arity);
    let mut client = server.client3();
    assert_eq!(client.run("LAVIK.HREPLACE missing f v"), Value::Null);
}

#[test]
fn client_setinfo_and_no_touch() {
    let server = Server::fresh("semantics-setinfo");
    let mut client = server.client();
    assert_eq!(client.run("CLIENT SETINFO LIB-NAME redis-py"), ok());
    assert_eq!(client.run("client setinfo lib-ver 5.0.1"), ok());
    let info = client.run("CLIENT INFO").text();
    assert!(info.contains(" lib-name=redis-py ") && info.contains(" lib-ver=5.0.1"), "{info}");
    error(&client.run("CLIENT SETINFO BOGUS x"), "ERR Unrecognized option 'BOGUS'");
    let text = "ERR lib-name cannot contain spaces, newlines or special characters.";
    error(&client.run("CLIENT SETINFO LIB-NAME \"a b\""), text);
    assert_eq!(client.run("RESET").text(), "RESET");
    let info = client.run("CLIENT INFO").text();
    assert!(info.contains(" lib-name=redis-py "), "RESET keeps the library: {info}");
    assert_eq!(client.run("CLIENT NO-TOUCH ON"), ok());
    assert_eq!(client.run("CLIENT NO-TOUCH OFF"), ok());
    error(&client.run("CLIENT NO-TOUCH maybe"), "ERR syntax error");
}

/// One field of the line of CLIENT LIST that belongs to `id`.
fn field(list: &str, id: i64, name: &str) -> Option<String> {
    let line = list.lines().find(|line| line.starts_with(&format!("id={id} ")))?;
    let mut parts = line.split(' ');
    parts.find_map(|part| Some(part.strip_prefix(name)?.strip_prefix('=')?.to_string()))
}

#[test]
fn client_list_shows_every_connection() {
    let server = Server::fresh("semantics-list");
    let mut others: Vec<Client> = (0..10).map(|_| server.client()).collect();
    let ids: Vec<i64> = others.iter_mut().map(|client| client.run("CLIENT ID").int()).collect();
    let mut unique = ids.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), 10, "ids are unique over all cores: {ids:?}");
    for (index, client) in others.iter_mut().enumerate() {
        client.run(&format!("CLIENT SETNAME name-{index}"));
        client.run(&format!("SELECT {index}"));
    }
    let mut client = server.client();
    let list = client.run("CLIENT LIST").text();
    for (index, (&id, other)) in ids.iter().zip(&others).enumerate() {
        assert_eq!(field(&list, id, "name"), Some(format!("name-{index}")), "{list}");
        assert_eq!(field(&list, id, "db"), Some(index.to_string()));
        assert_eq!(field(&list, id, "cmd"), Some("select".to_string()));
        let addr = other.stream().local_addr().expect("an address").to_string();
        assert_eq!(field(&list, id, "addr"), Some(addr));
    }
    let two = client.run(&format!("CLIENT LIST ID {} {}", ids[3], ids[7])).text();
    assert_eq!(two.lines().count(), 2, "{two}");
}

#[test]
fn client_kill_ends_the_named_connections() {
    let server = Server::fresh("semantics-kill");
    let mut client = server.client();
    let mut victim = server.client();
    let id = victim.run("CLIENT ID").int();
    assert_eq!(client.run(&format!("CLIENT KILL ID {id}")), Value::Int(1));
    assert_eq!(victim.rest(LIMIT).expect("the connection closes"), b"");
    assert_eq!(client.run(&format!("CLIENT KILL ID {id}")), Value::Int(0));

    let mut victim = server.client();
    victim.run("PING");
    let addr = victim.stream().local_addr().expect("an address").to_string();
    assert_eq!(client.run(&format!("CLIENT KILL {addr}")), ok());
    assert_eq!(victim.rest(LIMIT).expect("the connection closes"), b"");
    error(&client.run(&format!("CLIENT KILL {addr}")), "ERR No such client");

    let mut victims: Vec<Client> = (0..5).map(|_| server.client()).collect();
    for victim in &mut victims {
        victim.run("PING");
    }
    let killed = client.run("CLIENT KILL TYPE normal SKIPME yes").int();
    assert!(killed >= 5, "{killed} were killed");
    for victim in &mut victims {
        assert_eq!(victim.rest(LIMIT).expect("the connection closes"), b"");
    }
    // Itself last: the reply still comes.
    let own = client.run("CLIENT ID").int();
    assert_eq!(client.run(&format!("CLIENT KILL ID {own} SKIPME no")), Value::Int(1));
    assert_eq!(client.rest(LIMIT).expect("the connection closes"), b"");
}

#[test]
fn saving() {
    let mut server = Server::fresh("semantics-save");
    let mut client = server.client();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs() as i64;
    assert_eq!(client.run("SET k v"), ok());
    assert_eq!(client.run("SAVE"), ok());
    // SAVE replied: nothing is lost from here on, whatever the durability.
    server.kill();
    server.start();
    let mut client = server.client();
    assert_eq!(client.run("GET k"), bulk("v"));
    assert_eq!(client.run("BGSAVE").text(), "Background saving started");
    wait_until("LASTSAVE moves on", LIMIT, || client.run("LASTSAVE").int() >= now);
}

#[test]
fn shutdown_command_stops_and_keeps_the_data() {
    for command in ["SHUTDOWN", "SHUTDOWN SAVE", "shutdown now force"] {
        let mut server = Server::fresh("semantics-shutdown");
        let mut client = server.client();
        assert_eq!(client.run("SET k v"), ok());
        client.send(format!("{command}\r\n").as_bytes());
        assert_eq!(client.rest(LIMIT).expect("the connection closes"), b"", "{command}");
        assert!(server.wait_for_end().success(), "{command}");
        server.start();
        assert_eq!(server.client().run("GET k"), bulk("v"), "{command}");
    }
}

/// SHUTDOWN NOSAVE may leave the newest writes behind, but nothing older and nothing broken.
#[test]
fn shutdown_nosave() {
    let mut server = Server::fresh("semantics-nosave");
    let mut client = server.client();
    assert_eq!(client.run("SET k v"), ok());
    assert_eq!(client.run("SAVE"), ok());
    client.send(b"SHUTDOWN NOSAVE\r\n");
    assert_eq!(client.rest(LIMIT).expect("the connection closes"), b"");
    assert!(server.wait_for_end().success());
    server.start();
    assert_eq!(server.client().run("GET k"), bulk("v"));
}

#[test]
fn info_counts() {
    let server = Server::fresh("semantics-info");
    let mut client = server.client();
    client.run("MSET a 1 b 2");
    client.run("SELECT 3");
    client.run("SET c 3 EX 100");
    let info = client.run("INFO keyspace").text();
    assert!(info.starts_with("# Keyspace\r\n"), "{info}");
    assert!(info.contains("db0:keys=2,expires=0,"), "{info}");
    assert!(info.contains("db3:keys=1,expires=1,"), "{info}");
    assert!(client.run("INFO clients").text().contains("connected_clients:1\r\n"));
    client.run("GET c");
    client.run("GET missing");
    let stats = client.run("INFO stats").text();
    assert!(stats.contains("keyspace_hits:1\r\n"), "{stats}");
    assert!(stats.contains("keyspace_misses:1\r\n"), "{stats}");
    for section in ["Server", "Clients", "Memory", "Persistence", "Stats", "CPU", "Keyspace"] {
        let all = client.run("INFO").text();
        assert!(all.contains(&format!("# {section}\r\n")), "{section} is missing");
    }
}

/// COMMAND describes what there is: the list, the count and the docs agree, and for each command
/// that the reference server knows, arity and key positions are the same.
#[test]
fn command_table_is_consistent() {
    let server = Server::fresh("semantics-command");
    let peer = Peer::start("semantics-command");
    let (mut client, mut theirs) = (server.client(), peer.client());
    let mut names: Vec<String> =
        client.run("COMMAND LIST").items().iter().map(Value::text).collect();
    // The list has subcommands as `client|id`; the others do not count them.
    names.retain(|name| !name.contains('|'));
    assert!(names.len() > 80, "{} commands", names.len());
    assert_eq!(client.run("COMMAND COUNT"), Value::Int(names.len() as i64));
    assert_eq!(client.run("COMMAND").items().len(), names.len());
    assert_eq!(client.run("COMMAND DOCS").items().len(), names.len() * 2);
    let mut faults = Vec::new();
    for name in &names {
        let ours = client.call(&["COMMAND", "INFO", name]).items()[0].items();
        let known = &theirs.call(&["COMMAND", "INFO", name]).items()[0];
        assert_eq!(ours[0], bulk(name));
        if known.is_null() {
            continue;
        }
        for (index, what) in [(1, "arity"), (3, "first key"), (4, "last key"), (5, "step")] {
            let expected = &known.items()[index];
            if ours[index] != *expected {
                faults.push(format!("{name}: {what} {:?}, not {expected:?}", ours[index]));
            }
        }
        let docs = client.call(&["COMMAND", "DOCS", name]).items();
        assert_eq!(docs[0], bulk(name));
        assert_eq!(docs[1].items()[0], bulk("summary"), "{name}");
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Settings reach every core and every connection.
#[test]
fn config_set_is_seen_by_all() {
    let server = Server::fresh("semantics-config");
    let mut connections: Vec<Client> = (0..8).map(|_| server.client()).collect();
    assert_eq!(connections[0].run("CONFIG SET flush-max-ms 50"), ok());
    for client in &mut connections {
        let value = client.run("CONFIG GET flush-max-ms").items();
        assert_eq!(value, [bulk("flush-max-ms"), bulk("50")]);
    }
    let reply = connections[1].run("CONFIG SET threads 3");
    assert!(reply.text().starts_with("ERR CONFIG SET failed"), "{reply:?}");
}

/// Commands of one connection are carried out in order, whatever cores their keys live on.
#[test]
fn pipelines_keep_their_order_across_cores() {
    let server = Server::fresh("semantics-order");
    let mut client = server.client();
    let mut commands: Vec<Vec<String>> = Vec::new();
    let words = |line: String| line.split(' ').map(str::to_string).collect::<Vec<_>>();
    for index in 0..2000 {
        let key = format!("k{}", index % 37);
        commands.push(words(format!("SET {key} {index}")));
        commands.push(words(format!("MGET {key} k0 k1 k2")));
        commands.push(words(format!("INCR {key}")));
        commands.push(words(format!("RENAME {key} moved")));
        commands.push(words(format!("GET {key}")));
        commands.push(words("GETDEL moved".to_string()));
    }
    let replies = client.pipeline(&commands);
    for (index, part) in replies.chunks(6).enumerate() {
        assert_eq!(part[0], ok());
        assert_eq!(part[1].items()[0], bulk(&index.to_string()));
        assert_eq!(part[2], Value::Int(index as i64 + 1));
        assert_eq!(part[3], ok());
        assert_eq!(part[4], Value::NullBulk);
        assert_eq!(part[5], bulk(&(index + 1).to_string()));
    }
}

/// A later write of the same connection is not seen by a command before it that waits for
/// another core.
#[test]
fn later_writes_do_not_overtake() {
    let server = Server::fresh("semantics-overtake");
    // Connections are spread over the cores; the fault shows on one of them.
    for _ in 0..8 {
        let mut client = server.client();
        let lines = ["SET a 1", "MGET a b c d", "SET a 2", "MGET a b c d", "SET a 3"];
        let commands: Vec<_> = lines.iter().map(|line| support::words::split(line)).collect();
        let replies = client.pipeline(&commands);
        assert_eq!(replies[1].items()[0], bulk("1"));
        assert_eq!(replies[3].items()[0], bulk("2"));
    }
}

/// INCR from many connections at once loses nothing; MSET of one pair of keys is never seen in
/// part.
#[test]
fn concurrent_commands_are_atomic() {
    let server = Server::fresh("semantics-atomic");
    let port = server.port();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            scope.spawn(move || {
                let mut client = Client::connect(port).expect("connect");
                for index in 0..1500 {
                    client.run("INCR counter");
                    let value = format!("{writer}:{index}");
                    assert_eq!(client.call(&["MSET", "left", &value, "right", &value]), ok());
                    let both = client.run("MGET left right").items();
                    assert_eq!(both[0], both[1], "a part of an MSET");
                }
            });
        }
    });
    assert_eq!(server.client().run("GET counter"), bulk("6000"));
}

fn pair(first: i64, second: i64) -> Value {
    Value::Array(vec![Value::Int(first), Value::Int(second)])
}

/// What a fence has let through survives `kill -9`, on every core, however late the log would have
/// written it by itself.
#[test]
fn waitaof_is_a_fence() {
    let mut server =
        Launch::new("semantics-waitaof").threads(3).flag("--flush-max-ms").flag("60000").start();
    let mut client = server.client();
    for i in 0..30 {
        assert_eq!(client.run(&format!("SET before{i} {i}")), ok());
    }
    assert_eq!(client.run("WAITAOF 1 0 0"), pair(1, 0));
    assert_eq!(client.run("SET after x"), ok());
    server.kill();
    server.start();
    let mut client = server.client();
    for i in 0..30 {
        assert_eq!(client.run(&format!("GET before{i}")).text(), i.to_string());
    }
    assert!(client.run("GET after").is_null(), "the fence is what has written the others");
}

/// A fence in a pipeline covers what stands before it, and what stands behind it waits.
#[test]
fn fences_hold_their_connection_and_nobody_else() {
    let mut server = Launch::new("semantics-fences").threads(2).start();
    let (mut held, mut other) = (server.client(), server.client());
    held.send(b"SET a 1\r\nWAIT 1 300\r\nSET a 2\r\n");
    assert_eq!(held.receive(), ok());
    let start = Instant::now();
    assert_eq!(other.run("GET a").text(), "1");
    assert_eq!(other.run("SET b 1"), ok());
    assert_eq!(other.run("WAITAOF 1 0 0"), pair(1, 0));
    assert_eq!(other.run("GET a").text(), "1");
    assert_eq!(held.receive(), Value::Int(0));
    assert!(start.elapsed() >= Duration::from_millis(250), "{:?}", start.elapsed());
    assert_eq!(held.receive(), ok());
    assert_eq!(other.run("GET a").text(), "2");

    // At once where nothing is asked; never by a replica.
    assert_eq!(other.run("WAIT 0 0"), Value::Int(0));
    assert_eq!(other.run("WAITAOF 0 0 0"), pair(0, 0));
    assert_eq!(other.run("WAITAOF 1 1 1500"), pair(1, 0));
    assert_eq!(other.run("WAITAOF 0 1 1"), pair(0, 0));

    // Those that would wait for ever neither keep anybody else nor the end of the server.
    let mut forever: Vec<Client> = (0..20).map(|_| server.client()).collect();
    forever.iter_mut().for_each(|client| client.send(b"SET c 1\r\nWAIT 1 0\r\n"));
    forever.iter_mut().for_each(|client| assert_eq!(client.receive(), ok()));
    forever.truncate(10);
    assert_eq!(other.run("SET c 2"), ok());
    wait_until("INFO counts those that are held", LIMIT, || {
        other.run("INFO clients").text().contains("blocked_clients:10\r\n")
    });
    server.stop();
    forever.iter_mut().for_each(|client| assert_eq!(client.receive(), Value::Int(0)));
}

/// A held connection is neither idle, nor kept for ever when its client has gone while it was
/// paused with a long pipeline behind the fence.
#[test]
fn held_connections_end_with_their_clients() {
    let server = Launch::new("semantics-held").threads(2).flag("--maxmemory-clients").flag("32mb");
    let server = server.start();
    let mut held = server.client();
    assert_eq!(held.run("CONFIG SET idle-timeout 1000"), ok());
    assert_eq!(held.run("WAIT 1 3500"), Value::Int(0));
    assert_eq!(held.run("CONFIG SET idle-timeout 0"), ok());
    let mut other = server.client();

    let mut gone = server.client();
    gone.stream().set_write_timeout(Some(Duration::from_millis(500))).expect("a timeout");
    // Closing with a reply unread resets the connection: a FIN would wait behind the pipeline.
    gone.send(b"PING\r\nWAIT 1 0\r\n");
    let set = [b"SET k ".as_slice(), &[b'v'; 60_000], b"\r\n"].concat();
    let sent = (0..5000).take_while(|_| gone.try_send(&set).is_ok()).count();
    assert!(sent < 5000, "it was paused");
    drop(gone);
    wait_until("the connection ends", LIMIT, || {
        other.run("INFO clients").text().contains("connected_clients:2\r\n")
    });
    drop(held);
}

/// As soon as CONFIG SET has answered, whatever core a new connection comes to.
#[test]
fn a_password_counts_for_every_later_connection() {
    let server = Launch::new("semantics-password").threads(3).start();
    for round in 0..10 {
        let mut client = server.client();
        let password = format!("secret{round}");
        assert_eq!(client.call(&["CONFIG", "SET", "requirepass", &password]), ok());
        for _ in 0..6 {
            let reply = server.client().run("GET k");
            assert_eq!(reply, Value::Error(b"NOAUTH Authentication required.".to_vec()));
        }
        assert_eq!(client.run("CONFIG SET requirepass ''"), ok());
        wait_until("the password is gone", LIMIT, || server.client().run("GET k").is_null());
    }
}
