-- ARGV: epoch, number; then units, each followed by its rank.
if not lives(ARGV[1], ARGV[2]) then
    return { 'gone', epoch }
end
for i = 3, #ARGV, 2 do
    if redis.call('HGET', ranks, ARGV[i]) ~= ARGV[i + 1] then
        redis.call('HSET', ranks, ARGV[i], ARGV[i + 1])
        if not redis.call('ZSCORE', owned, ARGV[i]) then
            redis.call('ZADD', free, ARGV[i + 1], ARGV[i])
        end
    end
end
return { 'done' }
