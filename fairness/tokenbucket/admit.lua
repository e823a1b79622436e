-- Admits tasks of one tenant from its two token buckets: all tasks, and those that are urgent. fairness.Bucket is the same arithmetic
-- in Go, and a test compares the two.
--
-- KEYS[1]  the tenant's buckets, a hash: at (microseconds of this server's clock up to which tokens were paid in), t and u (tokens of all
--          and of urgent tasks; empty where there is no limit)
-- ARGV     1 rate, 2 burst of all tasks; 3 rate, 4 burst of urgent ones (tokens per second, rate 0 for no limit; burst >= 1)
--          5 tasks asked for, 6 how many of them are urgent
--          7 tokens, 8 urgent tokens that were used elsewhere and are owed
-- answer   1 tasks granted, 2 how many may stay urgent, 3 and 4 milliseconds until one more would be (0: at once),
--          5 and 6 tokens left in each bucket as text (empty where there is no limit)
--
-- What holds:
--   Time is this server's, so that callers' clocks do not matter. It pays in once: a time up to a second ahead of the clock (another
--   server's, before a failover) is waited for, one further ahead is wrong and set to the clock's, which pays nothing.
--   Tokens are within -burst and burst, also after the burst was changed; what cannot be read counts as a full bucket.
--   The key expires a minute after both buckets are full again, when it tells nothing any more; after a year at the latest.
--   Nothing is written when the script fails. A key of another type makes it fail, and is left as it is.

local step_max_us = 1000000
local wait_max_ms = 31536000000
local margin_ms = 60000

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local stored = redis.call('HMGET', KEYS[1], 'at', 't', 'u')
local at = tonumber(stored[1] or '')
local passed = 0
if at and at == at then
  if at > now + step_max_us then
    at = now
  end
  if now > at then
    passed = now - at
    at = now
  end
else
  at = now
end

local ttl = 0

-- draw refills one bucket, debits it and takes up to n whole tokens: taken, milliseconds until one more, tokens left as text.
local function draw(tokens, rate, burst, owed, n)
  if rate <= 0 then
    return n, 0, ''
  end
  tokens = tonumber(tokens or '')
  if not tokens or tokens ~= tokens then
    tokens = burst
  end
  tokens = tokens + rate * passed / 1e6
  tokens = math.min(math.max(tokens, -burst), burst)
  tokens = math.max(tokens - owed, -burst)
  local taken = math.max(0, math.min(n, math.floor(tokens)))
  tokens = tokens - taken
  local wait = 0
  if tokens < 1 then
    wait = math.min(math.ceil(((1 - tokens) / rate * 1e6 + (at - now)) / 1e3) + 1, wait_max_ms)
  end
  ttl = math.max(ttl, math.min(math.ceil(((burst - tokens) / rate * 1e6 + (at - now)) / 1e3), wait_max_ms))
  return taken, wait, string.format('%.17g', tokens)
end

local a = {}
for i = 1, 8 do
  a[i] = tonumber(ARGV[i])
end
local granted, wait, left = draw(stored[2], a[1], a[2], a[7], a[5])
local urgent, urgent_wait, urgent_left = draw(stored[3], a[3], a[4], a[8], math.min(a[6], granted))

redis.call('HSET', KEYS[1], 'at', string.format('%.0f', at), 't', left, 'u', urgent_left)
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', ttl + margin_ms))
return { granted, urgent, wait, urgent_wait, left, urgent_left }
