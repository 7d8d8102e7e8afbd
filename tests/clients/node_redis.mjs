// The recipe of many Node services: connect, strings, hashes, scans, errors, auto-pipelining.

import assert from 'node:assert/strict';
import { createClient } from 'redis';

const client = createClient({ url: `redis://127.0.0.1:${process.argv[2]}/2`, name: 'node' });
await client.connect();
await client.flushDb();
assert.equal(await client.ping(), 'PONG');
assert.equal(await client.clientGetName(), 'node');

assert.equal(await client.set('greeting', 'hello from Lavik'), 'OK');
assert.equal(await client.get('greeting'), 'hello from Lavik');
assert.equal(await client.set('greeting', 'x', { NX: true }), null);
assert.equal(await client.set('greeting', 'x', { EX: 100, GET: true }), 'hello from Lavik');
assert.ok((await client.ttl('greeting')) > 90);
assert.deepEqual(await client.mGet(['greeting', 'missing']), ['x', null]);
assert.equal(await client.incrByFloat('f', 1.5), '1.5');

assert.equal(await client.hSet('user:42', { name: 'Ada', born: 1815 }), 2);
assert.deepEqual({ ...(await client.hGetAll('user:42')) }, { name: 'Ada', born: '1815' });
assert.deepEqual(await client.hmGet('user:42', ['name', 'nofield']), ['Ada', null]);

// Commands of one turn go out as one pipeline.
const numbers = Array.from({ length: 5000 }, (_, index) => index);
await Promise.all(numbers.map((index) => client.set(`n:${index}`, `${index}`)));
const values = await Promise.all(numbers.map((index) => client.get(`n:${index}`)));
assert.deepEqual(values, numbers.map(String));

const found = new Set();
for await (const key of client.scanIterator({ MATCH: 'n:*', COUNT: 100 })) found.add(key);
assert.equal(found.size, 5000);
assert.equal(await client.dbSize(), 5003);

await assert.rejects(client.incr('user:42'), /WRONGTYPE/);
await assert.rejects(client.sendCommand(['NOSUCH']), /unknown command/);

const other = client.duplicate();
await other.connect();
assert.equal(await other.del(['greeting', 'f', 'missing']), 2);
await other.quit();
await client.flushDb();
await client.quit();
console.log('node-redis: ok');
