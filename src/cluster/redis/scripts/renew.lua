-- ARGV: epoch, number, line, how many times to live a turn has.
local number = ARGV[2]
if not lives(ARGV[1], number) then
    return { 'gone', epoch }
end
redis.call('ZADD', sessions, text(now + ttl), number)
local member = string.match(redis.call('HGET', lines, number) or '', '^%d+ %d+ %d+ %d+ (.*)$') or ''
redis.call('HSET', lines, number, ARGV[3] .. ' ' .. member)
reap()
-- Everybody whose session is not over, the one that ends first in front.
local living = redis.call('ZRANGEBYSCORE', sessions, '(' .. text(now), '+inf', 'WITHSCORES')
local next_expiry = ''
local members = {}
for i = 1, #living, 2 do
    if living[i] ~= number and next_expiry == '' then
        next_expiry = text(tonumber(living[i + 1]) - now)
    end
    members[#members + 1] = living[i]
    members[#members + 1] = redis.call('HGET', lines, living[i]) or ''
end
-- With what is still to be freed.
local unowned = redis.call('ZCARD', free)
for _, over in ipairs(redis.call('ZRANGEBYSCORE', sessions, '-inf', text(now))) do
    unowned = unowned + redis.call('ZCOUNT', owned, over, over)
end
-- The rank of the first, or the last, free unit of a resource without a hold; '' if none is found among the first thousand.
local resting = {}
local function rests(name)
    if resting[name] == nil then
        resting[name] = false
        for _, held in ipairs(redis.call('HMGET', holds, 'cooling#' .. name, 'excluded#' .. name, 'ejected#' .. name)) do
            local till = held and string.match(held, '^(%S+) ')
            if till and (till == '*' or (tonumber(till) or 0) > now) then
                resting[name] = true
            end
        end
    end
    return resting[name]
end
local has_holds = redis.call('HLEN', holds) > 0
local function first(command)
    for from = 0, 999, 50 do
        local some = redis.call(command, free, from, from + 49, 'WITHSCORES')
        for i = 1, #some, 2 do
            if not (has_holds and rests(string.match(some[i], '^%d+#(.*)$'))) then
                return text(tonumber(some[i + 1]))
            end
        end
        -- With its score each counts twice.
        if #some < 2 * 50 then
            break
        end
    end
    return ''
end
return {
    'renewed',
    number,
    tostring(unowned),
    first('ZRANGE'),
    first('ZREVRANGE'),
    tostring(redis.call('ZCOUNT', owned, number, number)),
    next_expiry,
    redis.call('HGET', meta, 'holds') or '0',
    text(quarantine()),
    text(math.floor(now / (ttl * tonumber(ARGV[4])))),
    members,
}
