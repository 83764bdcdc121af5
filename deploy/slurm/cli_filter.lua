-- Print the expected start of a submitted job, on a line below Slurm's own:
--
--     Submitted batch job 4711
--     queuecast: starts in about 40m, 90 % within 2h; 12 jobs ahead
--
-- It runs in the user's sbatch after the submission, and queries `queuecast serve` with curl. It ignores srun and salloc,
-- whose jobs have already started by then.
-- It delays a submission by at most a second and never fails it: without an answer it prints nothing. It also prints
-- nothing in scripts, only if standard error is a terminal.

local SETTINGS = {
    url = "http://127.0.0.1:6067",                -- the address of `queuecast serve`
    site = "alder",                               -- this cluster's name in queuecast
    header_file = "/etc/slurm/queuecast.header",  -- `Authorization: Bearer TOKEN`, of a token with the right `rank`
    seconds = 1,                                  -- timeout
    only_terminal = true,
}

local LONGEST = 400 * 86400 -- seconds; Slurm has a longer value if no time limit is requested

local described = {} -- the request of the command, set before the submission

-- Encode all characters but letters and digits as in URLs. The result is safe in a URL and between quotes of a shell.
local function encoded(text)
    return (tostring(text):gsub("[^%w]", function(c) return string.format("%%%02X", c:byte()) end))
end

-- Parse a time limit of Slurm into seconds; nil for other values, such as UNLIMITED.
local function seconds_of(text)
    local days, rest = text:match("^(%d+)%-([%d:]+)$")
    local parts = {}
    for part in (rest or text):gmatch("[^:]+") do
        if not part:match("^%d+$") then return nil end
        parts[#parts + 1] = tonumber(part)
    end
    if days then return tonumber(days) * 86400 + (parts[1] or 0) * 3600 + (parts[2] or 0) * 60 + (parts[3] or 0) end
    if #parts == 1 then return parts[1] * 60 end
    if #parts == 2 then return parts[1] * 60 + parts[2] end
    if #parts == 3 then return parts[1] * 3600 + parts[2] * 60 + parts[3] end
    return nil
end

local function count(value) return tonumber(tostring(value or ""):match("^%d+$")) end

-- Count the GPUs of `2` or `a100:2,h100:1`; among other resources also those of `gres:gpu:a100:2`.
local function gpus_of(text, among_others)
    local total = 0
    for part in tostring(text or ""):gsub("%b()", ""):gmatch("[^,]+") do
        if among_others and part:match("%f[%a]gpu%f[%A]") then
            total = total + (tonumber(part:match("[:=](%d+)$")) or 1)
        elseif not among_others then
            total = total + (tonumber(part:match("^(%d+)$") or part:match(":(%d+)$")) or 0)
        end
    end
    return total
end

-- The parameters that describe the job, in case its submission has not reached queuecast yet.
local function describe(options)
    local nodes = math.max(tonumber(tostring(options["nodes"] or ""):match("^%d+")) or 1, 1)
    local tasks = count(options["ntasks"]) or 1 -- Slurm also sets 1 without the option
    if tasks <= 1 then tasks = nodes * math.max(count(options["ntasks-per-node"]) or 1, 1) end
    local cpus = tasks * math.max(count(options["cpus-per-task"]) or 1, 1)
    local fields = { "cpus=" .. cpus }
    local gpus = math.max(gpus_of(options["gpus"]), nodes * gpus_of(options["gpus-per-node"]),
        tasks * gpus_of(options["gpus-per-task"]), nodes * gpus_of(options["gres"], true))
    if gpus > 0 then fields[#fields + 1] = "gpus=" .. math.floor(gpus) end
    local walltime = seconds_of(tostring(options["time"] or ""))
    if walltime and walltime > 0 and walltime < LONGEST then fields[#fields + 1] = "walltime=" .. walltime .. "s" end
    local partition = tostring(options["partition"] or "")
    if partition:match("^[%w_.,-]+$") then fields[#fields + 1] = "partition=" .. encoded(partition) end
    for _, name in ipairs({ "account", "qos" }) do
        local value = tostring(options[name] or "")
        if value ~= "unset" and value:match("^[%w_.-]+$") then fields[#fields + 1] = name .. "=" .. encoded(value) end
    end
    local user = os.getenv("USER")
    if user and user ~= "" then fields[#fields + 1] = "user=" .. encoded(user) end
    return table.concat(fields, "&")
end

-- Return the line about a job; nil without one.
local function line_of(job_id)
    local url = string.format("%s/v1/sites/%s/jobs/%s?%s", SETTINGS.url, encoded(SETTINGS.site), job_id, described.query)
    local curl = "exec timeout %d curl -fsg --max-time %d --max-filesize 65536 \"$@\" '%s' 2>/dev/null"
    local command = "set --; " .. curl:format(SETTINGS.seconds, SETTINGS.seconds, url)
    if SETTINGS.header_file then
        command = string.format("set --; test ! -r '%s' || set -- -H '@%s'; ", SETTINGS.header_file, SETTINGS.header_file)
            .. curl:format(SETTINGS.seconds, SETTINGS.seconds, url)
    end
    if SETTINGS.only_terminal then command = "test -t 2 || exit 0; " .. command end
    local pipe = io.popen(command, "r")
    if not pipe then return nil end
    local answer = pipe:read(65536) or ""
    pipe:close()
    local text = answer:match('"text"%s*:%s*"([^"\\]*)"')
    if text and text:match("^starts ") and not text:match("%c") then return text end
    return nil
end

function slurm_cli_setup_defaults(options, early_pass)
    return slurm.SUCCESS
end

function slurm_cli_pre_submit(options, offset)
    pcall(function()
        if offset ~= 0 then return end
        local silent = options["parsable"] == "set" or (count(options["quiet"]) or 0) > 0
        described = { query = options["type"] == "sbatch" and not silent and describe(options) or nil }
    end)
    return slurm.SUCCESS
end

function slurm_cli_post_submit(offset, job_id, step_id)
    pcall(function()
        local id = tostring(job_id):match("^%d+")
        if offset ~= 0 or not id or not described.query or os.getenv("SLURM_JOB_ID") then return end
        local text = line_of(id)
        if text then io.stderr:write("queuecast: ", text, "\n") end
    end)
    return slurm.SUCCESS
end
