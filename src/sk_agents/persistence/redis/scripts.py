"""What the server does in one step each. Times are in seconds of its own clock, unless a test
brings another one.

Scripts that write are refused as a whole when the memory is full, before they have done anything;
only those that make room are not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from sk_agents.redis_access import Command


class RedisScript:
    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()

    def __call__(self, keys: Sequence[str], *values: Any) -> Command:
        """As a command to a server that knows the script."""
        return ("EVALSHA", self.digest, len(keys), *keys, *values)


_NOW = """
local function now(given)
    if given ~= '' then return tonumber(given) end
    local time = redis.call('TIME')
    return tonumber(time[1]) + tonumber(time[2]) / 1000000
end
"""

# Changes of what crosses threads, from ARGV[at] on: how many values, the command, the number of its
# key, the rest. `DROP` removes a key that has this value.
_APPLY = """
local function apply(at)
    while at <= #ARGV do
        local size = tonumber(ARGV[at])
        local name, key = ARGV[at + 1], KEYS[tonumber(ARGV[at + 2])]
        if name == 'DROP' then
            if redis.call('GET', key) == ARGV[at + 3] then redis.call('DEL', key) end
        else
            redis.call(name, key, unpack(ARGV, at + 3, at + size))
        end
        at = at + size + 1
    end
end
"""

# Whether the owner that the sender took for lost has come back. Without KEYS[4] it is not looked
# for: in a cluster owners lie elsewhere.
_IS_BACK = """
local function is_back(owner, given)
    if owner == '' or not KEYS[4] then return false end
    local alive_until = redis.call('HGET', KEYS[4], owner)
    return alive_until and tonumber(alive_until) > now(given)
end
"""

# A chain of commits of one thread: its head, records and entries, if its head is still the one
# that the sender knew. KEYS: head, log, entries, owners, those of the changes. What can fail comes
# first.
_COMMIT = f"""
{_NOW}{_APPLY}{_IS_BACK}
if (redis.call('HGET', KEYS[1], 'mark') or '') ~= ARGV[1] then return 0 end
if is_back(ARGV[2], ARGV[3]) then return 0 end
local at = 9
for _ = 1, tonumber(ARGV[8]) do
    redis.call('XADD', KEYS[2], ARGV[at] .. '-0',
        'commit', ARGV[at + 1], 'check', ARGV[at + 2], 'body', ARGV[at + 3])
    at = at + 4
end
redis.call('HSET', KEYS[1], 'mark', ARGV[4], 'body', ARGV[5], 'check', ARGV[6])
local entries = tonumber(ARGV[at])
at = at + 1
for _ = 1, entries do
    redis.call('HSET', KEYS[3], ARGV[at], ARGV[at + 1])
    at = at + 2
end
if ARGV[7] ~= '' then
    for number = 1, 3 do redis.call('EXPIRE', KEYS[number], ARGV[7]) end
