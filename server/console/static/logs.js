// All logs, and one log.
import { get } from "./api.js";
import { chip, facts, h, head, panel, redraw, tile } from "./dom.js";
import { bytes, clock, count, duration, one, orNone, rate, time } from "./format.js";
import { Table, filterField } from "./table.js";

const COPIES = { OK: "ok", SHORT: "warn", GONE: "bad", UNKNOWN: "" };
const WORD = { OK: "all copies", SHORT: "short of copies", GONE: "records may be gone", UNKNOWN: "not known" };

// Asks again and again, but so seldom that it costs half a percent of a processor; never while the page is hidden.
export function repeat(ask, shortest, onError) {
  let timer = null, closed = false, answered = null;
  const abort = new AbortController();
  async function run() {
    let wait = shortest;
    if (!document.hidden) {
      const began = performance.now();
      try {
        wait = Math.max(wait, (await ask(abort.signal) || 0) / 1000 * 200);
        answered = Date.now();
      } catch (error) {
        if (error.name === "AbortError") return;
        onError(answered ? new Error(`${error.message}. What is shown was true at ${clock(answered)} UTC.`) : error);
        if (error.code === 401) return; // the dialog asks for a token once; a token opens the page anew
        wait = Math.max(wait, Math.min(15000, 5 * (performance.now() - began)));
      }
    }
    if (!closed) timer = setTimeout(run, wait);
  }
  run();
  return () => { closed = true; clearTimeout(timer); abort.abort(); };
}

export function logs(given) {
  const said = h("p", { class: "note", role: "status" }, "asking all nodes"), seen = h("p", { class: "note" });
  const search = filterField("logs", "path, id, node, copies", given, text => table.filter(text));
  const table = new Table({
    label: "Logs", key: row => row.log_id, open: row => { location.hash = `#/log/${row.log_id}`; }, empty: "No log is configured.",
    columns: [{ name: "log", number: true, value: row => row.log_id }, { name: "path", cell: row => h("a", { href: `#/log/${row.log_id}` }, row.path) },
      { name: "copies", value: row => WORD[row.copies] || row.copies, cell: row => chip(WORD[row.copies] || row.copies, COPIES[row.copies]) },
      { name: "entries", label: "entries/s", number: true, value: row => row.entries_1min, cell: row => row.entries_1min === null ? "–" : count(row.entries_1min) }, { name: "payload", label: "payload/s", number: true, value: row => row.bytes_1min, cell: row => bytes(row.bytes_1min) },
      { name: "sequencer", value: row => row.sequencer_node_id === null ? null : `N${row.sequencer_node_id}` }, { name: "epoch", number: true }, { name: "head" }, { name: "tail" },
      { name: "stored", number: true, value: row => row.stored_bytes, cell: row => bytes(row.stored_bytes) }, { name: "replicate" }, { name: "newest record (UTC)", value: row => row.newest_time, cell: row => time(row.newest_time) }],
  });
  table.oncount = (shown, all) => { seen.textContent = shown === all ? one(all, "log") : `${count(shown)} of ${one(all, "log")}`; };
  table.filter(search.value);
  const stop = repeat(async signal => {
    const answer = await get("logs", {}, signal);
    table.update(answer.logs);
    const silent = Object.keys(answer.silent);
    said.textContent = [silent.length ? `${silent.join(", ")} did not answer: what is known there is missing.` : "", answer.left_out ? `${count(answer.left_out)} more logs are not shown; SQL finds them.` : ""].filter(Boolean).join(" ");
    return answer.took_us;
  }, 5000, error => { said.textContent = error.message; });
  return { element: h("div", { class: "stack" }, head("Logs", "Head and tail are what can be read now; rates are over the last minute.", h("label", {}, "Filter", search)), said, table.element, seen), title: "Logs", table, close() { stop(); table.close(); } };
}

const plain = (label, rows, columns) => {
  const table = new Table({ label, tall: false, columns });
  table.set(rows);
  return table.element;
};

const attribute = (name, value) => value === "None" || value === "" ? "–" : typeof value === "boolean" ? (value ? "yes" : "no") : typeof value !== "number" ? value
  : name.endsWith("_us") || name === "roll_every" ? (value ? duration(value / 1e6) : "0") : name.includes("bytes") ? bytes(value) : count(value);
const lsn = value => value === "e0n0" ? null : value;

