// Records of a log at their positions, with the gaps between them.
import { get } from "./api.js";
import { chip, h, head } from "./dom.js";
import { asHex, asJson, asText, bytes, time, unhex, visible } from "./format.js";

const MEANS = { BRIDGE: "the end of an epoch: nothing was ever there", HOLE: "an append that failed left the number unused: nothing was acknowledged there", TRIM: "trimmed", DATALOSS: "records may have been here and cannot be had any more" };

function payload(data, whole) {
  const forms = [["JSON", asJson(data, whole)], ["Text", asText(data)], ["Hex", asHex(data)]].filter(([, text]) => text !== null), pre = h("pre", { tabindex: "0" });
  const buttons = forms.map(([name, text]) => h("button", { type: "button", onclick: () => choose(name, text) }, name));
  function choose(name, text) {
    pre.textContent = text;
    buttons.forEach(each => each.setAttribute("aria-pressed", String(each.textContent === name)));
  }
  choose(...forms[0]);
  return [h("div", { class: "tabs", role: "group", "aria-label": "Show the payload as" }, buttons), pre];
}

function record(item) {
  const position = `${item.lsn}${item.offset ? `+${item.offset}` : ""}`;
  if (item.corrupt) return h("li", { class: "gap DATALOSS" }, h("span", { class: "mono" }, position), h("span", {}, "was appended damaged: no copy can be read"));
  const data = unhex(item.payload), text = asText(data), whole = data.length === item.size;
  const body = h("div", { class: "body" });
  const shown = (text === null ? `0x${item.payload.slice(0, 120)}` : text.slice(0, 240)) || "(empty)";
  return h("li", {}, h("details", { ontoggle: event => {
    if (!event.target.open || body.childNodes.length) return;
    const key = item.key === null ? null : unhex(item.key);
    body.append(...[key === null ? null : h("p", {}, "key ", h("code", {}, asText(key) ?? `0x${item.key}`)), whole ? null : h("p", { class: "note" }, `The first ${bytes(data.length)} of ${bytes(item.size)} are shown; ldcat has all.`), ...payload(data, whole)].filter(Boolean));
  } }, h("summary", {}, h("span", { class: "mono" }, position), h("small", {}, time(item.time)), h("small", {}, bytes(item.size)), h("span", { class: "mono" }, item.key === null ? null : [chip(visible(asText(unhex(item.key)) ?? `0x${item.key}`).slice(0, 40), "accent"), " "], shown)), body));
}

const gap = item => h("li", { class: `gap ${item.gap}` }, h("span", { class: "mono" }, item.lo), h("span", {}, h("b", {}, item.gap), item.lo === item.hi ? "" : ` to ${item.hi}`, `: ${MEANS[item.gap] || "no records"}${item.loss ? ` (${item.loss})` : ""}`));

export function records(name, given) {
  const list = h("ul", { class: "records", "aria-label": "Records" }), said = h("p", { class: "note", role: "status" }), title = h("div");
  const from = h("input", { type: "text", id: "filter", value: given.get("from") || "tail", size: "14", "aria-describedby": "from-means", spellcheck: "false" });
  const limit = h("select", {}, [20, 50, 100, 200].map(each => h("option", { value: each, selected: String(each) === (given.get("limit") || "50") }, each)));
  const button = (text, target) => h("button", { type: "button", disabled: !target, onclick: () => go(target) }, text);
  const buttons = h("div", { class: "tools-row" });
  function go(start) { location.hash = `#/records/${encodeURIComponent(name)}?from=${encodeURIComponent(start)}&limit=${limit.value}`; }
  const abort = new AbortController();
  async function load() {
    said.textContent = "reading";
    const found = await get("records", { log: name, from: from.value, limit: limit.value }, abort.signal);
    title.replaceChildren(h("h1", {}, found.path), h("p", {}, `log ${found.log}, tail ${found.tail} · `, h("a", { href: `#/log/${encodeURIComponent(name)}` }, "about the log")));
    list.replaceChildren(...found.items.map(each => each.gap ? gap(each) : record(each)));
    if (!found.items.length) list.append(h("li", { class: "empty" }, "There is nothing to read here."));
    buttons.replaceChildren(button("Oldest", "oldest"), button("Before", found.previous), button("After", found.next), button("Newest", "tail"));
    said.textContent = found.note || `${found.items.filter(each => !each.gap).length} records from ${found.from} on`;
  }
  load().catch(error => { if (error.name !== "AbortError") said.textContent = error.message; });
  const element = h("div", { class: "stack" }, h("div", { class: "head" }, title, buttons),
    h("form", { class: "tools-row", onsubmit: event => { event.preventDefault(); go(from.value); } }, h("label", {}, "From", from), h("label", {}, "Records", limit), h("button", { class: "main" }, "Read"), h("small", { id: "from-means" }, "an LSN like e3n17, oldest, or tail")),
    said, list);
  if (!title.childNodes.length) title.append(...head(`Log ${name}`).childNodes);
  return { element, title: `Records of ${name}`, close: () => abort.abort() };
}
