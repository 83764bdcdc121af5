// Upper bounds on a job's start that are still valid.

/** Return whether an upper bound on a start is valid: in the future, and not before the expected start. */
export const isCurrent = (time, start, now) => time != null && time > now && (start == null || time >= start);

/** Return the valid bounds above 0.5 as `[[probability, time], …]`, ascending; `by` maps probabilities to Unix seconds. */
export const currentBounds = (by, start, now) =>
  Object.entries(by ?? {}).filter(([q, time]) => q > 0.5 && isCurrent(time, start, now)).sort(([a], [b]) => a - b);
