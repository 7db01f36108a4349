local found, ended = notes()
for _, field in ipairs(ended) do
    redis.call('HDEL', holds, field)
end
table.insert(found, 1, redis.call('HGET', meta, 'holds') or '0')
table.insert(found, 1, 'holds')
return found
