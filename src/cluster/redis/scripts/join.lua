-- ARGV: member, time to live, weight, epoch and number of the session that was given up ('' if none).
if ARGV[4] == epoch then
    finish(ARGV[5])
end
if ttl == 0 then
    -- The first of all.
    ttl = tonumber(ARGV[2])
    redis.call('HSET', meta, 'ttl', ARGV[2], 'quarantine', text(now + ttl))
end
if ttl ~= tonumber(ARGV[2]) then
    return { 'refused', text(ttl) }
end
local number = redis.call('HINCRBY', meta, 'session', 1)
redis.call('ZADD', sessions, text(now + ttl), number)
redis.call('HSET', lines, number, '0 0 0 ' .. ARGV[3] .. ' ' .. ARGV[1])
return { 'joined', epoch, tostring(number) }
