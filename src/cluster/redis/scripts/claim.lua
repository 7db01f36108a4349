-- ARGV: epoch, number, how many, 'best' or 'worst'; then what is left alone: of a resource this unit and those with a higher index.
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
    local index, name = string.match(ARGV[i], '^(%d+)#(.*)$')
    skip[name] = tonumber(index)
end
local wanted = tonumber(ARGV[3])
local units = {}
local from, page = 0, math.max(wanted, 64)
while #units < wanted do
    local some = redis.call(ARGV[4] == 'best' and 'ZRANGE' or 'ZREVRANGE', free, from, from + page - 1)
    for _, unit in ipairs(some) do
        local index, name = string.match(unit, '^(%d+)#(.*)$')
        if #units < wanted and not (skip[name] and tonumber(index) >= skip[name]) then
            units[#units + 1] = unit
        end
    end
    if #some < page then
        break
    end
    from = from + page
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
