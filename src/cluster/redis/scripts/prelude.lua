-- What every step begins with. Times are microseconds on the server's clock.
local meta, sessions, lines, ranks, free, owned, tokens, holds =
    KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]

-- Numbers beyond 2^31 would be written with an exponent.
local function text(number)
    return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- Another run of the server, or another server: writes may be missing.
local epoch = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
if redis.call('HGET', meta, 'epoch') ~= epoch then
    redis.call('UNLINK', sessions, lines, ranks, free, owned, tokens)
    local ttl = tonumber(redis.call('HGET', meta, 'ttl') or '0')
    redis.call('HSET', meta, 'epoch', epoch, 'quarantine', text(now + ttl))
end

local function quarantine()
    local left = tonumber(redis.call('HGET', meta, 'quarantine') or '0') - now
    return left > 0 and left or 0
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

-- What a score is in text, without an exponent; '' for none.
local function rank_of(entry)
    return entry[2] and text(tonumber(entry[2])) or ''
end
