// Index logs: what is dealt, what waits for it, files of an index.
import { get } from "./api.js";
import { chip, facts, h, head, panel, redraw } from "./dom.js";
import { bytes, count, one, since, time } from "./format.js";
import { repeat } from "./logs.js";
import { Table, filterField } from "./table.js";

const LATE = 600;
const hrefOf = (log, code) => `#/index/${`${log}/${code}`.split("/").map(encodeURIComponent).join("/")}`;
const age = micros => Date.now() / 1000 - micros / 1e6;
const plain = (label, rows, columns, empty) => {
  const table = new Table({ label, tall: rows.length > 20, columns, empty });
  table.set(rows);
  return table.element;
};

function one_log(log, found) {
  const mine = rows => rows.filter(each => each.index_log === log.index_log), raw = mine(found.raw_logs), jobs = mine(found.jobs), waiting = raw.filter(each => !each.is_dealt);
  const oldest = Math.min(...waiting.map(each => each.waiting_since ?? Infinity)), late = oldest !== Infinity && age(oldest) > LATE;
  return panel([log.index_log, " ", waiting.length ? chip(`waits to be dealt${oldest === Infinity ? "" : `: ${since(oldest)}`}`, late ? "warn" : "accent") : chip("all is dealt", "ok")],
    late ? h("p", {}, "Nobody deals it, or dealing does not keep up: ldindex deal --every 5s, or ldindexd with --deal-every.") : null,
    h("div", { class: "wide" }, facts([["store", log.store], ["indexes", count(log.indexes)], ["files and slices", count(log.parts)], ["modifications", count(log.records)], ["size", bytes(log.bytes)], ["kept for readers", count(log.retired)], ["changes of files", count(log.state)], ["dropped indexes", count(log.drops)], ["unreadable records", count(log.unreadable)]])),
    h("h3", {}, "Raw logs"), plain(`Raw logs of ${log.index_log}`, raw, [{ name: "log", number: true, value: each => each.log_id, cell: each => h("a", { href: `#/log/${each.log_id}`, "data-key": `log ${each.log_id}` }, each.log_id) }, { name: "generation", number: true },
      { name: "waits", number: true, value: each => each.is_dealt ? 0 : each.waiting ?? Number.MAX_SAFE_INTEGER, cell: each => each.is_dealt ? chip("nothing", "ok") : chip(each.waiting === null ? "several epochs" : one(each.waiting, "entry", "entries"), "accent") },
      { name: "oldest that waits", value: each => each.waiting_since, cell: each => each.waiting_since ? `${since(each.waiting_since)} ago` : "–" }, { name: "dealt up to", value: each => each.dealt_lsn }, { name: "tail", value: each => each.tail_lsn }, { name: "ended at", value: each => each.end_lsn }], "It has no raw logs."),
    jobs.length ? [h("h3", {}, "Jobs that have not ended"), plain(`Jobs of ${log.index_log}`, jobs, [{ name: "job", number: true, value: each => each.token }, { name: "began", value: each => each.began, cell: each => `${since(each.began)} ago` }, { name: "files so far", number: true, value: each => each.files }])] : null);
}

export function indexlogs(given) {
  const said = h("p", { class: "note", role: "status" }, "reading the manifests"), logs = h("div", { class: "stack" }), seen = h("p", { class: "note" });
  const search = filterField("indexlogs", "index", given, text => table.filter(text));
  const table = new Table({
    label: "Indexes", key: row => `${row.index_log}/${row.index_code}`, empty: "No index has files yet.", open: row => { location.hash = hrefOf(row.index_log, row.index_code); },
    columns: [{ name: "index", value: row => row.index_code, cell: row => h("a", { href: hrefOf(row.index_log, row.index_code) }, row.index_code) }, { name: "index log", value: row => row.index_log }, { name: "modifications", number: true, value: row => row.records, cell: row => count(row.records) },
      { name: "size", number: true, value: row => row.bytes, cell: row => bytes(row.bytes) }, { name: "slices", number: true, value: row => row.unsorted }, { name: "sorted files", number: true, value: row => row.sorted }, { name: "optimized files", number: true, value: row => row.optimized }],
  });
  table.oncount = (shown, all) => { seen.textContent = shown === all ? one(all, "index", "indexes") : `${count(shown)} of ${one(all, "index", "indexes")}`; };
  table.filter(search.value);
  const stop = repeat(async signal => {
    const found = await get("index-logs", {}, signal);
    const { took_us, ...about } = found;
    redraw(logs, [about.index_logs, about.raw_logs, about.jobs, Math.floor(Date.now() / 30000)], () => found.index_logs.map(each => one_log(each, found)));
    table.update(found.indexes);
    said.textContent = found.index_logs.length ? "" : "There is no index log. ldindex init --store URL makes one; it takes a log tree.";
    return took_us;
  }, 5000, error => { said.textContent = error.message; });
  const element = h("div", { class: "stack" }, head("Index logs", "Modifications of documents: what is dealt into files, and what still waits in raw logs.", h("label", {}, "Filter", search)), said, logs, panel("Indexes", table.element, seen));
  return { element, title: "Index logs", table, close() { stop(); table.close(); } };
}

export function index(path) {
  const [code, log] = [path.split("/").at(-1), path.split("/").slice(0, -1).join("/")], said = h("p", { class: "note", role: "status" }, "reading the manifest");
  const table = new Table({
    label: "Files", key: row => `${row.path} ${row.batch}`, empty: "",
    columns: [{ name: "file", value: row => row.name }, { name: "kind", cell: row => chip(row.retired === null ? row.kind : `${row.kind}, replaced`, row.retired === null ? "" : "warn") }, { name: "modifications", number: true, value: row => row.records, cell: row => count(row.records) }, { name: "size", number: true, value: row => row.bytes, cell: row => bytes(row.bytes) },
      { name: "modified (UTC)", value: row => row.timestamp, cell: row => time(row.timestamp) }, { name: "since state", number: true, value: row => row.made }, { name: "of deals", value: row => `${row.since} to ${row.until}` }, { name: "in the store", value: row => row.path }, { name: "replaced (UTC)", value: row => row.retired_at, cell: row => time(row.retired_at) }],
  });
  const stop = repeat(async signal => {
    const found = await get("index-files", { index: path }, signal);
    table.update(found.files);
    said.textContent = found.left_out ? `${count(found.left_out)} more are not shown; SQL finds them.` : "";
    return Math.max(found.took_us, 15000);
  }, 5000, error => { said.textContent = error.message; });
  const element = h("div", { class: "stack" }, head(code, h("a", { href: "#/indexlogs" }, log)), said, panel("Files and slices, oldest modifications first", table.element));
  return { element, title: `Index ${code}`, table, close() { stop(); table.close(); } };
}
