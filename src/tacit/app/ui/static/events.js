// What the server is asked, always with the token, and what it tells, as it becomes known.
//
// The token is in the address that `tacit ui` prints. It is kept for this tab and for this port, which a cookie would not
// be: browsers send those to every port of a machine.

const [KEY, AGAIN, PREFIX] = ["token", 1000, "data: "];
const GONE = "The server of this page is gone. Start `tacit ui` again.";
let [token, locked] = ["", () => {}];

/** Takes the token out of an address, so that nobody shares it by mistake, and keeps it. Says whether there is one. */
export function enter(address = location.href) {
  const given = address.match(/[?&]token=(\w+)/)?.[1];
  try {
    if (given) sessionStorage.setItem(KEY, given);
    token = given ?? sessionStorage.getItem(KEY) ?? token;
  } catch {
    token = given ?? token; // a browser that keeps nothing forgets it with the next load
  }
  const query = new URLSearchParams(location.search);
  if (query.has(KEY)) {
    query.delete(KEY);
    history.replaceState(null, "", location.pathname + (query.size ? `?${query}` : "") + location.hash);
  }
  return Boolean(token);
}

/** Sets what is to be done when the server does not take the token. */
export function whenLocked(action) {
  locked = action;
}

async function ask(address, more = {}) {
  const answer = await fetch(address, { ...more, headers: { Authorization: `Bearer ${token}` } });
  if (answer.status === 403) locked();
  return answer;
}

/** Listens to an address: calls `on[event.event]` for each, and returns what stops it. */
export function listen(address, on, last = []) {
  const stop = new AbortController();
  follow(address, on, last, stop);
  return () => stop.abort();
}

async function follow(address, on, last, stop) {
  while (!stop.signal.aborted) {
    const answer = await ask(address, { signal: stop.signal }).catch(() => null);
    if (stop.signal.aborted || answer?.status === 403) return;
    if (answer?.ok && (await heard(answer.body, on, last, stop.signal))) { stop.abort(); return; }
    if (stop.signal.aborted) return;
    // A stream that is meant to end has not, and would be worked on anew; others are asked for again.
    if (last.length || !answer?.ok) on.problem?.({ problems: [GONE] });
    if (last.length) return;
    await new Promise((done) => setTimeout(done, AGAIN));
  }
}

/** Passes on what a stream tells, and says whether that was all of it. */
async function heard(body, on, last, signal) {
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
  return told(await ask(address));
}

export async function post(address, text) {
  return told(await ask(address, { method: "POST", body: text }));
}

/** Returns what was told; never anything, if the server does not take the token, for then this view is gone. */
function told(answer) {
  return answer.status === 403 ? new Promise(() => {}) : answer.json();
}
