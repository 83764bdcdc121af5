// Requests to the HTTP service, and messages for failed requests.

const TIMEOUT_MS = 30_000;

/** The paths, with parameters, of the successful requests of this page. */
export const answeredPaths = new Set();

/** A failed request; `status` is 0 if the service could not be reached. */
export class RequestError extends Error {
  constructor(status, detail = "", reason = "") {
    super(detail);
    Object.assign(this, { status, detail, reason });
  }
}

/** Exchange a token for a session cookie that scripts cannot read; return whether the service accepted the token. */
export async function signIn(token) {
  const headers = { Authorization: `Bearer ${String.fromCharCode(...new TextEncoder().encode(token))}` };
  return (await fetch("login", { method: "POST", headers })).ok;
}

/** End the session. */
export const signOut = () => fetch("login", { method: "DELETE" });

/** Return the answer to GET `v1/…`. `parts` are the unescaped parts of the path; empty parameters are left out. */
export async function get(parts, parameters = {}, signal = null) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== "" && value != null));
  const names = ["v1", ...parts].map(encodeURIComponent).join("/");
  const path = query.size ? `${names}?${query}` : names;
  const timeout = AbortSignal.timeout(TIMEOUT_MS);
  let response, body;
  try {
    response = await fetch(path, {
      signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
      cache: "no-store",
    });
    body = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new RequestError(0);
  }
  const answer = parseJson(body);
  if (response.ok && answer !== null) {
    answeredPaths.add(path);
    return answer;
  }
  throw new RequestError(response.status, String(answer?.detail ?? ""), String(answer?.reason ?? ""));
}

function parseJson(body) {
  try {
    return JSON.parse(body);
  } catch {
    return null;
  }
}

/** Return the message of a failed request; `site` is the site that it concerns. */
export function errorText(error, site = "") {
  if (!(error instanceof RequestError)) throw error;
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
      return error.detail ? `No answer yet: ${error.detail}.` : "The service is not ready yet.";
    case 504:
      return `No worker answers${site ? ` for ${site}` : ""}. It may be starting, or it has stopped.`;
    default:
      return `The service failed (${error.status})${error.detail ? `: ${error.detail}` : "."}`;
  }
}
