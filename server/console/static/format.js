// Numbers, times and payloads as people read them.

export const bytes = count => {
  if (count === null || count === undefined) return "–";
  let amount = count;
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (amount < 1000) return `${unit === "B" ? Math.round(amount) : amount.toFixed(1)} ${unit}`;
    amount /= 1000;
  }
  return `${amount.toFixed(1)} TB`;
};
export const count = value => value === null || value === undefined ? "–" : value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });
export const rate = value => value === null || value === undefined ? "–" : `${count(value)}/s`;
export const time = micros => micros ? new Date(micros / 1000).toISOString().replace("T", " ").replace("Z", "") : "–";
export const duration = seconds => {
  if (seconds === null || seconds === undefined) return "–";
  const all = Math.max(0, Math.round(seconds)), days = Math.floor(all / 86400), hours = Math.floor(all / 3600) % 24, minutes = Math.floor(all / 60) % 60;
  return days ? `${days} d ${hours} h` : hours ? `${hours} h ${minutes} min` : minutes ? `${minutes} min ${all % 60} s` : `${all} s`;
};
export const clock = millis => new Date(millis).toISOString().slice(11, 19);
export const since = micros => micros ? duration(Date.now() / 1000 - micros / 1e6) : "–";
export const one = (number, word, words = `${word}s`) => `${count(number)} ${number === 1 ? word : words}`;
export const orNone = value => value === null || value === undefined || value === "" ? "–" : String(value);

export const unhex = text => Uint8Array.from(text.match(/../g) || [], pair => parseInt(pair, 16));
const controls = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;
// What would change how the text around it looks is written as an escape: direction marks, control characters.
export const visible = text => text.replace(controls, each => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`);
export function asText(data) {
  try { return visible(new TextDecoder("utf-8", { fatal: true }).decode(data)); } catch { return null; }
}
export function asJson(data, isWhole) {
  if (!isWhole) return null;
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(data), value = JSON.parse(text);
    // numbers that JavaScript cannot hold would be shown wrong
    return typeof value === "object" && value !== null && !/\d{16}/.test(text) ? visible(JSON.stringify(value, null, 2)) : null;
  } catch { return null; }
}
export function asHex(data) {
  const lines = [];
  for (let at = 0; at < data.length; at += 16) {
    const part = [...data.subarray(at, at + 16)];
    const hex = part.map((each, place) => each.toString(16).padStart(2, "0") + (place === 7 ? " " : "")).join(" ").padEnd(49);
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex}  ${part.map(each => each > 31 && each < 127 ? String.fromCharCode(each) : ".").join("")}`);
  }
  return lines.join("\n");
}
