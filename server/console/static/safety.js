// What would be lost if nodes went away: asked before anybody takes them away.
import { get } from "./api.js";
import { chip, h, head, panel, redraw } from "./dom.js";
import { clock } from "./format.js";
import { whoOf } from "./maintenances.js";
import { Table } from "./table.js";

const columns = [{ name: "loses", cell: row => chip(row.loses, "bad") }, { name: "logs", number: true }, { name: "which" }, { name: "missing then", value: row => row["missing then"] }, { name: "means", wrap: true }];
const list = (label, rows) => {
  const table = new Table({ label, tall: false, columns });
  table.set(rows);
  return table.element;
};

function result(found, who) {
  return [h("div", { class: `banner ${found.safe ? "ok" : "bad"}` }, h("span", { "aria-hidden": "true" }, found.safe ? "✓" : "✕"), h("p", {}, found.verdict.replace(/^./, letter => letter.toUpperCase()))),
    found.losses.length ? panel("What would be lost", list("What would be lost", found.losses)) : null,
    found.advice.length ? panel("What to do", h("ul", {}, found.advice.map(each => h("li", {}, each)))) : null,
    found.before.length ? panel("Lost already, before anything goes", list("Lost already", found.before)) : null,
    panel("What comes next", h("pre", { tabindex: "0", "aria-label": "Commands" }, next(found, who)))];
}

function next(found, chosen) {
  const who = chosen.join(" ");
  if (found.safe) return [`# have it granted beside what others take away, then stop ${chosen.length > 1 ? "them" : "it"}`, `ldctl maintenance apply ${who} --may-disappear --for 2h --reason '...'`, "# or for good: empty first", `ldctl maintenance apply ${who} --drain --reason '...'`].join("\n");
  return [`# waits until it is safe, and says what for`, `ldctl maintenance apply ${who} --may-disappear --for 2h --reason '...'`, "# the same check, with the copies that there really are", `ldctl check-impact --copysets ${who}`].join("\n");
}

export function safety(given) {
  const chosen = new Set((given.get("who") || "").split(",").filter(Boolean));
  const picks = h("fieldset", { class: "picks" }), place = h("div", { class: "stack" }), said = h("p", { class: "note", role: "status" });
  const mode = h("select", { id: "mode" }, h("option", { value: "" }, "all at once"), h("option", { value: "1", selected: given.get("one_by_one") === "1" }, "one after the other"));
  const abort = new AbortController();
  let number = 0;
  async function check() {
    const mine = ++number, who = [...chosen].join(",");
    history.replaceState(null, "", who ? `#/safety?who=${who}${mode.value ? "&one_by_one=1" : ""}` : "#/safety");
    if (!who) { said.textContent = "Choose the nodes that are to go."; return place.replaceChildren(); }
    said.textContent = "looking at the nodesets of all logs";
    try {
      const found = await get("check", { who, one_by_one: mode.value }, abort.signal);
      if (mine !== number) return;
      said.textContent = `True at ${clock(Date.now())} UTC. It is looked at again when a node or a shard changes.`;
      place.replaceChildren(...result(found, [...chosen]).filter(Boolean));
    } catch (error) {
      if (error.name === "AbortError" || mine !== number) return;
      said.textContent = error.message;
      place.replaceChildren();
      // the node has too much to do: asked again while nothing else is chosen
      if ([429, 503, 504].includes(error.code)) setTimeout(() => { if (mine === number && !abort.signal.aborted) check(); }, 5000);
    }
  }
  mode.addEventListener("change", check);
  check();
  // what others may take away counts as well: the check itself takes what is away for away, and nothing else
  const others = h("div");
  get("maintenances", { reasons: "0" }, abort.signal).then(found => {
    const may = found.live.filter(each => ["granted", "draining", "drained"].includes(each.phase));
    if (may.length) others.replaceChildren(h("div", { class: "banner warn" }, h("span", { "aria-hidden": "true" }, "!"), h("p", {}, "Others may take away ", may.map((each, place) => [place ? ", " : "", h("b", {}, each.who), ` (maintenance ${each.number} of ${each.by})`]), ". ", h("button", { type: "button", onclick: () => {
      for (const name of may.flatMap(each => whoOf(each).split(","))) chosen.add(name);
      draw();
      check();
    } }, "Count them as going"))));
  }).catch(() => { /* no log of maintenances that can be read: the check stands for itself */ });
  const element = h("div", { class: "stack" }, head("Safety check", "Which logs lose records, reads, appends, recovery or rebuilding while nodes are away. It changes nothing; ldctl check-impact says the same.", h("label", {}, "They go", mode)), others, picks, said, place);
  const pick = (name, ...about) => h("label", { class: "check pick" },
    h("input", { type: "checkbox", "data-key": name, checked: chosen.has(name), onchange: event => { event.target.checked ? chosen.add(name) : chosen.delete(name); check(); } }), h("span", {}, h("b", {}, name), " ", h("small", {}, ...about)));
  let nodes = [], known = null;
  function draw() {
    const shards = [...chosen].filter(each => each.includes(":"));
    redraw(picks, [nodes, shards, [...chosen]], () => [h("legend", {}, "Nodes that go"), nodes.map(([node, answers, where]) => pick(`N${node}`, where.filter(Boolean).at(-1) || "", answers ? "" : " · silent")), shards.map(each => pick(each))]);
  }
  return {
    element, title: "Safety check",
    update(state) {
      nodes = state.nodes.map(each => [each.node, each.answers, each.place]);
      draw();
      // a verdict holds for who was away and what was lost when it was given
      const before = known;
      known = JSON.stringify([state.version, state.nodes.map(each => [each.node, each.answers, each.storage_state, each.shards.map(shard => [shard.shard, shard.status, shard.generation, shard.accepting_writes])]), state.rebuildings.map(each => [each.rebuilding_shard, each.status])]);
      if (before !== null && before !== known && chosen.size) check();
    },
    close: () => abort.abort(),
  };
}
