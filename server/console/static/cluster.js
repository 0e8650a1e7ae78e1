// What is wrong and what to do; the cluster by region, rack and node; one node.
import { chip, facts, h, head, panel, redraw, tile } from "./dom.js";
import { bytes, count, one, orNone, rate, since, time } from "./format.js";
import { Table } from "./table.js";

export const health = (node, problems) => {
  const name = `N${node.node}`, own = problems.filter(each => each.where === name || each.where.startsWith(`${name}:`));
  return own.some(each => each.severity === "bad") ? "bad" : own.length ? "warn" : "ok";
};
const word = { ok: "healthy", warn: "look", bad: "trouble" };
const stored = node => node.shards.reduce((sum, each) => sum + each.stored_bytes, 0);
// Nobody knows what lies at nodes that do not answer
function storedOf(nodes) {
  const known = nodes.filter(each => each.answers), sum = bytes(known.reduce((all, each) => all + stored(each), 0));
  return known.length === nodes.length ? sum : known.length ? `at least ${sum}` : "–";
}

export function problemList(problems) {
  return h("ul", { class: "problems" }, problems.map(each => h("li", {},
    h("span", {}, chip(each.severity === "bad" ? "✕ act" : "! look", each.severity)), h("b", {}, each.where),
    h("span", {}, each.what, each.page && each.page !== "cluster" ? [" ", h("a", { href: `#/${each.page}`, "data-key": `${each.where} ${each.what}` }, "show")] : null),
    h("span", { class: "do" }, each.do))));
}

function card(node, problems, most) {
  const state = health(node, problems), size = stored(node), bar = h("i");
  bar.style.width = `${most ? Math.round(100 * size / most) : 0}%`;
  const roles = node.roles.map(each => each === "sequencer" ? "seq" : each === "storage" ? "store" : each).join(" · ");
  const what = node.answers ? node.readiness === "OK" ? word[state] : node.readiness : node.seen_as[0]?.[0] === "DEAD" ? "dead" : "silent";
  return h("li", {}, h("a", { class: `node ${state}`, href: `#/node/${node.node}`, "data-key": `N${node.node}` },
    h("span", { class: "line" }, h("b", {}, `N${node.node}`), chip(`${{ ok: "●", warn: "▲", bad: "✕" }[state]} ${what}`, state)),
    h("span", { class: "line" }, h("small", {}, roles), h("small", {}, node.answers ? rate(node.entries) : "no answer")),
    node.shards.length ? [h("span", { class: "bar", "aria-hidden": "true" }, bar), h("span", { class: "line" }, h("small", {}, one(node.shards.length, "shard")), h("small", {}, bytes(size)))] : null));
}

function map(state) {
  const regions = new Map(), most = Math.max(1, ...state.nodes.map(stored));
  for (const node of state.nodes) regions.set(node.place[0], [...(regions.get(node.place[0]) || []), node]);
  return [...regions].sort(([a], [b]) => a.localeCompare(b)).map(([region, nodes]) => {
    // labels that all nodes of the region share stand in its heading, once
    let shared = 1;
    while (shared < 4 && nodes.every(each => each.place[shared] === nodes[0].place[shared])) shared++;
    const racks = new Map(), bad = nodes.filter(each => !each.answers).length, title = nodes[0].place.slice(0, shared).filter(Boolean).join(" / ");
    for (const node of nodes) {
      const name = node.place.slice(shared).filter(Boolean).join(" / ");
      racks.set(name, [...(racks.get(name) || []), node]);
    }
    return h("section", { class: "region", "aria-label": title || "all nodes" },
      h("h2", {}, title || (regions.size > 1 ? "no region" : "Nodes"), h("small", {}, `${one(racks.size, "rack")}, ${one(nodes.length, "node")}${bad ? `, ${bad} silent` : ""}`)),
      h("div", { class: "racks" }, [...racks].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true })).map(([rack, inside]) => h("section", { class: "rack" },
        h("h3", {}, h("span", {}, rack || "no rack"), h("span", {}, storedOf(inside))),
        h("ul", {}, inside.map(each => card(each, state.problems, most)))))));
  });
}

