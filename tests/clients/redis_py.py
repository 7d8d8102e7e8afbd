"""The commands of the first families through redis-py, in both protocol versions."""

import sys
import time

import redis


def check(name, got, expected):
    if got != expected:
        raise SystemExit(f"{name}: expected {expected!r}, got {got!r}")


def strings(r):
    check("set", r.set("k", "v"), True)
    check("get", r.get("k"), b"v")
    check("set nx", r.set("k", "w", nx=True), None)
    check("set get", r.set("k", "w", get=True), b"v")
    check("set ex", r.set("t", "v", ex=100), True)
    check("ttl", 98 <= r.ttl("t") <= 100, True)
    check("getex", r.getex("t", persist=True), b"v")
    check("ttl after persist", r.ttl("t"), -1)
    check("mset", r.mset({"a": 1, "b": 2}), True)
    check("mget", r.mget("a", "missing", "b"), [b"1", None, b"2"])
    check("msetnx", r.msetnx({"a": 1, "z": 2}), False)
    check("incr", r.incr("n"), 1)
    check("incrby", r.incrby("n", 10), 11)
    check("decr", r.decr("n", 3), 8)
    check("incrbyfloat", r.incrbyfloat("f", 1.5), 1.5)
    check("append", r.append("s", "hello"), 5)
    check("strlen", r.strlen("s"), 5)
    check("getrange", r.getrange("s", 1, 3), b"ell")
    check("setrange", r.setrange("s", 0, "J"), 5)
    check("getdel", r.getdel("s"), b"Jello")
    check("getset", r.getset("k", "x"), b"w")
    check("binary", r.set(b"\x00\xff", bytes(range(256)) * 1000), True)
    check("binary get", r.get(b"\x00\xff"), bytes(range(256)) * 1000)
    check("lcs", r.lcs("k", "k", len=True), 1)


def keys(r):
    check("exists", r.exists("a", "b", "missing"), 2)
    check("type", r.type("a"), b"string")
    check("rename", r.rename("a", "c"), True)
    check("renamenx", r.renamenx("c", "b"), False)
    check("copy", r.copy("c", "d"), True)
    check("touch", r.touch("c", "d"), 2)
    check("expire", r.expire("c", 100), True)
    check("expire gt", r.expire("c", 50, gt=True), False)
    check("pexpireat", r.pexpireat("c", 33177117420123), True)
    check("pexpiretime", r.pexpiretime("c"), 33177117420123)
    check("persist", r.persist("c"), True)
    check("delete", r.delete("c", "d", "missing"), 2)
    check("unlink", r.unlink("b"), 1)
    check("short time", r.set("gone", "v", px=20), True)
    time.sleep(0.06)
    check("expired", r.get("gone"), None)
    for index in range(500):
        r.set(f"scan:{index}", index)
    found = sorted(set(r.scan_iter(match="scan:*", count=50)))
    check("scan_iter", found, sorted(f"scan:{index}".encode() for index in range(500)))
    check("keys", len(r.keys("scan:*")), 500)
    check("randomkey", isinstance(r.randomkey(), bytes), True)
    before = r.dbsize()
    check("dbsize", before >= 500, True)


def hashes(r):
    check("hset", r.hset("h", mapping={"a": 1, "b": "two"}), 2)
    check("hget", r.hget("h", "b"), b"two")
    check("hgetall", r.hgetall("h"), {b"a": b"1", b"b": b"two"})
    check("hmget", r.hmget("h", "a", "nofield", "b"), [b"1", None, b"two"])
    check("hincrby", r.hincrby("h", "a", 5), 6)
    check("hincrbyfloat", r.hincrbyfloat("h", "f", 0.5), 0.5)
    check("hexists", r.hexists("h", "a"), True)
    check("hlen", r.hlen("h"), 3)
    check("hkeys", r.hkeys("h"), [b"a", b"b", b"f"])
    check("hvals", r.hvals("h"), [b"6", b"two", b"0.5"])
    check("hstrlen", r.hstrlen("h", "b"), 3)
    check("hsetnx", r.hsetnx("h", "a", 9), 0)
    check("hdel", r.hdel("h", "a", "f"), 2)
    check("hrandfield", r.hrandfield("h"), b"b")
    for start in range(0, 2000, 100):
        r.hset("big", mapping={f"field:{i}": i for i in range(start, start + 100)})
    check("hscan_iter", len(dict(r.hscan_iter("big", count=100))), 2000)
    try:
        r.incr("h")
    except redis.ResponseError as error:
        text = "WRONGTYPE Operation against a key holding the wrong kind of value"
        check("wrong type", str(error), text)
    else:
        raise SystemExit("INCR of a hash is no error")


def connection_and_server(r):
    check("ping", r.ping(), True)
    check("echo", r.echo("hi"), b"hi")
    check("setname", r.client_setname("py"), True)
    check("getname", r.client_getname() in (b"py", "py"), True)
    info = r.client_info()
    check("client_info", (info["name"], int(info["db"])), ("py", 0))
    check("client_list", any(row["name"] == "py" for row in r.client_list()), True)
    check("info", int(r.info("server")["redis_version"].split(".")[0]) >= 7, True)
    check("config_get", r.config_get("databases"), {"databases": "16"})
    check("command_count", r.command_count() > 50, True)
    check("time", abs(r.time()[0] - time.time()) < 60, True)


def pipelines(r):
    pipe = r.pipeline(transaction=False)
    for index in range(10_000):
        pipe.set(f"p:{index}", index).get(f"p:{index}")
    replies = pipe.execute()
    expected = [reply for index in range(10_000) for reply in (True, str(index).encode())]
    check("pipeline", replies, expected)


def main():
    port = int(sys.argv[1])
    for protocol in (2, 3):
        r = redis.Redis(port=port, protocol=protocol)
        r.flushall()
        for part in (strings, keys, hashes, connection_and_server, pipelines):
            part(r)
        other = redis.Redis(port=port, protocol=protocol, db=3)
        check("other database", (other.dbsize(), other.set("k", 3)), (0, True))
        check("flushdb", (other.flushdb(), other.dbsize()), (True, 0))
        print(f"redis-py {redis.__version__}, RESP{protocol}: ok")


main()
