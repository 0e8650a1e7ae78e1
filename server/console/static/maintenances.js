// Maintenances: what waits to go away and why, what may go, what is over.
import { get } from "./api.js";
import { chip, h, head, panel, redraw } from "./dom.js";
import { one, orNone, since, time } from "./format.js";
import { repeat } from "./logs.js";
import { Table } from "./table.js";

const KIND = { waiting: "warn", granted: "ok", draining: "accent", drained: "ok", ending: "accent", over: "" };
const MEANS = { waiting: "waits until it is safe", granted: "may disappear", draining: "is being emptied", drained: "is empty and may disappear", ending: "is to be used again" };
const phase = each => each.phase.split(":")[0];
export const whoOf = each => each.who.split(", ").join(",");

function entry(each, rebuildings) {
  const own = rebuildings.filter(row => each.shards.includes(row.rebuilding_shard) && row.status !== "rebuilt");
  const until = each.expires ? ` until ${time(each.expires).slice(0, 16)} UTC` : "", wanted = `maintenance ${each.number}: ${each.kind}${each.for ? ` for ${each.for}` : ""}`;
  return h("li", {}, h("span", {}, chip(phase(each), KIND[phase(each)])), h("b", {}, each.who),
    h("span", {}, `It ${MEANS[phase(each)] || phase(each)}${until}, since ${since(each.since)} `, h("small", {}, `(${wanted}, asked for by `, h("b", {}, each.by), each.reason ? `: ${each.reason}` : "", each.restart ? `, part of rolling restart ${each.restart}` : "", ")"), " ", h("a", { href: `#/safety?who=${whoOf(each)}`, "data-key": `check ${each.number}` }, "Check it")),
    each.reasons.length ? h("div", { class: "why" }, h("small", {}, "It waits because"), h("ul", {}, each.reasons.map(reason => h("li", {}, reason)))) : null,
    own.length ? h("div", { class: "why" }, h("ul", {}, own.map(row => h("li", {}, `${row.rebuilding_shard}: ${row.status}, donors left: ${orNone(row.donors_left)}`)))) : null);
}

export function maintenances() {
  let rebuildings = [], found = null;
  const said = h("p", { class: "note", role: "status" }, "reading the log of maintenances"), place = h("div", { class: "stack" });
  const over = new Table({ label: "Maintenances that are over", key: row => row.number, tall: true, empty: "None was over lately.", columns: [{ name: "number", number: true }, { name: "who" }, { name: "kind" }, { name: "how it ended", value: row => row.phase.replace("over: ", "") }, { name: "since (UTC)", value: row => row.since, cell: row => time(row.since) }, { name: "by" }, { name: "reason" }] });
  function show() {
    if (!found) return;
    redraw(place, [found.live, found.restart, found.enabled, found.seen_to_by, rebuildings, Math.floor(Date.now() / 30000)], () => [
      found.restart ? h("div", { class: "banner warn" }, h("span", { "aria-hidden": "true" }, "↻"), h("p", {}, `Rolling restart ${found.restart.number} of ${found.restart.by} is under way for ${since(found.restart.began)}: ${one(found.restart.done.length, "node")} done, left: ${found.restart.left.join(", ") || "none"}.`)) : null,
      found.enabled && !(found.seen_to_by || []).length ? h("div", { class: "banner warn" }, h("span", { "aria-hidden": "true" }, "!"), h("p", {}, "No node sees to maintenances (by_nodes in [settings.maintenance], or no node answered): they go on while somebody waits with ldctl maintenance wait NUMBER, or manage.")) : null,
      panel(["Now", h("small", {}, [found.live.length ? one(found.live.length, "maintenance") : "", (found.seen_to_by || []).length ? `${found.seen_to_by.join(", ")} sees to them` : ""].filter(Boolean).join(", "))], found.live.length ? h("ul", { class: "problems" }, found.live.map(each => entry(each, rebuildings)))
        : h("p", { class: "empty" }, found.enabled ? "Nothing is being taken away." : "The cluster keeps no log of maintenances: set enabled = true in [settings.maintenance] of its file.")),
      panel("Commands", h("pre", { tabindex: "0", "aria-label": "Commands" }, ["# take a node away when it is safe", "ldctl maintenance apply N3 --may-disappear --for 2h --reason 'new kernel'", "# empty it first", "ldctl maintenance apply N3 --drain --reason 'retired'", "# end one", "ldctl maintenance cancel NUMBER", "# wait until one is granted", "ldctl maintenance wait NUMBER"].join("\n")))]);
  }
  const stop = repeat(async signal => {
    found = await get("maintenances", {}, signal);
    said.textContent = "";
    over.update(found.ended);
    show();
    return found.took_us;
  }, 5000, error => { said.textContent = error.message; });
  const element = h("div", { class: "stack" }, head("Maintenances", "What operators take away, each only when it is safe beside all others. The console changes nothing; ldctl does."), said, place, panel("Over", over.element));
  return {
    element, title: "Maintenances", table: over,
    update(state) {
      rebuildings = state.rebuildings;
      show();
    },
    close() { stop(); over.close(); },
  };
}
