"""A page on which an HTTP service can be tried: it reads the description and offers every operation. It needs nothing from elsewhere."""

from __future__ import annotations

from typing import Final

TRY_PAGE: Final = "/docs"
"""Anybody who reaches the API gets it: it holds no data."""
PAGE_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'",
}
PAGE: Final = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>HTTP API</title>
<style>
  body { font: 15px/1.4 sans-serif; max-width: 70em; margin: 1em auto; padding: 0 1em }
  details { border: 1px solid #bbb; border-radius: 4px; margin: .3em 0; padding: .3em .6em }
  summary code { font-weight: bold } label { display: block; margin: .3em 0 } label span { display: inline-block; min-width: 8em }
  pre { background: #f3f3f3; padding: .6em; overflow: auto; max-height: 30em } .bad { color: #a00 }
</style>
<h1>HTTP API</h1>
<form id="access"><label><span>Token</span><input id="token" type="password" size="40" autocomplete="off">
<button>Load</button> <small>the content of the file .token beside the cluster file, where requests need one</small></label></form>
<p id="state"></p>
<main></main>
<script>
"use strict";
const make = (tag, text) => { const e = document.createElement(tag); if (text !== undefined) e.textContent = text; return e; };
const headers = () => { const t = document.getElementById("token").value.trim(); return t ? { Authorization: "Bearer " + t } : {}; };
const say = (text, bad) => { const e = document.getElementById("state"); e.textContent = text; e.className = bad ? "bad" : ""; };
function operation(path, method, described) {
  const box = make("details"), head = make("summary"), form = make("form"), shown = make("pre");
  head.append(make("code", method.toUpperCase() + " " + path), " ", described.summary);
  const body = (described.requestBody || {}).content;
  const schema = body ? body["application/json"].schema : null;
  const inputs = (described.parameters || []).map(p => ({ name: p.name, doc: p.description, type: p.schema.type, required: p.required }));
  if (schema) for (const [name, p] of Object.entries(schema.properties))
    inputs.push({ name, doc: p.description, type: p.type, required: schema.required.includes(name) });
  for (const each of inputs) {
    const label = make("label");
    each.input = make("input");
    each.input.required = each.required;
    label.append(make("span", each.name), each.input, " ", make("small", each.doc));
    form.append(label);
  }
  form.append(make("button", method === "post" ? "Do it" : "Try it"));
  shown.hidden = true;
  form.onsubmit = async event => {
    event.preventDefault();
    if (method === "post" && !confirm(described.summary)) return;
    const given = inputs.filter(each => each.input.value !== "");
    const request = { method: method.toUpperCase(), headers: headers() };
    let url = path;
    if (schema) {
      request.headers["Content-Type"] = "application/json";
      request.body = "{" + given.map(each => JSON.stringify(each.name) + ": " +
        (each.type === "integer" && /^[0-9]+$/.test(each.input.value) ? each.input.value : JSON.stringify(each.input.value))).join(", ") + "}";
    } else if (given.length) url += "?" + new URLSearchParams(given.map(each => [each.name, each.input.value]));
    shown.hidden = false;
    try {
      const answer = await fetch(url, request);
      shown.textContent = answer.status + " " + url + "\\n" + await answer.text(); // as it came: numbers may be larger than JavaScript's
    } catch (error) { shown.textContent = String(error); }
  };
  box.append(head, form, shown);
  return box;
}
async function load() {
  const main = document.querySelector("main");
  main.replaceChildren();
  const answer = await fetch("/v1/openapi.json", { headers: headers() });
  if (!answer.ok) { say(answer.status === 401 ? "A token is required." : "Refused: " + answer.status, true); return; }
  const description = await answer.json();
  say(description.info.title);
  for (const tag of description.tags) {
    main.append(make("h2", tag.name), make("p", tag.description));
    for (const [path, methods] of Object.entries(description.paths)) for (const [method, described] of Object.entries(methods))
      if (described.tags.includes(tag.name)) main.append(operation(path, method, described));
  }
}
document.getElementById("access").onsubmit = event => { event.preventDefault(); load().catch(error => say(String(error), true)); };
load().catch(error => say(String(error), true));
</script>
</html>
"""
