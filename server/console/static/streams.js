// Streams of all namespaces, who reads them and how far; one stream.
import { get } from "./api.js";
import { chip, facts, h, head, panel, redraw, tile } from "./dom.js";
import { bytes, count, duration, one, orNone, rate, since, time } from "./format.js";
import { repeat } from "./logs.js";
import { Table, filterField } from "./table.js";

const STATE = { live: "ok", ended: "", creating: "warn", deleting: "warn", "in progress": "accent", completed: "", "truncated in part": "", truncated: "", cold: "", unknown: "warn" };
const place = row => `${row.namespace}/${row.stream}`;
const hrefOf = path => `#/stream/${path.split("/").map(encodeURIComponent).join("/")}`;
const behind = row => row.position === null ? "nothing committed" : row.tail === null ? "–" : row.behind === null ? "several epochs" : row.behind ? one(row.behind, "entry", "entries") : "nothing";
// what is most behind comes first: more than any number is what began nothing, or is epochs back
const lag = row => row.behind ?? (row.tail === null ? -1 : Number.MAX_SAFE_INTEGER);
const subscriptionColumns = withStream => [
  { name: "subscription" }, ...withStream ? [{ name: "stream", value: place, cell: row => h("a", { href: hrefOf(place(row)) }, place(row)) }] : [],
  { name: "behind", number: true, value: lag, cell: row => chip(behind(row), row.behind === 0 ? "ok" : row.position === null || row.tail === null ? "" : "warn") },
  ...withStream ? [] : [{ name: "oldest that waits", value: row => row.waiting_since, cell: row => row.waiting_since ? `${since(row.waiting_since)} ago` : "–" }],
  { name: "handled up to", value: row => row.position }, { name: "committed", value: row => row.committed, cell: row => row.committed ? `${since(row.committed)} ago` : "never" },
  { name: "commits", number: true, cell: row => count(row.commits) }, { name: "owner", label: "member", value: row => row.shared ? row.owner || "nobody" : null }];

const undone = each => each.unattended_count ? `nothing is done for ${each.unattended.join(", ")}${each.unattended_count > each.unattended.length ? ` and ${count(each.unattended_count - each.unattended.length)} more` : ""}` : "";
const janitorColumns = [{ name: "namespace" }, { name: "janitor", value: row => row.janitor, cell: row => row.janitor ? chip(row.janitor, "ok") : chip("nobody", row.unattended_count ? "bad" : "") },
  { name: "last sign of life", value: row => row.at, cell: row => row.at ? `${since(row.at)} ago` : "–" }, { name: "did last", value: row => row.did, cell: row => orNone(row.did) }, { name: "what is missing", value: undone }];

export function streams(given) {
  const said = h("p", { class: "note", role: "status" }, "reading the namespaces"), seen = h("p", { class: "note" });
  const search = filterField("streams", "stream, owner, subscription", given, text => { for (const each of [table, readers]) each.filter(text); });
  const table = new Table({
    label: "Streams", key: place, open: row => { location.hash = hrefOf(place(row)); }, empty: "There are no streams. ldstream create NAME makes one.",
    columns: [{ name: "stream", value: place, cell: row => h("a", { href: hrefOf(place(row)) }, place(row)) }, { name: "state", cell: row => chip(row.state, STATE[row.state]) }, { name: "writers" }, { name: "owner", value: row => row.owner },
      { name: "entries/s", number: true, value: row => row.log?.entries_1min, cell: row => row.log ? count(row.log.entries_1min) : "–" }, { name: "tail", value: row => row.log?.tail }, { name: "begins at", value: row => row.begins_at },
      { name: "stored", number: true, value: row => row.log?.stored_bytes, cell: row => bytes(row.log?.stored_bytes) }, { name: "newest record (UTC)", value: row => row.log?.newest_time, cell: row => time(row.log?.newest_time) },
      { name: "txid", label: "ids by" }, { name: "log", number: true, value: row => row.log_id, cell: row => row.log_id === null ? "–" : h("a", { href: `#/log/${row.log_id}` }, row.log_id) }],
  });
  const readers = new Table({ label: "Subscriptions", key: row => `${place(row)} ${row.subscription}`, empty: "Nobody has subscribed to anything.", open: row => { location.hash = hrefOf(place(row)); }, columns: subscriptionColumns(true) });
  table.oncount = (shown, all) => { seen.textContent = shown === all ? one(all, "stream") : `${count(shown)} of ${one(all, "stream")}`; };
  for (const each of [table, readers]) each.filter(search.value);
  const janitors = new Table({ label: "Janitors", key: row => row.namespace, empty: "There is no namespace.", columns: janitorColumns });
  const stop = repeat(async signal => {
    const found = await get("streams", {}, signal), silent = Object.keys(found.silent);
    table.update(found.streams);
    readers.update(found.subscriptions);
    janitors.update(found.janitors || []);
    said.textContent = [found.namespaces.length ? `${one(found.namespaces.length, "namespace")}.` : "There is no namespace; it takes a log tree.", silent.length ? `${silent.join(", ")} did not answer: what is known there is missing.` : "", found.left_out ? `${count(found.left_out)} more rows are not shown; SQL finds them.` : ""].filter(Boolean).join(" ");
    return found.took_us;
  }, 5000, error => { said.textContent = error.message; });
  const element = h("div", { class: "stack" }, head("Streams", "Logs with names, who owns them, and how far readers have come. What is behind is counted in entries.", h("label", {}, "Filter", search)), said, panel("Streams", table.element, seen), panel("Subscriptions", readers.element), panel("Janitors", h("p", { class: "note" }, "A janitor trims what is older than ttl, copies to cold stores, and deletes old copies: ldstream janitor NAMESPACE."), janitors.element));
  return { element, title: "Streams", table, close() { stop(); table.close(); readers.close(); janitors.close(); } };
}