function shown(found) {
  const summary = found.summary, name = encodeURIComponent(found.log);
  const current = found.sequencers.filter(each => each.state === "ACTIVE").sort((a, b) => b.epoch - a.epoch)[0];
  const loud = found.waits.filter(each => !["TAIL", "STORES", "BATCH", "EARLIER_ENTRY", "READER_WINDOW", "READER_CREDIT", "TURN"].includes(each.cause));
  return [
    h("div", { class: "head" }, h("div", {}, h("h1", {}, `${found.path} `, chip(WORD[summary.copies], COPIES[summary.copies])), h("p", {}, `log ${found.log}, replicate ${orNone(found.attributes.replication)}, ${orNone(found.attributes.durability)}`)),
      h("div", { class: "tools-row" }, h("a", { href: `#/records/${name}`, "data-key": "records" }, "Browse records"))),
    Object.keys(found.silent).length ? h("div", { class: "banner warn" }, `${Object.keys(found.silent).join(", ")} did not answer: what is known there is missing here.`) : null,
    h("div", { class: "tiles" }, tile("Sequencer", summary.sequencer_node_id === null ? "none" : `N${summary.sequencer_node_id}`, current ? `since epoch ${current.epoch}` : "starts with the next append"), tile("Head", orNone(summary.head)), tile("Tail", orNone(summary.tail)),
      tile("Appended", rate(summary.entries_1min), summary.bytes_1min === null ? "" : `${bytes(summary.bytes_1min)}/s`), tile("Stored, all copies", bytes(summary.stored_bytes)), tile("In flight", current ? count(current.in_flight) : "–", current ? `of ${count(current.max_in_flight)}` : "")),
    loud.length ? panel("Waits", plain("Waits of the log", loud, [{ name: "what", value: row => row.kind }, { name: "for", value: row => row.cause }, { name: "since", value: row => row.waited_seconds, cell: row => duration(row.waited_seconds) }, { name: "shards" }, { name: "detail" }])) : null,
    h("div", { class: "columns" },
      panel("What it survives", found.survives.length ? h("ul", { class: "survives" }, found.survives.map(each => h("li", { class: /: (no|as long as nothing else fails)$/.test(each) ? "no" : "" }, each))) : h("p", { class: "note" }, "Nothing was written yet."),
        found.short.length ? h("ul", {}, found.short.map(each => h("li", {}, each))) : null),
      panel("Copysets", h("p", { class: "note" }, `of the entries ${found.entries_looked_at.join(" to ")}`), found.copysets.length ? plain("Copysets", found.copysets, [{ name: "shards", value: row => row.copyset }, { name: "entries", number: true, cell: row => count(row.entries) }]) : h("p", { class: "empty" }, "There are no entries."))),
    panel("Epochs and nodesets", plain("Epochs and nodesets", found.history.filter(each => each.since !== null).reverse(), [{ name: "epochs", value: row => row.since === row.epoch ? String(row.since) : `${row.since} to ${row.epoch}` }, { name: "replication" }, { name: "shards", label: "size", number: true, value: row => row.storage_set_size }, { name: "nodeset", value: row => row.storage_set }, { name: "failure domains", value: row => row.failure_domains }])),
    panel("At its shards", plain("The log at its shards", found.states.sort((a, b) => a.node_id - b.node_id), [{ name: "shard", value: row => `N${row.node_id}:S${row.shard}` }, { name: "released", value: row => lsn(row.last_released) }, { name: "highest", value: row => lsn(row.highest_lsn) }, { name: "trimmed", value: row => lsn(row.trim_point) }, { name: "clean through epoch", number: true, value: row => row.lce }, { name: "seal", number: true }, { name: "readers", number: true, value: row => row.read_streams }, { name: "repair" }])),
    panel("Attributes", h("div", { class: "wide" }, facts(Object.entries(found.attributes).filter(([name]) => name !== "path").map(([name, value]) => [name.replace(/_us$/, "").replaceAll("_", " "), attribute(name, value)])))),
  ];
}

export function log(name) {
  const place = h("div", { class: "stack" }), said = h("p", { class: "note", role: "status" }, "asking all nodes");
  const stop = repeat(async signal => {
    const found = await get("log", { log: name }, signal);
    said.textContent = "";
    redraw(place, found, shown);
    return 15000;
  }, 5000, error => { said.textContent = error.message; });
  return { element: h("div", { class: "stack" }, said, place), title: `Log ${name}`, close: stop };
}
