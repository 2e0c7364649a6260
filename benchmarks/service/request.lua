-- The same request over and over, on one path or several, as the environment says; at the end one line of JSON with what came of it.
-- Where there are several paths each has a body of its own: its number in eight digits, then what all have.
local body
if os.getenv("BENCH_BODY") ~= nil then
   local file = assert(io.open(os.getenv("BENCH_BODY"), "rb"))
   body = file:read("*a")
   file:close()
end
local headers = {}
if body ~= nil then
   headers["Content-Type"] = "application/octet-stream"
end
if os.getenv("BENCH_AUTHORIZATION") ~= nil then
   headers["Authorization"] = os.getenv("BENCH_AUTHORIZATION")
end
local requests, at = {}, 0

function init(args)
   for path in io.lines(os.getenv("BENCH_PATHS")) do
      local number = #requests
      local own = body and string.format("%08d", number) .. body:sub(9)
      requests[number + 1] = wrk.format(os.getenv("BENCH_METHOD"), path, headers, own)
   end
   body = nil
end

function request()
   at = at % #requests + 1
   return requests[at]
end

function done(summary, latency)
   io.write(string.format(
      'BENCH {"requests": %d, "seconds": %f, "p50": %f, "p99": %f, "errors": %d}\n',
      summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
      summary.errors.status + summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout))
end
