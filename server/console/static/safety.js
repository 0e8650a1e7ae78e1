// What would be lost if nodes went away: asked before anybody takes them away.
import { get } from "./api.js";
import { chip, h, head, panel, redraw } from "./dom.js";
import { Table } from "./table.js";

const columns = [{ name: "loses", cell: row => chip(row.loses, "bad") }, { name: "logs", number: true }, { name: "which" }, { name: "missing then", value: row => row["missing then"] }, { name: "means", wrap: true }];
const list = (label, rows) => {
  const table = new Table({ label, tall: false, columns });
  table.set(rows);
  return table.element;
};

function result(found) {
  return [h("div", { class: `banner ${found.safe ? "ok" : "bad"}` }, h("span", { "aria-hidden": "true" }, found.safe ? "✓" : "✕"), h("p", {}, found.verdict.replace(/^./, letter => letter.toUpperCase()))),
    found.losses.length ? panel("What would be lost", list("What would be lost", found.losses)) : null,
    found.advice.length ? panel("What to do", h("ul", {}, found.advice.map(each => h("li", {}, each)))) : null,
    found.before.length ? panel("Lost already, before anything goes", list("Lost already", found.before)) : null];
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
      said.textContent = "";
      place.replaceChildren(...result(found).filter(Boolean));
    } catch (error) {
      if (error.name !== "AbortError" && mine === number) { said.textContent = error.message; place.replaceChildren(); }
    }
  }
  mode.addEventListener("change", check);
  check();
  const element = h("div", { class: "stack" }, head("Safety check", "Which logs lose records, reads, appends, recovery or rebuilding while nodes are away. It changes nothing; ldctl check-impact says the same.", h("label", {}, "They go", mode)), picks, said, place);
  return {
    element, title: "Safety check",
    update(state) {
      redraw(picks, state.nodes.map(each => [each.node, each.answers, each.place]), nodes => [h("legend", {}, "Nodes that go"), nodes.map(([node, answers, where]) => h("label", { class: "check pick" },
        h("input", { type: "checkbox", "data-key": `N${node}`, checked: chosen.has(`N${node}`), onchange: event => { event.target.checked ? chosen.add(`N${node}`) : chosen.delete(`N${node}`); check(); } }),
        h("span", {}, h("b", {}, `N${node}`), " ", h("small", {}, where.filter(Boolean).at(-1) || "", answers ? "" : " · silent"))))]);
    },
    close: () => abort.abort(),
  };
}
