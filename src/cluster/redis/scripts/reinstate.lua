-- ARGV: epoch, number; then units, each followed by its token and its rank.
if not lives(ARGV[1], ARGV[2]) then
    return { 'gone', epoch }
end
local taken = { 'claims' }
if quarantine() == 0 then
    return taken
end
local last = tonumber(redis.call('HGET', meta, 'token') or '0')
for i = 3, #ARGV, 3 do
    local unit, token = ARGV[i], tonumber(ARGV[i + 1])
    redis.call('HSET', ranks, unit, ARGV[i + 2])
    local owner = redis.call('ZSCORE', owned, unit)
    if not owner or tonumber(owner) == tonumber(ARGV[2]) then
        give(ARGV[2], unit, token)
        last = math.max(last, token)
        taken[#taken + 1] = unit
        taken[#taken + 1] = ARGV[i + 1]
    end
end
redis.call('HSET', meta, 'token', text(last))
return taken
