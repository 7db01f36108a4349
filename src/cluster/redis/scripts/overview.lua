-- Everything on record: epoch, quarantine, free units, members, claims, holds. After base.lua alone: it changes nothing.
local members = {}
for _, number in ipairs(redis.call('ZRANGE', sessions, 0, -1)) do
    members[#members + 1] = number
    members[#members + 1] = redis.call('HGET', lines, number) or ''
    members[#members + 1] = text(math.max(0, tonumber(redis.call('ZSCORE', sessions, number)) - now))
    members[#members + 1] = tostring(redis.call('ZCOUNT', owned, number, number))
end
local claims = {}
local all = redis.call('ZRANGE', owned, 0, -1, 'WITHSCORES')
for i = 1, #all, 2 do
    claims[#claims + 1] = all[i]
    claims[#claims + 1] = redis.call('HGET', tokens, all[i]) or '0'
    claims[#claims + 1] = all[i + 1]
end
return { 'overview', epoch, text(quarantine()), tostring(redis.call('ZCARD', free)), members, claims, (notes()) }
