// Requests to the server, always with the token, and streams of server-sent events.
//
// The token is in the address that `tacit ui` prints. It is kept for this tab and this port. A cookie would not do: browsers send
// cookies to every port of a machine.

const [KEY, AGAIN, PREFIX] = ["token", 1000, "data: "];
const GONE = "The server of this page is gone. Start `tacit ui` again.";
let [token, onLocked] = ["", () => {}];

/** Keeps the token of an address and removes it there, so that nobody shares it by mistake. Returns whether there is one. */
export function takeToken(address = location.href) {
  const given = address.match(/[?&]token=(\w+)/)?.[1];
  try {
    if (given) sessionStorage.setItem(KEY, given);
    token = given ?? sessionStorage.getItem(KEY) ?? token;
  } catch {
    token = given ?? token; // without session storage the token is lost with the next load
  }
  const query = new URLSearchParams(location.search);
  if (query.has(KEY)) {
    query.delete(KEY);
    history.replaceState(null, "", location.pathname + (query.size ? `?${query}` : "") + location.hash);
  }
  return Boolean(token);
}

/** Sets the action for when the server refuses the token. */
export function whenLocked(action) {
  onLocked = action;
}

async function request(address, more = {}) {
  const answer = await fetch(address, { ...more, headers: { Authorization: `Bearer ${token}` } });
  if (answer.status === 403) onLocked();
  return answer;
}

/** Listens to a stream: calls `on[event.event]` for every event, and returns the function that stops it. */
export function listen(address, on, last = []) {
  const stop = new AbortController();
  follow(address, on, last, stop);
  return () => stop.abort();
}

async function follow(address, on, last, stop) {
  while (!stop.signal.aborted) {
    const answer = await request(address, { signal: stop.signal }).catch(() => null);
    if (stop.signal.aborted || answer?.status === 403) return;
    if (answer?.ok && (await readStream(answer.body, on, last, stop.signal))) { stop.abort(); return; }
    if (stop.signal.aborted) return;
    // A stream with a last event broke off: repeating it would start its work again. Endless streams are reopened.
    if (last.length || !answer?.ok) on.problem?.({ problems: [GONE] });
    if (last.length) return;
    await new Promise((done) => setTimeout(done, AGAIN));
  }
}

/** Dispatches the events of a stream, and returns whether the last one came. */
async function readStream(body, on, last, signal) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await reader.read().catch(() => ({ done: true }));
    if (done || signal.aborted) return false;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const event = JSON.parse(part.slice(PREFIX.length));
      on[event.event]?.(event);
      if (last.includes(event.event)) return true;
      if (signal.aborted) return false;
    }
  }
}

export async function get(address) {
  return parseAnswer(await request(address));
}

export async function post(address, text) {
  return parseAnswer(await request(address, { method: "POST", body: text }));
}

/** Returns the JSON of an answer. It never settles if the server refuses the token, for then this view is gone. */
function parseAnswer(answer) {
  return answer.status === 403 ? new Promise(() => {}) : answer.json();
}
