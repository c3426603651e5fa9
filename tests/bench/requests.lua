-- Sends the bodies of a file, one a line, round and round; writes the figures as JSON.
--   VECMILL_BENCH_SUMMARY=FILE VECMILL_BENCH_HEADERS=... wrk --threads 1 ... --script requests.lua URL -- BODIES
-- The path of the summary is in the environment, since `done` runs where the arguments are not known. So are the
-- headers, a name and a value on each line, since other users of the machine can see the arguments.
-- Runs with one thread of wrk: the threads share no state, so each would send the same bodies.

local bodies, next_body = {}, 0

function init(args)
  local headers = { ["content-type"] = "application/json" }
  for name, value in os.getenv("VECMILL_BENCH_HEADERS"):gmatch("([^:\n]+): ([^\n]*)\n") do
    headers[name] = value
  end
  for line in io.lines(args[1]) do
    bodies[#bodies + 1] = wrk.format("POST", nil, headers, line)
  end
end

function request()
  next_body = next_body % #bodies + 1
  return bodies[next_body]
end

function done(summary, latency, requests)
  local errors, counts = summary.errors, {}
  for i = 1, #latency do
    counts[i] = string.format("[%d, %d]", latency(i))
  end
  local file = assert(io.open(os.getenv("VECMILL_BENCH_SUMMARY"), "w"))
  file:write(string.format(
    '{"requests": %d, "duration_us": %d, "refused": %d, "broken": %d, "timeout": %d, "latencies_us": [%s]}\n',
    summary.requests, summary.duration, errors.status,
    errors.connect + errors.read + errors.write, errors.timeout, table.concat(counts, ", ")))
  file:close()
end
