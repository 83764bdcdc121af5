// Questions to the service, and what to say where it has no answer.

const PATIENCE_MS = 30_000;

/** The paths that this page has had an answer of, with what was asked. */
export const answered = new Set();

/** What was said instead of an answer; `status` 0 where the service could not be reached. */
export class Refused extends Error {
  constructor(status, detail = "", reason = "") {
    super(detail);
    Object.assign(this, { status, detail, reason });
  }
}

/** Exchange a token for a session, a cookie that no script can read; whether the service took it. */
export async function enter(token) {
  const headers = { Authorization: `Bearer ${String.fromCharCode(...new TextEncoder().encode(token))}` };
  return (await fetch("login", { method: "POST", headers })).ok;
}

/** End the session. */
export const leave = () => fetch("login", { method: "DELETE" });

/** The answer to GET `v1/…`; `parts` of the path are names as they are, empty parameters are left out. */
export async function get(parts, parameters = {}, signal = null) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== "" && value != null));
  const names = ["v1", ...parts].map(encodeURIComponent).join("/");
  const path = query.size ? `${names}?${query}` : names;
  const patience = AbortSignal.timeout(PATIENCE_MS);
  let response, body;
  try {
    response = await fetch(path, {
      signal: signal ? AbortSignal.any([signal, patience]) : patience,
      cache: "no-store",
    });
    body = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refused(0);
  }
  const found = parsed(body);
  if (response.ok && found !== null) {
    answered.add(path);
    return found;
  }
  throw new Refused(response.status, String(found?.detail ?? ""), String(found?.reason ?? ""));
}

function parsed(body) {
  try {
    return JSON.parse(body);
  } catch {
    return null;
  }
}

/** A refusal in plain words; `whom` it was about. */
export function explained(error, whom = "") {
  if (!(error instanceof Refused)) throw error;
  if (error.reason === "busy") return "The service is overloaded. Try again in a moment.";
  switch (error.status) {
    case 0:
      return "The service cannot be reached. Is it running, and are you connected?";
    case 400:
    case 404:
      return error.detail || "The service rejected the request as invalid.";
    case 401:
      return "The service requires a token.";
    case 403:
      return "Your token does not allow this.";
    case 429:
      return "Too many requests in a minute. Try again in a minute.";
    case 503:
      return `The service is not ready yet${error.detail ? `: ${error.detail}` : "."}`;
    case 504:
      return `No worker answers${whom ? ` for ${whom}` : ""}. It may be starting, or it has stopped.`;
    default:
      return `The service failed (${error.status})${error.detail ? `: ${error.detail}` : "."}`;
  }
}