function busiest(rows) {
  const most = Math.max(1, ...rows.map(each => each.bytes));
  return h("ul", { class: "busiest" }, rows.map(each => {
    const bar = h("i");
    bar.style.width = `${Math.round(100 * each.bytes / most)}%`;
    return h("li", {}, h("a", { href: `#/log/${each.log}`, "data-key": `log ${each.log}` }, each.path), h("span", { class: "bar", "aria-hidden": "true" }, bar), h("span", {}, rate(each.entries)), h("span", {}, `${bytes(each.bytes)}/s`), h("small", {}, `N${each.node}`));
  }));
}

function verdict(state) {
  const silent = state.nodes.filter(each => !each.answers).length, acts = state.problems.filter(each => each.severity === "bad").length;
  if (!state.problems.length) return h("div", { class: "banner ok" }, h("span", { "aria-hidden": "true" }, "✓"), h("p", {}, `All ${state.nodes.length} nodes answer, and nothing is wrong.`));
  const parts = [silent ? `${silent} of ${state.nodes.length} nodes ${silent === 1 ? "does" : "do"} not answer` : `all ${state.nodes.length} nodes answer`, `${one(state.problems.length, "problem")}${acts === state.problems.length ? " to act on" : acts ? `, ${acts} of them to act on` : ""}`];
  return h("div", { class: `banner ${acts ? "bad" : "warn"}` }, h("span", { "aria-hidden": "true" }, acts ? "✕" : "!"), h("p", {}, `${parts.join("; ").replace(/^a/, "A")}.`));
}

export function cluster() {
  const top = h("div", { class: "stack" }), whatToDo = h("div", { class: "stack" }), tiles = h("div", { class: "tiles" }), places = h("div", { class: "stack" }), rates = h("div", { class: "stack" });
  const element = h("div", { class: "stack" }, h("h1", { class: "sr" }, "Cluster"), top, tiles, whatToDo, places, rates);
  return {
    element, title: "Cluster",
    update(state) {
      redraw(top, state.nodes.map(each => each.answers).concat(state.problems.map(each => each.severity)), () => verdict(state));
      redraw(whatToDo, [state.problems, state.notes], () => [
        state.problems.length ? panel("What to do", problemList(state.problems)) : null,
        state.notes.length ? panel("Under way", h("ul", {}, state.notes.map(each => h("li", {}, each)))) : null]);
      const sum = name => state.nodes.reduce((all, each) => all + each[name], 0);
      redraw(tiles, [state.nodes.map(each => [each.answers, stored(each), each.entries, each.bytes]), state.logs], () => [
        tile("Nodes", `${state.nodes.filter(each => each.answers).length} / ${state.nodes.length}`, "answer"), tile("Entries appended", rate(sum("entries")), "over a minute"),
        tile("Payload", `${bytes(sum("bytes"))}/s`), tile("Logs", count(state.logs)), tile("Stored, all copies", storedOf(state.nodes))]);
      redraw(places, [state.nodes, state.problems], () => map(state));
      redraw(rates, state.busiest, shown => shown.length ? panel(["Busiest logs", h("small", {}, "over the last minute")], busiest(shown)) : null);
    },
  };
}

export function node(number) {
  const place = h("div", { class: "stack" });
  return {
    element: place, title: `N${number}`,
    update(state) {
      const found = state.nodes.find(each => String(each.node) === number);
      if (!found) return redraw(place, null, () => head(`N${number}`, "The cluster file has no such node."));
      const own = state.problems.filter(each => each.where === `N${number}` || each.where.startsWith(`N${number}:`));
      redraw(place, [found, own], () => {
        const status = health(found, state.problems);
        return [
          h("div", { class: "head" }, h("div", {}, h("h1", {}, `N${number} `, chip(found.answers ? word[status] : "silent", status)), h("p", {}, found.place.filter(Boolean).join(" / ") || "no location")), h("a", { href: `#/safety?who=N${number}`, "data-key": "safety" }, "May it go away?")),
          own.length ? panel("What to do", problemList(own)) : null,
          h("div", { class: "columns" },
            panel("Process", facts([["address", found.address], ["admin port", String(found.admin_port ?? "none")], ["roles", found.roles.join(", ")], ["readiness", orNone(found.readiness)],
              ["seen by others as", found.seen_as.map(([name, times]) => `${name} by ${times}`).join(", ") || "–"], ["serves since", found.start_time ? `${time(found.start_time)} UTC (${since(found.start_time)})` : "–"],
              ["version", found.version === null ? "–" : `${orNone(found.version)} on Python ${orNone(found.python)}`], ["process", orNone(found.pid)]])),
            panel("Load", facts([...found.answers ? [["entries appended", `${rate(found.entries)} over a minute`], ["payload", `${bytes(found.bytes)}/s`], ["logs with appends", count(found.busy_logs)]] : [["appends", "not known: it does not answer"]], ["stored", storedOf([found])], ["storage state", found.storage_state]])),
            panel("Commands", h("pre", {}, [[`ldctl check-impact N${number}`, "what would be lost without it"], ["ldctl status", "all nodes"], ...found.shards.map(each => [`ldctl drain N${number}:S${each.shard} --wait`, "empty it before it leaves"])].map(([command, what]) => `# ${what}\n${command}`).join("\n")))),
          found.shards.length ? panel("Shards", shardTable(found.shards.map(each => ({ ...each, node: found.node })), false).element) : null];
      });
    },
  };
}

