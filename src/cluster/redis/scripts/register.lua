-- ARGV: epoch, number; then units, each followed by its rank.
if not lives(ARGV[1], ARGV[2]) then
    return { 'gone', epoch }
end
for i = 3, #ARGV, 2 do
    if redis.call('HSETNX', ranks, ARGV[i], ARGV[i + 1]) == 1 and not redis.call('ZSCORE', owned, ARGV[i]) then
        redis.call('ZADD', free, ARGV[i + 1], ARGV[i])
    end
end
return { 'done' }
