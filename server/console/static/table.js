// A table of any length: only the rows that can be seen are in the document.
import { h } from "./dom.js";

// A table of up to PLAIN rows is in the document whole, and so is one that does not scroll by itself.
const HEIGHT = 36, SPARE = 4, PLAIN = 60;
const alphabet = new Intl.Collator("en", { numeric: true });
const compare = (a, b) => a === b ? 0 : a === null || a === undefined ? 1 : b === null || b === undefined ? -1 : typeof a === "number" && typeof b === "number" ? a - b : alphabet.compare(String(a), String(b));

// A field that filters tables at once, and stands in the address a moment after the last key: a changed address costs more than the filter
export function filterField(page, placeholder, given, filter) {
  let timer = null;
  const field = h("input", { type: "search", id: "filter", placeholder, value: given.get("filter") || "", oninput: () => {
    filter(field.value);
    clearTimeout(timer);
    timer = setTimeout(() => { if (field.isConnected) history.replaceState(null, "", field.value ? `#/${page}?filter=${encodeURIComponent(field.value)}` : `#/${page}`); }, 400);
  } });
  return field;
}

export class Table {
  // columns: {name, label, number, value(row), cell(row)}; open(row): what Enter and a click do; key(row): stays the same
  constructor({ label, columns, open, key, tall = true, empty = "There is nothing here." }) {
    Object.assign(this, { columns, open, key: key || (row => JSON.stringify(row)), rows: [], shown: [], lines: new Map(), texts: null, tall, empty, sort: null, down: false, filterText: "" });
    this.headings = h("tr", { "aria-rowindex": "1" }, columns.map((column, place) => h("th", { scope: "col", class: column.number ? "number" : null },
      h("button", { type: "button", onclick: () => this.sortBy(place) }, column.label ?? column.name))));
    this.body = h("tbody");
    this.table = h("table", { "aria-label": label }, h("thead", {}, this.headings), this.body);
    this.element = h("div", { class: `grid ${tall ? "tall" : ""}`, tabindex: "0", role: "region", "aria-label": label }, this.table);
    this.element.addEventListener("scroll", () => this.ask(), { passive: true });
    this.body.addEventListener("keydown", event => this.onKey(event));
    this.body.addEventListener("click", event => {
      const row = event.target.closest("tr.row");
      if (row && this.open && !event.target.closest("a, button") && !String(getSelection())) this.open(this.shown[row.dataset.place]);
    });
    this.resized = new ResizeObserver(() => this.ask());
    this.resized.observe(this.element);
  }
  value(column, row) { return column.value ? column.value(row) : row[column.name]; }
  set(rows) {
    this.rows = rows;
    this.texts = null;
    this.lines = new Map();
    this.arrange();
  }
  // As set, but only when the rows are different, or half a minute has passed: cells may say how long ago something was
  update(rows) {
    const text = `${Math.floor(Date.now() / 30000)} ${JSON.stringify(rows)}`;
    if (text === this.rowsText) return;
    this.rowsText = text;
    this.set(rows);
  }
  filter(text) {
    const next = text.trim().toLowerCase();
    if (next === this.filterText) return;
    this.filterText = next;
    this.element.scrollTop = 0;
    this.arrange();
  }
  // What is looked for in a row, made once for all that is typed
  textsOf() { return this.texts ??= this.rows.map(row => this.columns.map(column => this.value(column, row) ?? "").join(" ").toLowerCase()); }
  sortBy(place) {
    this.down = this.sort === place ? !this.down : Boolean(this.columns[place].number);
    this.sort = place;
    this.element.scrollTop = 0;
    this.arrange();
  }
  arrange() {
    const wanted = this.filterText.split(/\s+/).filter(Boolean), texts = wanted.length ? this.textsOf() : null;
    this.shown = texts ? this.rows.filter((_, place) => wanted.every(word => texts[place].includes(word))) : this.rows.slice();
    if (this.sort !== null) {
      const column = this.columns[this.sort], sign = this.down ? -1 : 1;
      this.shown.sort((a, b) => {
        const x = this.value(column, a), y = this.value(column, b);
        return x === null || x === undefined || y === null || y === undefined ? compare(x, y) : sign * compare(x, y);
      });
    }
    [...this.headings.children].forEach((heading, place) => place === this.sort ? heading.setAttribute("aria-sort", this.down ? "descending" : "ascending") : heading.removeAttribute("aria-sort"));
    this.table.setAttribute("aria-rowcount", this.shown.length + 1);
    this.from = -1;
    this.draw();
    this.oncount?.(this.shown.length, this.rows.length);
  }
  ask() { this.asked ??= requestAnimationFrame(() => { this.asked = null; this.draw(); }); }
  draw() {
    const all = !this.tall || this.shown.length <= PLAIN, height = this.element.clientHeight || 600;
    const from = all ? 0 : Math.max(0, Math.floor(this.element.scrollTop / HEIGHT) - SPARE);
    const to = all ? this.shown.length : Math.min(this.shown.length, from + Math.ceil(height / HEIGHT) + 2 * SPARE);
    if (this.from === from && this.to === to) return;
    const focused = this.body.contains(document.activeElement) ? document.activeElement.closest("tr")?.dataset.key : null;
    [this.from, this.to] = [from, to];
    const lines = [], kept = this.lines;
    this.lines = new Map();
    for (let place = from; place < to; place++) {
      const row = this.shown[place], line = kept.get(row) ?? this.line(row);
      line.dataset.place = place;
      line.setAttribute("aria-rowindex", place + 2);
      this.lines.set(row, line);
      lines.push(line);
    }
    if (!lines.length) lines.push(h("tr", {}, h("td", { colspan: this.columns.length, class: "empty" }, this.filterText ? "Nothing matches." : this.empty)));
    this.body.replaceChildren(this.spacer(from), ...lines, this.spacer(this.shown.length - to));
    if (focused) this.body.querySelector(`tr[data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }
  spacer(rows) {
    const line = h("tr", { class: "spacer", "aria-hidden": "true" }, h("td", { colspan: this.columns.length }));
    line.style.height = `${rows * HEIGHT}px`;
    return line;
  }
  line(row) {
    const opens = this.open ? { tabindex: "0", "data-opens": "" } : {};
    return h("tr", { class: "row", "data-key": this.key(row), ...opens }, this.columns.map(column => {
      const cell = column.cell ? column.cell(row) : this.value(column, row);
      const text = cell === null || cell === undefined || cell === "" ? "–" : cell;
      return h("td", { class: `${column.number ? "number" : ""} ${column.wrap ? "wrap" : ""}`, title: typeof text === "string" && text.length > 40 ? text : null }, text);
    }));
  }
  onKey(event) {
    const row = event.target.closest("tr.row");
    if (!row || event.target !== row) return;
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: 15, PageUp: -15, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Enter") this.open?.(this.shown[row.dataset.place]);
    else if (step !== undefined) this.go(Math.min(this.shown.length - 1, Math.max(0, Number(row.dataset.place) + step)));
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
  go(place) {
    const top = place * HEIGHT, seen = this.element.clientHeight - 2 * HEIGHT;
    if (top < this.element.scrollTop) this.element.scrollTop = top;
    else if (top > this.element.scrollTop + seen) this.element.scrollTop = top - seen;
    this.draw();
    this.body.querySelector(`tr[data-place="${place}"]`)?.focus();
  }
  close() { this.resized.disconnect(); }
}
