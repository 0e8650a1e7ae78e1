// SQL over the live state of the cluster.
import { post } from "./api.js";
import { h, head } from "./dom.js";
import { count, one, time } from "./format.js";
import { Table } from "./table.js";

const EXAMPLES = [["Logs by rate", "SELECT log_id, path, sequencer_node_id, entries_1min, bytes_1min\nFROM logs ORDER BY entries_1min DESC LIMIT 20"],
  ["Who waits for what", "SELECT kind, cause, count(*) AS rows, max(waited_seconds) AS longest\nFROM waits GROUP BY kind, cause ORDER BY longest DESC"],
  ["Slow shards", "SELECT node_id, to_node_id, to_shard, samples, p50_us, p99_us\nFROM append_latency WHERE operation = 'store' ORDER BY p99_us DESC"],
  ["Settings that were changed", "SELECT node_id, section, name, current_value, default_value\nFROM settings WHERE from_config OR from_operator"]];
const KEY = "logdevice-sql";

export function sql() {
  const text = h("textarea", { id: "filter", spellcheck: "false", "aria-label": "Statement", value: sessionStorage.getItem(KEY) || EXAMPLES[0][1], onkeydown: event => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); run(); }
  } });
  const said = h("p", { class: "note", role: "status" }), place = h("div", { class: "stack" }), tables = h("div"), button = h("button", { class: "main", type: "button", onclick: () => run() }, "Run");
  let table = null;
  const abort = new AbortController();
  async function run() {
    sessionStorage.setItem(KEY, text.value);
    said.textContent = "asking the nodes";
    button.disabled = true;
    try {
      const found = await post("sql", { sql: text.value }, abort.signal);
      table?.close();
      table = new Table({ label: "Result", key: row => row.key, columns: found.columns.map((name, place) => ({
        name, number: ["integer", "real", "flag", "log id"].includes(found.kinds[place]) || found.rows.some(row => typeof row[place] === "number"),
        value: row => row.cells[place], cell: row => found.kinds[place] === "time" ? time(row.cells[place]) : row.cells[place] === null ? "NULL" : typeof row.cells[place] === "number" && !Number.isInteger(row.cells[place]) ? count(row.cells[place]) : String(row.cells[place]) })) });
      table.set(found.rows.map((cells, key) => ({ cells, key })));
      said.textContent = [`${found.more ? "the first " : ""}${one(found.rows.length, "row")} in ${found.seconds} s; ${one(found.requests, "request")} to nodes, ${one(found.rows_fetched, "row")} fetched.`, ...found.failures].join(" ");
      place.replaceChildren(table.element);
    } catch (error) {
      if (error.name !== "AbortError") said.textContent = error.message;
    }
    button.disabled = false;
  }
  post("sql", { sql: "" }, abort.signal).then(found => tables.replaceChildren(...found.tables.map(each => h("details", {}, h("summary", {}, each.name),
    h("p", {}, h("small", {}, each.rows, each.required.length ? ` Needs ${each.required.join(" and ")}.` : "")),
    h("ul", {}, each.columns.map(([name, kind]) => h("li", {}, h("code", {}, name), " ", h("small", {}, kind)))),
    each.required.length ? null : h("button", { type: "button", onclick: () => { text.value = `SELECT * FROM ${each.name} LIMIT 100`; run(); } }, "Show rows"))))).catch(error => { if (error.name !== "AbortError") tables.replaceChildren(h("p", {}, error.message)); });
  const element = h("div", { class: "stack" }, head("SQL", "One SELECT over what the nodes say at this moment. It can change nothing; one that takes longer than 4 s is ended."),
    h("div", { class: "sql" }, h("div", { class: "stack" }, text, h("div", { class: "tools-row" }, button, h("small", {}, h("kbd", {}, "Ctrl"), " + ", h("kbd", {}, "Enter")), EXAMPLES.map(([name, statement]) => h("button", { type: "button", onclick: () => { text.value = statement; run(); } }, name))), said, place),
      h("aside", { class: "panel", "aria-label": "Tables", tabindex: "0" }, h("h2", {}, "Tables"), tables)));
  return { element, title: "SQL", close() { abort.abort(); table?.close(); } };
}
