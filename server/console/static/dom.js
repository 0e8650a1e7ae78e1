// Elements are made here and nowhere else. Whatever comes from the cluster becomes text, never markup.

export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter(each => each !== null && each !== undefined && each !== false).map(each => each instanceof Node ? each : String(each)));
  return element;
}

export const chip = (text, kind = "") => h("span", { class: `chip ${kind}` }, text);
export const panel = (title, ...children) => h("section", { class: "panel" }, h("h2", {}, title), ...children);
export const tile = (name, value, more) => h("dl", { class: "tile" }, h("dt", {}, name), h("dd", {}, value, more ? h("small", {}, " ", more) : null));
export const facts = pairs => h("dl", { class: "facts" }, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "").map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
export const head = (title, text, ...tools) => h("div", { class: "head" }, h("div", {}, h("h1", {}, title), text ? h("p", {}, text) : null), ...tools);

// Draws into a place again only when what it shows is different; the focus stays where it was, by data-key.
export function redraw(place, shown, draw) {
  const text = JSON.stringify(shown);
  if (place.shownText === text) return;
  place.shownText = text;
  const focused = place.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  const open = [...place.querySelectorAll("details[open][data-key]")].map(each => each.dataset.key);
  place.replaceChildren(...[draw(shown)].flat(Infinity).filter(Boolean));
  for (const each of place.querySelectorAll("details[data-key]")) each.open = open.includes(each.dataset.key);
  if (focused) for (const each of place.querySelectorAll("[data-key]")) if (each.dataset.key === focused) each.focus();
}
