-- What every step begins with, after base.lua.

-- Another run of the server, another server, or one that was a replica meanwhile (a promotion makes another replication id): writes may be
-- missing. No two epochs have one name: a server that comes back as it was has another time.
local info = redis.call('INFO', 'server', 'replication')
local run_id = string.match(info, 'run_id:(%w+)')
local run = run_id .. ' ' .. string.match(info, 'master_replid:(%w+)')
if redis.call('HGET', meta, 'run') ~= run then
    redis.call('UNLINK', sessions, lines, ranks, free, owned, tokens)
    epoch = run_id .. '-' .. text(now)
    redis.call('HSET', meta, 'run', run, 'epoch', epoch, 'quarantine', text(now + ttl))
end

-- The server's clock was set back: what is cut short stays so.
if tonumber(redis.call('HGET', meta, 'quarantine') or '0') - now > ttl then
    redis.call('HSET', meta, 'quarantine', text(now + ttl))
end

local function lives(of, number)
    if of ~= epoch then
        return false
    end
    local over = redis.call('ZSCORE', sessions, number)
    return over and tonumber(over) > now
end

local function set_free(unit)
    redis.call('ZREM', owned, unit)
    redis.call('HDEL', tokens, unit)
    redis.call('ZADD', free, redis.call('HGET', ranks, unit) or '9007199254740992', unit)
end

local function give(number, unit, token)
    redis.call('ZREM', free, unit)
    redis.call('ZADD', owned, number, unit)
    redis.call('HSET', tokens, unit, text(token))
end

-- Frees what sessions that are over have owned: so many units in one step.
local function reap()
    for _, number in ipairs(redis.call('ZRANGEBYSCORE', sessions, '(' .. text(now + ttl), '+inf')) do
        redis.call('ZADD', sessions, text(now + ttl), number)
    end
    local left = 512
    for _, number in ipairs(redis.call('ZRANGEBYSCORE', sessions, '-inf', text(now), 'LIMIT', 0, 64)) do
        local units = redis.call('ZRANGEBYSCORE', owned, number, number, 'LIMIT', 0, left)
        for _, unit in ipairs(units) do
            set_free(unit)
        end
        left = left - #units
        if left <= 0 then
            return
        end
        redis.call('ZREM', sessions, number)
        redis.call('HDEL', lines, number)
    end
end

-- A session is over now.
local function finish(number)
    if redis.call('ZSCORE', sessions, number) then
        redis.call('ZADD', sessions, 0, number)
    end
    reap()
end
