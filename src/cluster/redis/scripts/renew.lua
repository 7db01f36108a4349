-- ARGV: epoch, number, line.
local number = ARGV[2]
if not lives(ARGV[1], number) then
    return { 'gone', epoch }
end
local ttl = tonumber(redis.call('HGET', meta, 'ttl'))
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
return {
    'renewed',
    tostring(redis.call('ZCARD', free)),
    rank_of(redis.call('ZRANGE', free, 0, 0, 'WITHSCORES')),
    rank_of(redis.call('ZRANGE', free, -1, -1, 'WITHSCORES')),
    tostring(redis.call('ZCOUNT', owned, number, number)),
    next_expiry,
    redis.call('HGET', meta, 'holds') or '0',
    text(quarantine()),
    members,
}
