// Requests to the node. The token stays in this tab and goes nowhere but to this node.
const KEY = "logdevice-token";

export class Refused extends Error {
  constructor(code, status, detail) { super(detail || status); this.code = code; this.status = status; }
}
export const setToken = text => text ? sessionStorage.setItem(KEY, text) : sessionStorage.removeItem(KEY);
export const hasToken = () => sessionStorage.getItem(KEY) !== null;
const headers = () => hasToken() ? { Authorization: `Bearer ${sessionStorage.getItem(KEY)}` } : {};

async function check(answer) {
  if (answer.ok) return answer;
  let error = {};
  try { error = (await answer.json()).error; } catch { /* not one of our answers */ }
  const refused = new Refused(answer.status, error.status || `HTTP ${answer.status}`, error.detail);
  if (answer.status === 401) dispatchEvent(new CustomEvent("token-wanted", { detail: refused.message }));
  throw refused;
}
export async function get(path, given = {}, signal) {
  const query = new URLSearchParams(Object.entries(given).filter(([, value]) => value !== undefined && value !== ""));
  return (await check(await fetch(`/v1/console/${path}${query.size ? `?${query}` : ""}`, { headers: headers(), signal, cache: "no-store" }))).json();
}
export async function post(path, content, signal) {
  return (await check(await fetch(`/v1/console/${path}`, { method: "POST", headers: { ...headers(), "Content-Type": "application/json" }, body: JSON.stringify(content), signal }))).json();
}

// Server-sent events by fetch: EventSource cannot carry a token. While the page is hidden nothing is asked for.
// The node says something every 15 s, changed or not, or when it has looked again if that takes longer. A connection that is silent for longer than that is
// lost though nobody has closed it: the node hangs, or what lies between has forgotten the connection.
const SILENCE = 40000;
export class Live {
  constructor(onState, onConnection) {
    this.onState = onState;
    this.onConnection = onConnection;
    this.wait = 500;
    this.interval = 0;
    document.addEventListener("visibilitychange", () => document.hidden ? this.stop("paused") : this.start());
  }
  start() {
    if (this.abort || document.hidden) return;
    clearTimeout(this.timer);
    this.abort = new AbortController();
    this.expect();
    this.read(this.abort).catch(error => {
      if (error.name !== "AbortError") this.retry(error);
    });
  }
  expect() {
    clearTimeout(this.silence);
    this.silence = setTimeout(() => this.retry(new Error("the node says nothing any more")), SILENCE + 2000 * this.interval);
  }
  end() {
    clearTimeout(this.timer);
    clearTimeout(this.silence);
    this.abort?.abort();
    this.abort = null;
  }
  stop(why) {
    this.end();
    this.onConnection(why, "");
  }
  retry(error) {
    this.end();
    this.onConnection("lost", error.message);
    if (error.code === 401) return;
    this.timer = setTimeout(() => this.start(), this.wait);
    this.wait = Math.min(this.wait * 2, 10000);
  }
  async read(abort) {
    const answer = await check(await fetch("/v1/console/events", { headers: headers(), signal: abort.signal, cache: "no-store" }));
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) throw new Error("the node ended the connection");
      if (abort.signal.aborted) return;
      text += value;
      let end;
      while ((end = text.indexOf("\n\n")) >= 0) {
        this.take(text.slice(0, end));
        text = text.slice(end + 2);
      }
      this.expect();
    }
  }
  take(block) {
    const lines = block.split("\n"), event = lines.find(line => line.startsWith("event: "))?.slice(7);
    const data = lines.find(line => line.startsWith("data: "))?.slice(6);
    if (event === "failed") throw new Error(JSON.parse(data).detail);
    this.wait = 500;
    this.onConnection("on", "");
    if (event !== "state") return;
    const state = JSON.parse(data);
    this.interval = state.interval || 0;
    this.onState(state);
  }
}