const plain = (label, rows, columns, empty) => {
  const table = new Table({ label, tall: rows.length > 20, columns, empty });
  table.set(rows);
  return table.element;
};

function keptUp(found) {
  const kept = found.kept, janitor = found.janitor;
  if (!kept) return [h("p", { class: "note" }, "It has neither ttl nor cold: nothing is trimmed or copied by a janitor.")];
  return [facts([...Object.entries(kept.attributes), ["janitor", janitor?.janitor ? janitor.janitor : chip("nobody", Object.keys(kept.attributes).length ? "bad" : "")], ["last sign of life", janitor?.at ? `${since(janitor.at)} ago` : null], ["did last", janitor?.did],
    ["trimmed to", kept.trimmed_to], ["copied to", kept.copied_to], ["copies now", kept.copying]])];
}

function shown(found) {
  const row = found.stream, last = found.segments.at(-1), known = found.segments.filter(each => each.records !== null);
  return [
    h("div", { class: "head" }, h("div", {}, h("h1", {}, `${place(row)} `, chip(row.state, STATE[row.state])), h("p", {}, `${row.writers}, ids by ${row.txid === "time" ? "time" : "writers"}`)),
      row.log_id === null ? null : h("div", { class: "tools-row" }, h("a", { href: `#/records/${row.log_id}`, "data-key": "records" }, "Browse records"), h("a", { href: `#/log/${row.log_id}`, "data-key": "log" }, `Log ${row.log_id}`))),
    h("div", { class: "tiles" }, tile("Tail", orNone(found.tail)), tile("Segments", count(found.segments.length)), tile("Records", known.length ? count(known.reduce((sum, each) => sum + each.records, 0)) : "–"),
      tile("Payload", known.length ? bytes(known.reduce((sum, each) => sum + each.bytes, 0)) : "–"), tile("Newest record", last?.last_time ? `${since(last.last_time)} ago` : "–")),
    h("div", { class: "columns" },
      panel("Owner", found.owner ? facts([["owner", found.owner.owner], ["token", count(found.owner.token)], ["lease", duration(found.owner.lease / 1e6)], ["signs of life", count(found.owner.signs)]]) : h("p", { class: "note" }, row.writers === "exclusive" ? "Nobody owns it." : "It is shared: any number of writers.")),
      panel("The stream", facts([["begins at", orNone(row.begins_at ?? "its first record")], ["ended at", orNone(row.end_lsn)], ["number", count(row.number)], ["version", row.version]])),
      panel("Trimmed and copied", ...keptUp(found))),
    panel("Segments", plain("Segments", [...found.segments].reverse(), [{ name: "epoch", number: true }, { name: "state", cell: each => chip(each.state, STATE[each.state]) }, { name: "first", value: each => each.first_lsn }, { name: "last", value: each => each.last_lsn },
      { name: "records", number: true, cell: each => count(each.records) }, { name: "payload", number: true, value: each => each.bytes, cell: each => bytes(each.bytes) }, { name: "first record (UTC)", value: each => each.first_time, cell: each => time(each.first_time) }, { name: "last record (UTC)", value: each => each.last_time, cell: each => time(each.last_time) },
      { name: "ids", value: each => each.first_txid === null ? null : `${each.first_txid} to ${each.last_txid}` }, { name: "lost", number: true, value: each => each.lost, cell: each => each.lost ? chip(count(each.lost), "bad") : orNone(each.lost) }, { name: "trimmed to", value: each => each.trimmed_to }], "Nothing was written yet.")),
    found.kept?.copies_count ? panel(["Cold copies", h("small", {}, `${one(found.kept.copies_count, "copy", "copies")}, ${bytes(found.kept.copies_bytes)}`)], plain("Cold copies", found.kept.copies, [{ name: "segment", number: true, value: each => each.epoch }, { name: "first" }, { name: "last" }, { name: "records", number: true, cell: each => count(each.records) }, { name: "files", number: true }, { name: "stored", number: true, value: each => each.stored_bytes, cell: each => bytes(each.stored_bytes) },
      { name: "first record (UTC)", value: each => each.began, cell: each => time(each.began) }, { name: "last record (UTC)", value: each => each.ended, cell: each => time(each.ended) }, { name: "folder" }], "")) : null,
    panel("Subscriptions", plain("Subscriptions", found.subscriptions, subscriptionColumns(false), "Nobody has subscribed to it.")),
  ];
}

export function stream(path) {
  const body = h("div", { class: "stack" }, h("h1", {}, path)), said = h("p", { class: "note", role: "status" }, "reading the namespace");
  const stop = repeat(async signal => {
    const found = await get("stream", { stream: path }, signal);
    said.textContent = "";
    redraw(body, [found, Math.floor(Date.now() / 30000)], () => shown(found));
    return Math.max(found.took_us, 15000);
  }, 5000, error => { said.textContent = error.message; });
  return { element: h("div", { class: "stack" }, said, body), title: path, close: stop };
}
