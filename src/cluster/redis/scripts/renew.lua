-- ARGV: epoch, number, line.
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
return {
    'renewed',
    number,
    tostring(unowned),
    rank_of(redis.call('ZRANGE', free, 0, 0, 'WITHSCORES')),
    rank_of(redis.call('ZRANGE', free, -1, -1, 'WITHSCORES')),
    tostring(redis.call('ZCOUNT', owned, number, number)),
    next_expiry,
    redis.call('HGET', meta, 'holds') or '0',
    text(quarantine()),
    members,
}
