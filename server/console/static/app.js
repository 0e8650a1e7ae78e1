// The frame around the pages: which page, what is live, keys, colours, the token.
import { access } from "./access.js";
import { Live, hasToken, setToken } from "./api.js";
import { cluster, node, shards } from "./cluster.js";
import { h } from "./dom.js";
import { clock } from "./format.js";
import { index, indexlogs } from "./indexlogs.js";
import { log, logs } from "./logs.js";
import { maintenances } from "./maintenances.js";
import { records } from "./records.js";
import { safety } from "./safety.js";
import { sql } from "./sql.js";
import { stream, streams } from "./streams.js";
import { waits } from "./waits.js";

const at = id => document.getElementById(id);
const PAGES = [["cluster", "Cluster", "c"], ["logs", "Logs", "l"], ["streams", "Streams", "t"], ["indexlogs", "Index logs", "i"], ["waits", "Waits", "w"], ["shards", "Shards", "s"], ["maintenances", "Maintenances", "m"], ["safety", "Safety", "f"], ["sql", "SQL", "q"], ["access", "Access", "a"]];
const OPEN = { cluster, logs, streams, indexlogs, waits, shards, maintenances, safety, sql, access, node, log, records, stream, index };
const BELONGS = { node: "cluster", log: "logs", records: "logs", stream: "streams", index: "indexlogs" };
let state = null, view = null, heard = 0;

const links = new Map(PAGES.map(([name, label]) => {
  const badge = h("span", { class: "count hidden" });
  const link = h("a", { href: `#/${name}` }, label, badge);
  at("nav").append(link);
  return [name, { link, badge }];
}));

function open() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name = "", ...rest] = path.split("/").map(each => { try { return decodeURIComponent(each); } catch { return each; } });
  const make = Object.hasOwn(OPEN, name) ? OPEN[name] : cluster, page = Object.hasOwn(OPEN, name) ? name : "cluster";
  view?.close?.();
  view = rest.length ? make(rest.join("/"), new URLSearchParams(query)) : make(new URLSearchParams(query));
  at("main").replaceChildren(view.element);
  document.title = `${view.title} · ${state?.cluster || "LogDevice"}`;
  for (const [each, { link }] of links) each === (BELONGS[page] || page) ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  scrollTo(0, 0);
  if (state) view.update?.(state);
}
addEventListener("hashchange", () => { open(); at("main").focus({ preventScroll: true }); });

function badge(name, number, kind) {
  const { badge: element } = links.get(name);
  element.className = `count ${kind} ${number ? "" : "hidden"}`;
  element.textContent = number || "";
  element.title = number ? `${number} to look at` : "";
}
const live = new Live(next => {
  state = next;
  at("cluster").textContent = next.cluster;
  at("served").textContent = `seen from N${next.node}`;
  document.title = `${view.title} · ${next.cluster}`;
  badge("cluster", next.problems.length, next.problems.some(each => each.severity === "bad") ? "bad" : "warn");
  badge("waits", next.waits.filter(each => !each.quiet).length, "warn");
  badge("shards", next.rebuildings.filter(each => each.status !== "rebuilt").length, "warn");
  view.update?.(next);
}, (connection, why) => {
  at("live").className = `live ${connection}`;
  const text = { on: "live", lost: "connection lost", paused: "paused" }[connection];
  if (at("live").textContent !== text) at("live").textContent = text;
  at("live").title = why;
  const lost = connection === "lost";
  at("stale").classList.toggle("hidden", !lost);
  if (lost && !at("stale").textContent) {
    const what = state === null ? `This node does not tell how the cluster is: ${why}.` : `The connection to this node is lost. What is shown was true at ${clock(heard)} UTC.`;
    at("stale").textContent = `${what} Other nodes serve this page as well.`;
  }
  if (!lost) at("stale").textContent = "";
  if (connection === "on") heard = Date.now();
});

// Keys
const KEYS = [[`g then ${PAGES.map(each => each[2]).join(", ")}`, PAGES.map(each => each[1]).join(", ")], ["/", "to the filter or the statement"], ["↑ ↓ or j k, Enter", "walk through a table, open a row"], ["t", "light or dark"], ["a", "token"], ["?", "this list"], ["Esc", "close"]];
at("keys").append(h("h2", { id: "keys-title" }, "Keys"), h("dl", { class: "facts" }, KEYS.map(([keys, what]) => [h("dt", {}, h("kbd", {}, keys)), h("dd", {}, what)])), h("p", {}, h("button", { type: "button", onclick: () => at("keys").close() }, "Close")));
let going = 0;
addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select")) { if (event.key === "Escape") event.target.blur(); return; }
  if (document.querySelector("dialog[open]")) return;
  const page = PAGES.find(each => each[2] === event.key);
  if (going && Date.now() - going < 1500 && page) location.hash = `#/${page[0]}`;
  else if (event.key === "/") at("filter")?.focus();
  else if (event.key === "?") at("keys").showModal();
  else if (event.key === "t") turn();
  else if (event.key === "a") askToken("");
  else if (["j", "ArrowDown"].includes(event.key) && view.table && [document.body, at("main")].includes(event.target)) view.table.go(0);
  else { going = event.key === "g" ? Date.now() : 0; return; }
  going = 0;
  event.preventDefault();
});
at("help").addEventListener("click", () => at("keys").showModal());
at("skip").addEventListener("click", event => { event.preventDefault(); at("main").focus(); });

// Light and dark: as the system says, until somebody says otherwise
const dark = () => (document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
function turn() {
  document.documentElement.dataset.theme = dark() ? "light" : "dark";
  localStorage.setItem("logdevice-theme", document.documentElement.dataset.theme);
}
if (["light", "dark"].includes(localStorage.getItem("logdevice-theme"))) document.documentElement.dataset.theme = localStorage.getItem("logdevice-theme");
at("theme").addEventListener("click", turn);

// The token
const field = h("input", { type: "password", autocomplete: "off", size: "40", id: "token" }), why = h("p", { class: "note" });
at("access").append(h("form", { method: "dialog", class: "stack", onsubmit: () => {
  setToken(field.value.trim());
  field.value = "";
  live.stop("paused");
  live.start();
  open();
} }, h("h2", { id: "access-title" }, "Token"), why, h("label", {}, "The content of the file .token beside the cluster file. It stays in this tab.", field), h("div", { class: "tools-row" }, h("button", { class: "main" }, "Use it"), h("button", { type: "button", onclick: () => at("access").close() }, "Cancel"))));
function askToken(text) {
  why.textContent = text || (hasToken() ? "A token is in use. An empty one ends that." : "No token is in use.");
  if (!at("access").open) at("access").showModal();
}
addEventListener("token-wanted", event => askToken(event.detail));

open();
live.start();
