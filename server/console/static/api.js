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
export class Live {
  constructor(onState, onConnection) {
    this.onState = onState;
    this.onConnection = onConnection;
    this.wait = 500;
    document.addEventListener("visibilitychange", () => document.hidden ? this.stop("paused") : this.start());
  }
  start() {
    if (this.abort || document.hidden) return;
    clearTimeout(this.timer);
    this.abort = new AbortController();
    this.read(this.abort).catch(error => {
      if (error.name !== "AbortError") this.retry(error);
    });
  }
  stop(why) {
    clearTimeout(this.timer);
    this.abort?.abort();
    this.abort = null;
    this.onConnection(why, "");
  }
  retry(error) {
    this.abort = null;
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
      text += value;
      let end;
      while ((end = text.indexOf("\n\n")) >= 0) {
        this.take(text.slice(0, end));
        text = text.slice(end + 2);
      }
    }
  }
  take(block) {
    const lines = block.split("\n"), event = lines.find(line => line.startsWith("event: "))?.slice(7);
    const data = lines.find(line => line.startsWith("data: "))?.slice(6);
    if (event === "failed") throw new Error(JSON.parse(data).detail);
    this.wait = 500;
    this.onConnection("on", "");
    if (event === "state") this.onState(JSON.parse(data));
  }
}
