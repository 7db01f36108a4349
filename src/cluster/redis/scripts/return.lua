-- ARGV: epoch, number; then units, each followed by its token.
if not lives(ARGV[1], ARGV[2]) then
    return { 'gone', epoch }
end
for i = 3, #ARGV, 2 do
    local owner = redis.call('ZSCORE', owned, ARGV[i])
    if owner and tonumber(owner) == tonumber(ARGV[2]) and redis.call('HGET', tokens, ARGV[i]) == ARGV[i + 1] then
        set_free(ARGV[i])
    end
end
return { 'done' }
