-- ARGV: epoch, number, how many, 'best' or 'worst'; then names that are left alone.
if not lives(ARGV[1], ARGV[2]) then
    return { 'gone', epoch }
end
reap()
local claims = { 'claims' }
if quarantine() > 0 then
    return claims
end
local skip = {}
for i = 5, #ARGV do
    skip[ARGV[i]] = true
end
local wanted = tonumber(ARGV[3])
local units = {}
local from = 0
while #units < wanted do
    local some = redis.call(ARGV[4] == 'best' and 'ZRANGE' or 'ZREVRANGE', free, from, from + wanted - 1)
    for _, unit in ipairs(some) do
        if #units < wanted and not skip[string.match(unit, '^%d+#(.*)$')] then
            units[#units + 1] = unit
        end
    end
    if #some < wanted then
        break
    end
    from = from + wanted
end
local token = tonumber(redis.call('HGET', meta, 'token') or '0')
for _, unit in ipairs(units) do
    token = math.max(token + 1, now)
    give(ARGV[2], unit, token)
    claims[#claims + 1] = unit
    claims[#claims + 1] = text(token)
end
redis.call('HSET', meta, 'token', text(token))
return claims
