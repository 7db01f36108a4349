-- ARGV: epoch, number.
if not lives(ARGV[1], ARGV[2]) then
    return { 'gone', epoch }
end
finish(ARGV[2])
return { 'done' }
