-- Sends the bodies of a file, one a line, round and round; writes what came of it as JSON.
--   WRK_SUMMARY=summary.json wrk --threads 1 ... --script requests.lua URL -- BODIES
-- The summary's path is in the environment, since `done` runs where the arguments are not known.
-- Runs with one wrk thread: the threads of wrk share no state, so each would send the same bodies.

local bodies, next_body = {}, 0

function init(args)
  for line in io.lines(args[1]) do
    bodies[#bodies + 1] = wrk.format("POST", nil, { ["content-type"] = "application/json" }, line)
  end
end

function request()
  next_body = next_body % #bodies + 1
  return bodies[next_body]
end

function done(summary, latency, requests)
  local errors = summary.errors
  local file = assert(io.open(os.getenv("WRK_SUMMARY"), "w"))
  file:write(string.format(
    '{"requests": %d, "duration_us": %d, "refused": %d, "broken": %d, "p50_us": %d, "p99_us": %d}\n',
    summary.requests, summary.duration, errors.status,
    errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50), latency:percentile(99)))
  file:close()
end
