// Which bounds of a job's start still hold.

/** Whether a time by which a job should have started can still be told: it has not passed, nor precedes the estimate. */
export const holds = (time, start, now) => time != null && time > now && (start == null || time >= start);

/** The bounds that hold, `[[probability, time], …]`, the least probable first; `by` are Unix seconds by probability. */
export const holding = (by, start, now) =>
  Object.entries(by ?? {}).filter(([q, time]) => q > 0.5 && holds(time, start, now)).sort(([a], [b]) => a - b);
