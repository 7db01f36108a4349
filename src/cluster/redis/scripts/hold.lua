-- ARGV: channel; of each hold: kind, name, for how long ('*': until it is cleared; '-': it is cleared), origin.
local told = { 'holds', '' }
for i = 2, #ARGV, 4 do
    local kind, name, left, origin = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
    local version = tostring(redis.call('HINCRBY', meta, 'holds', 1))
    local field = kind .. '#' .. name
    if left == '-' then
        redis.call('HDEL', holds, field)
    else
        -- Of one that is on record the later end counts.
        local on_record = string.match(redis.call('HGET', holds, field) or '', '^(%S+) ')
        local till = '*'
        if left == '*' or on_record == '*' then
            left = '*'
        else
            till = math.max(now + tonumber(left), tonumber(on_record or '') or 0)
            left = text(till - now)
            till = text(till)
        end
        redis.call('HSET', holds, field, till .. ' ' .. version .. ' ' .. origin)
    end
    local message = table.concat({ kind, version, left, epoch, origin, name }, '\n')
    -- Whoever may not publish records all the same: what a script has written stays when it fails, and the others fetch what they have not heard.
    redis.pcall('PUBLISH', ARGV[1], message)
    told[2] = version
    told[#told + 1] = message
end
return told
