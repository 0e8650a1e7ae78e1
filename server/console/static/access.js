// Who the viewer is, and what may be done here.
import { get } from "./api.js";
import { chip, facts, h, head, panel } from "./dom.js";
import { count, one, time } from "./format.js";
import { Table } from "./table.js";

const yes = value => chip(value ? "yes" : "no", value ? "ok" : "");
const TOKEN = {
  shown: "You have shown the token: you may read everything here, and act by the admin API.",
  "not shown": "You have not shown the token: on this machine reading needs none, acting does. Key a asks for it.",
  none: "This node has no token: whoever is on its machine may read, and nobody may act. A file beside the cluster file with its name and the suffix .token would hold one.",
};

function shown(found) {
  const proof = found.proof === "certificate" ? `by the certificate ${found.certificate}` : found.proof === "token" ? "by the token that LOGDEVICE_TOKEN_FILE names" : "proves nothing";
  const who = found.principal ?? (found.proof === "token" ? "whom its token names" : "not known here");
  return [
    h("div", { class: "columns" },
      panel("You, at this node", facts([["token", found.token], ["your address", found.from], ["read tables, SQL, this console", yes(true)], ["act by the admin API", yes(found.token === "shown")]]), h("p", { class: "note" }, TOKEN[found.token])),
      panel("The console, as a client of the cluster", facts([["principal", who], ["groups", found.principal_groups.join(", ")], ["proof", proof], ["its certificate expires (UTC)", found.expires ? time(found.expires).slice(0, 16) : ""], ["connections", { off: "clear text", accept: "TLS where nodes speak it", require: "TLS" }[found.tls] ?? found.tls], ["permissions", found.permissions ? "are looked at" : "are off: everybody may everything"], ["administrator", yes(found.administrator || !found.permissions)]]),
        h("p", { class: "note" }, "Records, streams, index logs and maintenances are read so, for everybody who may look at this console."))),
  ];
}

export function access() {
  const said = h("p", { class: "note", role: "status" }, "asking"), place = h("div", { class: "stack" }), seen = h("p", { class: "note" }), abort = new AbortController();
  const search = h("input", { type: "search", id: "filter", placeholder: "path, who", oninput: () => table.filter(search.value) });
  const table = new Table({ label: "Permissions of logs", key: row => row.path, empty: "No log is configured.", columns: [{ name: "logs of", value: row => row.path, cell: row => h("a", { href: `#/logs?filter=${encodeURIComponent(row.path)}` }, row.path) }, { name: "how many", number: true, value: row => row.logs, cell: row => count(row.logs) },
    ...["append", "read", "trim"].map(name => ({ name, value: row => row[name] ? "yes" : "no", cell: row => yes(row[name]) })), { name: "permit", value: row => row.permit, cell: row => row.permit || "nobody named" }] });
  table.oncount = (few, all) => { seen.textContent = few === all ? one(all, "group") : `${count(few)} of ${one(all, "group")}`; };
  get("access", {}, abort.signal).then(found => {
    said.textContent = found.left_out ? `${count(found.left_out)} more groups are not shown.` : "";
    place.replaceChildren(...shown(found));
    table.set(found.groups);
  }).catch(error => { if (error.name !== "AbortError") said.textContent = error.message; });
  const element = h("div", { class: "stack" }, head("Access", "Who you are here, and what may be done.", h("label", {}, "Filter", search)), said, place, panel("What the console's client may do with logs", table.element, seen));
  return { element, title: "Access", table, close() { abort.abort(); table.close(); } };
}
