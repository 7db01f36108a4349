-- ARGV: epoch, number.
if not lives(ARGV[1], ARGV[2]) then
    return { 'gone', epoch }
end
local claims = { 'claims' }
for _, unit in ipairs(redis.call('ZRANGEBYSCORE', owned, ARGV[2], ARGV[2])) do
    claims[#claims + 1] = unit
    claims[#claims + 1] = redis.call('HGET', tokens, unit)
end
return claims
