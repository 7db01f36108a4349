-- What every script begins with; changes nothing. Times are microseconds on the server's clock.
local meta, sessions, lines, ranks, free, owned, tokens, holds =
    KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]

-- Numbers beyond 2^31 would be written with an exponent.
local function text(number)
    return string.format('%.0f', number)
end

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local ttl = tonumber(redis.call('HGET', meta, 'ttl') or '0')
local epoch = redis.call('HGET', meta, 'epoch') or ''

-- The server's clock may have been set back: that lengthens nothing. (A step writes it down, see prelude.lua.)
local function quarantine()
    local left = tonumber(redis.call('HGET', meta, 'quarantine') or '0') - now
    return left > 0 and math.min(left, ttl) or 0
end

-- Every hold that is set, as in a message; and the fields of those that have ended. What cannot be read is none: somebody else has written it.
local function notes()
    local found, ended = {}, {}
    local all = redis.call('HGETALL', holds)
    for i = 1, #all, 2 do
        local kind, name = string.match(all[i], '^(%a+)#(.*)$')
        local till, version, origin = string.match(all[i + 1], '^(%S+) (%d+) (.*)$')
        local left = till
        if till ~= '*' then
            left = till and tonumber(till)
            left = left and left - now
        end
        if kind and left and left ~= '*' and left <= 0 then
            ended[#ended + 1] = all[i]
        elseif kind and left then
            if left ~= '*' then
                left = text(left)
            end
            found[#found + 1] = table.concat({ kind, version, left, epoch, origin, name }, '\n')
        end
    end
    return found, ended
end
