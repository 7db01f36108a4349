-- Every hold that is set, as in a message.
local found = { 'holds', redis.call('HGET', meta, 'holds') or '0' }
local all = redis.call('HGETALL', holds)
for i = 1, #all, 2 do
    local kind, name = string.match(all[i], '^(%a+)#(.*)$')
    local till, version, origin = string.match(all[i + 1], '^(%S+) (%d+) (.*)$')
    local left = till
    if till ~= '*' then
        left = tonumber(till) - now
    end
    if left ~= '*' and left <= 0 then
        redis.call('HDEL', holds, all[i])
    else
        if left ~= '*' then
            left = text(left)
        end
        found[#found + 1] = table.concat({ kind, version, left, epoch, origin, name }, '\n')
    end
end
return found
