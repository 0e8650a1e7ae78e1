// What waits at this moment, and for what.
import { chip, h, head, redraw, panel } from "./dom.js";
import { count, duration, one } from "./format.js";
import { problemList } from "./cluster.js";
import { Table } from "./table.js";

export function waits() {
  let state = null;
  const all = h("input", { type: "checkbox", id: "quiet", onchange: () => show() }), place = h("div", { class: "stack" }), left = h("p", { class: "note" });
  const search = h("input", { type: "search", id: "filter", placeholder: "log, node, cause", oninput: () => table.filter(search.value) });
  const table = new Table({
    label: "Waits", key: row => `${row.node}:${row.shard} ${row.kind} ${row.log} ${row.cause} ${row.lsn}`, empty: "Nothing waits for anything unusual.",
    open: row => { location.hash = `#/log/${row.log}`; },
    columns: [{ name: "what", value: row => row.kind, cell: row => chip(row.kind, row.quiet ? "" : "warn") }, { name: "log", value: row => row.path }, { name: "waits for", value: row => row.cause },
      { name: "for", number: true, value: row => row.seconds, cell: row => row.seconds === null ? "–" : duration(row.seconds) }, { name: "how many", number: true, value: row => row.waiting, cell: row => count(row.waiting) },
      { name: "shards", value: row => row.shards }, { name: "at", value: row => row.shard === null ? `N${row.node}` : `N${row.node}:S${row.shard}` }, { name: "LSN", value: row => row.lsn },
      { name: "that is", value: row => row.detail || row.means }],
  });
  function show() {
    if (!state) return;
    table.set(state.waits.filter(each => all.checked || !each.quiet));
    left.textContent = state.waits_left_out ? `${one(state.waits_left_out, "more row")} are not shown: ask the SQL page for table waits.` : "";
  }
  const element = h("div", { class: "stack" },
    head("Waits", "Whatever does not move says what it waits for. Rows that are part of normal work are hidden.", h("div", { class: "tools-row" }, h("label", {}, "Filter", search), h("label", { class: "check" }, all, "with normal ones"))),
    place, table.element, left);
  return {
    element, title: "Waits", table,
    update(next) {
      const before = JSON.stringify(state?.waits);
      state = next;
      const problems = state.problems.filter(each => each.page === "waits");
      redraw(place, problems, () => problems.length ? panel("What to do", problemList(problems)) : null);
      if (JSON.stringify(state.waits) !== before) show();
    },
    close: () => table.close(),
  };
}
