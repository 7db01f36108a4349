-- ARGV: channel, kind, name, for how long ('*': until it is cleared; '-': it is cleared), origin.
local version = redis.call('HINCRBY', meta, 'holds', 1)
local field = ARGV[2] .. '#' .. ARGV[3]
local left = ARGV[4]
if left == '-' then
    redis.call('HDEL', holds, field)
else
    local till = '*'
    if left ~= '*' then
        till = now + tonumber(left)
        local on_record = redis.call('HGET', holds, field)
        local earlier = on_record and tonumber(string.match(on_record, '^(%d+) ') or '')
        if ARGV[2] == 'cooling' and earlier then
            till = math.max(till, earlier)
        end
        left = text(till - now)
        till = text(till)
    end
    redis.call('HSET', holds, field, till .. ' ' .. version .. ' ' .. ARGV[5])
end
local message = table.concat({ ARGV[2], tostring(version), left, ARGV[5], ARGV[3] }, '\n')
redis.call('PUBLISH', ARGV[1], message)
return { 'holds', tostring(version), message }