end
apply(at)
return 1
"""
COMMIT = RedisScript(f"#!lua{_COMMIT}")
# Of commits that note a deletion.
COMMIT_MAKING_ROOM = RedisScript(f"#!lua flags=allow-oom{_COMMIT}")

# KEYS as for COMMIT; ARGV: mark, owner, time, changes.
DELETE = RedisScript(f"""#!lua flags=allow-oom
{_NOW}{_APPLY}{_IS_BACK}
if (redis.call('HGET', KEYS[1], 'mark') or '') ~= ARGV[1] then return 0 end
if is_back(ARGV[2], ARGV[3]) then return 0 end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
apply(4)
return 1
""")

# A head whose bytes are replaced and nothing else; ARGV: mark, new mark, body, check.
REPLACE_HEAD = RedisScript("""#!lua
if redis.call('HGET', KEYS[1], 'mark') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'mark', ARGV[2], 'body', ARGV[3], 'check', ARGV[4])
return 1
""")

# One page of a log with its head, as of one moment. ARGV: the first event that is wanted, how many
# records at most, and after how many bytes to stop. The page begins with the record it lies in.
LOG = RedisScript("""#!lua flags=no-writes
local head = redis.call('HMGET', KEYS[1], 'body', 'check')
if not head[1] then return false end
local page = {head[1], head[2]}
local records, bytes = tonumber(ARGV[2]), tonumber(ARGV[3])
local first = redis.call('XREVRANGE', KEYS[2], ARGV[1] .. '-0', '-', 'COUNT', 1)
local from = first[1] and first[1][1] or '-'
while records > 0 and bytes > 0 do
    local rows = redis.call('XRANGE', KEYS[2], from, '+', 'COUNT', math.min(records, 16))
    if #rows == 0 then break end
    for _, row in ipairs(rows) do
        page[#page + 1] = row[1]
        page[#page + 1] = row[2][2]
        page[#page + 1] = row[2][4]
        page[#page + 1] = row[2][6]
        bytes = bytes - #row[2][6]
        if bytes <= 0 then break end
    end
    records = records - #rows
    from = '(' .. rows[#rows][1]
end
return page
""")

# The record of a commit, at or behind a place; ARGV: that place, the commit's id.
SENT_BEFORE = RedisScript("""#!lua flags=no-writes
local from = ARGV[1] .. '-0'
while true do
    local rows = redis.call('XRANGE', KEYS[1], from, '+', 'COUNT', 64)
    if #rows == 0 then return false end
    for _, row in ipairs(rows) do
        if row[2][2] == ARGV[2] then return {row[1], row[2][4], row[2][6]} end
    end
    from = '(' .. rows[#rows][1]
end
""")

# ARGV: owner, seconds, time.
RENEW = RedisScript(f"""#!lua
{_NOW}
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.6f', now(ARGV[3]) + tonumber(ARGV[2])))
""")

# Until when the leases of each owner hold, after the time; ARGV: time.
OWNERS = RedisScript(f"""#!lua flags=no-writes
{_NOW}
return {{string.format('%.6f', now(ARGV[1])), redis.call('HGETALL', KEYS[1])}}
""")

# The time of the server that has this key.
TIME = RedisScript(f"""#!lua flags=no-writes
{_NOW}
return string.format('%.6f', now(''))
""")

# ARGV: how long ago, time, after how long marks are forgotten, runs.
MARK = RedisScript(f"""#!lua
{_NOW}
local function text(time) return string.format('%.6f', time) end
local time = now(ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. text(time - tonumber(ARGV[3])))
for number = 4, #ARGV do
    redis.call('ZADD', KEYS[1], 'GT', text(time - tonumber(ARGV[1])), ARGV[number])
end
""")

# When a run was marked, and the time; ARGV: run, time.
WATCHED = RedisScript(f"""#!lua flags=no-writes
{_NOW}
local at = redis.call('ZSCORE', KEYS[1], ARGV[1])
return at and {{at, string.format('%.6f', now(ARGV[2]))}}
""")

# Counters, if all of them are still what the sender has read. KEYS: counters, names, ends. ARGV:
# for each the key, what was read, what to write, when that is forgotten.
COUNT = RedisScript("""#!lua
for at = 1, #ARGV, 4 do
    if (redis.call('HGET', KEYS[1], ARGV[at]) or '') ~= ARGV[at + 1] then return 0 end
end
for at = 1, #ARGV, 4 do
    redis.call('HSET', KEYS[1], ARGV[at], ARGV[at + 2])
    redis.call('ZADD', KEYS[2], 0, ARGV[at])
    redis.call('ZADD', KEYS[3], ARGV[at + 3], ARGV[at])
end
return 1
""")

# ARGV: the wall time until which counters are forgotten.
FORGET_COUNTERS = RedisScript("""#!lua flags=allow-oom
for _, key in ipairs(redis.call('ZRANGE', KEYS[3], '-inf', ARGV[1], 'BYSCORE', 'LIMIT', 0, 1000)) do
    redis.call('HDEL', KEYS[1], key)
    redis.call('ZREM', KEYS[2], key)
    redis.call('ZREM', KEYS[3], key)
end
""")

# One field of a hash, if it is still what the sender has read. ARGV: field, read, new.
SWAP_FIELD = RedisScript("""#!lua
if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then return 0 end
if ARGV[3] == '' then
    redis.call('HDEL', KEYS[1], ARGV[1])
else
    redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
end
return 1
""")

# A key that has this value.
DROP = RedisScript("""#!lua flags=allow-oom
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
""")

ALL = tuple(value for value in globals().values() if isinstance(value, RedisScript))