function shardTable(rows, tall) {
  const table = new Table({
    label: "Shards", tall, key: row => `${row.node}:${row.shard}`, open: row => { location.hash = `#/node/${row.node}`; },
    columns: [
      { name: "shard", value: row => `N${row.node}:S${row.shard}` },
      { name: "status", cell: row => chip(row.status, row.status === "OK" ? "ok" : "bad") },
      { name: "takes records", value: row => row.no_space ? "no space" : row.accepting_writes ? "yes" : "no", cell: row => row.no_space ? chip("no space", "bad") : row.accepting_writes ? "yes" : chip("no", "warn") },
      { name: "generation", number: true }, { name: "stored", number: true, value: row => row.stored_bytes, cell: row => bytes(row.stored_bytes) },
      { name: "logs", number: true }, { name: "partitions", number: true }, { name: "readers", number: true, value: row => row.read_streams },
      { name: "damaged ranges", number: true, value: row => row.damaged_ranges, cell: row => row.damaged_ranges ? chip(row.damaged_ranges, "warn") : "0" },
      { name: "dirty logs", number: true, value: row => row.dirty_logs }, { name: "verified since", value: row => row.verified_since, cell: row => row.verified_since ? time(row.verified_since) : "not yet" },
      { name: "last stop", value: row => row.previous_stop }],
  });
  table.set(rows);
  return table;
}

export function shards() {
  const place = h("div", { class: "stack" }), rebuilding = h("div", { class: "stack" }), missing = h("p", { class: "note", role: "status" });
  const table = shardTable([], true);
  const element = h("div", { class: "stack" }, head("Shards", "What each disk holds, and which are lost, drained or being rebuilt."), place, rebuilding, panel("Shards", missing, table.element));
  return {
    element, title: "Shards", table,
    update(state) {
      const silent = state.nodes.filter(each => !each.answers && each.roles.includes("storage")).map(each => `N${each.node}`);
      const text = silent.length ? `${silent.join(", ")} did not answer: what is known there is missing.` : "";
      if (missing.textContent !== text) missing.textContent = text;
      const problems = state.problems.filter(each => each.page === "shards");
      redraw(place, problems, () => problems.length ? panel("What to do", problemList(problems)) : null);
      redraw(rebuilding, state.rebuildings, shown => panel("Rebuildings and drains", shown.length ? rebuildingTable(shown).element : h("p", { class: "empty" }, "No shard is lost or drained.")));
      const rows = state.nodes.flatMap(node => node.shards.map(each => ({ ...each, node: node.node })));
      table.update(rows);
    },
    close: () => table.close(),
  };
}

function rebuildingTable(rows) {
  const table = new Table({
    label: "Rebuildings and drains", tall: false, key: row => row.rebuilding_shard,
    columns: [{ name: "shard", value: row => row.rebuilding_shard }, { name: "what", value: row => row.mode === "RELOCATE" ? "drained" : "lost" },
      { name: "status", cell: row => chip(row.status, row.status === "rebuilt" ? "ok" : row.status === "uncertain" ? "bad" : "warn") },
      { name: "donors left", value: row => row.donors_left }, { name: "rate", number: true, cell: row => row.rate ? `${bytes(row.rate)}/s` : "–" },
      { name: "silence counts as", value: row => row.authoritative_status }, { name: "may come back", value: row => row.recoverable ? "yes" : "no" }, { name: "generation", number: true }, { name: "since" }, { name: "asked by", value: row => row.source }],
  });
  table.set(rows);
  return table;
}
