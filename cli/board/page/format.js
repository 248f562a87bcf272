"use strict";
// Formatting of numbers and times, and creation of elements without HTML in strings.

function element(kind, text, className) {
  const made = document.createElement(kind);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

/// Asks the board. A request that a lost machine never answers fails after a minute.
function request(address) { return fetch(address, { signal: AbortSignal.timeout(60000) }); }

function byId(id) { return document.getElementById(id); }

function setText(target, text) {
  const node = typeof target === "string" ? byId(target) : target;
  if (node.textContent !== text) node.textContent = text;
}

/// Gives a box these children. Equal ones stay in their place, and with them what is selected or scrolled to.
function setChildren(box, children) {
  let at = box.firstChild;
  const dropTo = (end) => {
    while (at !== end) {
      const next = at.nextSibling;
      at.remove();
      at = next;
    }
  };
  for (const child of children) {
    let same = at;
    while (same && !same.isEqualNode(child)) same = same.nextSibling;
    if (same) {
      dropTo(same);
      at = same.nextSibling;
    } else {
      box.insertBefore(child, at);
    }
  }
  dropTo(null);
}

function setShown(id, text) {
  byId(id).hidden = !text;
  setText(id, text || "");
}

function formatNumber(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(3);
  return String(Number(value.toPrecision(size >= 1000 ? 7 : 5)));
}

const kNames = { loss: "training loss", lr: "learning rate", grad_norm: "gradient norm",
  mfu: "model FLOPs utilization", expert_load_max: "largest load", expert_load_min: "smallest load",
  expert_bias_max: "largest bias", expert_bias_min: "smallest bias",
  expert_entropy: "entropy of loads" };

/// Name of a quantity of metrics.jsonl in words.
function nameOf(quantity) {
  return kNames[quantity] || quantity.replace(/^val_/, "validation ")
    .replace(/source_(loss|tokens|epochs)\/(.*)$/, "$1 of $2")
    .replace(/^balance\/([a-z]+)_/, "balancing loss $1, ").replace(/[_/]/g, " ");
}

/// Sample of a curve's line.
function swatch(color, dashes) {
  const made = element("span", undefined, "swatch");
  let at = 0;
  const stops = (dashes || [22]).flatMap((length, part) => {
    const from = at;
    at += length;
    const shade = part % 2 === 0 ? color : "transparent";
    return [`${shade} ${from}px`, `${shade} ${at}px`];
  });
  made.style.backgroundImage = `repeating-linear-gradient(to right, ${stops.join(", ")})`;
  return made;
}

/// Labels of an axis's increasing ticks: just as many digits as distinguish each from its neighbours, so
/// that no two are equal, however close. Same as axis_labels() of `actortrain plot`.
function axisLabels(values) {
  const largest = Math.max(...values.map(Math.abs));
  const gaps = values.map((value, at) => values.length === 1 ? Math.abs(value) * 1e-3
    : Math.min(at > 0 ? value - values[at - 1] : Infinity,
      at + 1 < values.length ? values[at + 1] - value : Infinity));
  // A rounding residue near 0 is shown as 0.
  const rounded = values.map((value, at) => Math.abs(value) < 1e-6 * gaps[at] ? 0 : value);
  for (let digits = 1; digits <= 17; ++digits) {
    const [prefix, unit] = axisUnit(largest, digits <= 4);
    const said = rounded.map((value) => Number((value / unit).toPrecision(digits)));
    const near = said.every((value, at) => Math.abs(value * unit - rounded[at]) <= 0.05 * gaps[at]);
    if (near && new Set(said).size === said.length) return said.map((value) => axisLabel(value, largest, prefix));
  }
  return rounded.map(String);  // all digits of the double
}

/// Labels with more than four digits use a prefix.
function axisUnit(largest, withPrefix) {
  if (withPrefix && largest >= 1e4 && largest < 1e15) {
    return kPrefixes.find(([, size]) => largest >= size);
  }
  return ["", 1];
}

function axisLabel(value, largest, prefix) {
  if (value === 0) return "0";
  if (largest < 1e-3 || largest >= 1e15) return value.toExponential();
  return String(value) + (prefix && ` ${prefix}`);
}

const kPrefixes = [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]];

function formatCount(value) {
  for (const [unit, size] of kPrefixes) {
    if (Math.abs(value) >= size) return (value / size).toPrecision(3) + " " + unit;
  }
  return value.toPrecision(3);
}

function formatBytes(bytes) {
  for (const [unit, size] of [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (bytes >= size) return (bytes / size).toFixed(bytes >= 100 * size ? 0 : 1) + " " + unit;
  }
  return bytes + " B";
}

function formatSeconds(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  const whole = Math.round(seconds);
  const days = Math.floor(whole / 86400), hours = Math.floor(whole / 3600) % 24;
  const minutes = Math.floor(whole / 60) % 60;
  if (days > 0) return `${days} d ${hours} h`;
  if (hours > 0) return `${hours} h ${minutes} min`;
  if (minutes > 0) return `${minutes} min ${whole % 60} s`;
  return seconds < 10 ? `${seconds.toFixed(1)} s` : `${whole} s`;
}

function formatTime(unixMs) { return new Date(unixMs).toLocaleString(); }

function formatAgo(unixMs) { return `${formatSeconds(Math.max(0, Math.round((Date.now() - unixMs) / 1000)))} ago`; }
