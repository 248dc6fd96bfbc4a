// What the server tells, as it becomes known.

/** Listens to an address: calls `on[event.event]` for each, and returns what stops it. */
export function listen(address, on, last = []) {
  const source = new EventSource(address);
  source.onmessage = ({ data }) => {
    const event = JSON.parse(data);
    on[event.event]?.(event);
    if (last.includes(event.event)) source.close();
  };
  // A stream that is meant to end would be asked for again and again; others come back by themselves.
  source.onerror = () => {
    if (last.length || source.readyState === EventSource.CLOSED) {
      source.close();
      on.problem?.({ problems: ["The server of this page is gone. Start `tacit ui` again."] });
    }
  };
  return () => source.close();
}

export async function get(address) {
  const answer = await fetch(address);
  return answer.json();
}

export async function post(address, text) {
  const answer = await fetch(address, { method: "POST", body: text });
  return answer.json();
}
